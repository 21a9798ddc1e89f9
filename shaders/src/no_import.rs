//! Nothing is imported: built without `dma-buf`.

use media::Frame;

/// No texture of a picture.
pub(crate) type Imported = [wgpu::Texture; 2];

/// There is none.
pub(crate) enum Importer {}

impl Importer {
    pub fn features(_: &wgpu::Adapter) -> wgpu::Features {
        wgpu::Features::empty()
    }

    pub fn of(_: &wgpu::Device) -> Option<Importer> {
        None
    }

    pub fn import(&self, _: &wgpu::Device, _: &[Frame]) -> Result<Vec<Imported>, String> {
        match *self {}
    }
}
