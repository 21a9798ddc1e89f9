//! In the place of `import` in builds without `dma-buf`: no device imports anything.

use gate::device::{SURFACES, Surface};
use media::Frame;

use crate::device::Device;

pub(crate) enum Importer {}
pub(crate) enum Imported {}

pub(crate) fn features(_: &wgpu::Adapter) -> wgpu::Features {
    wgpu::Features::empty()
}

impl Importer {
    pub fn of(_: &Device) -> Option<Importer> {
        None
    }

    pub fn bytes(&self, _: &Frame) -> Option<u64> {
        match *self {}
    }

    pub fn import(&self, _: &Device, _: &[Frame]) -> Result<Imported, String> {
        match *self {}
    }
}

impl Imported {
    pub fn surfaces(&self) -> std::iter::Empty<[Surface; SURFACES]> {
        match *self {}
    }

    pub fn copy(&self, _: &mut wgpu::CommandEncoder, _: &wgpu::Buffer) {
        match *self {}
    }
}
