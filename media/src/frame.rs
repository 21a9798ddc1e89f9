//! A decoded picture with its exact time, on the host or on a device.

use std::sync::Arc;

use crate::{DeviceSurface, Dimensions, PixelLayout, Plane, Timestamp};

/// A decoded picture in host memory, kept alive by whoever decoded it.
pub trait HostFrameBuffer: Send + Sync {
    /// The luma plane, `extent` of the frame.
    fn luma(&self) -> Plane<'_>;

    /// The U and V planes; `None` for luma-only pictures.
    fn chroma(&self) -> Option<[Plane<'_>; 2]>;
}

/// A decoded picture in a device's memory, kept there by whoever decoded it.
pub trait DeviceFrameBuffer: Send + Sync {
    /// Returns the position of its planes, for as long as the picture lives.
    fn surface(&self) -> DeviceSurface;

    /// The same samples in host memory; copied when first asked for, and kept.
    fn host(&self) -> Result<&dyn HostFrameBuffer, DeviceMemoryLost>;

    /// As [`DeviceFrameBuffer::host`], to outlive the picture in the device's memory.
    fn fetched(&self) -> Result<Arc<dyn HostFrameBuffer>, DeviceMemoryLost>;
}

/// Pixels that were in a device's memory and cannot be had any more: the device was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("a picture could not be fetched from the device: {reason}")]
pub struct DeviceMemoryLost {
    /// Message of its driver.
    pub reason: String,
}

/// Location of a frame's pixels.
#[derive(Clone)]
pub enum Pixels {
    /// In host memory.
    Host(Arc<dyn HostFrameBuffer>),
    /// In a device's memory.
    Device(Arc<dyn DeviceFrameBuffer>),
}

impl Pixels {
    /// The picture in host memory; fetched once where a device has it.
    pub fn host(&self) -> Result<&dyn HostFrameBuffer, DeviceMemoryLost> {
        match self {
            Pixels::Host(picture) => Ok(picture.as_ref()),
            Pixels::Device(picture) => picture.host(),
        }
    }

    /// The same picture in host memory alone.
    pub fn fetched(&self) -> Result<Pixels, DeviceMemoryLost> {
        match self {
            Pixels::Host(picture) => Ok(Pixels::Host(Arc::clone(picture))),
            Pixels::Device(picture) => picture.fetched().map(Pixels::Host),
        }
    }
}

impl std::fmt::Debug for Pixels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pixels::Host(_) => f.write_str("Host"),
            Pixels::Device(_) => f.write_str("Device"),
        }
    }
}

/// A decoded picture; cloning shares the pixels.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Presentation time, exact.
    pub pts: Timestamp,
    /// Position among the source's pictures in presentation order, from 0.
    pub source_index: u64,
    /// Size of this picture, which may differ from the stream's first.
    pub extent: Dimensions,
    /// Storage of the samples.
    pub layout: PixelLayout,
    /// The samples.
    pub pixels: Pixels,
}
