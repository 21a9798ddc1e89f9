//! Decoded picture with its exact time, in host memory or on a device.

use std::sync::Arc;

use crate::{DeviceSurface, Dimensions, PixelLayout, Plane, Timestamp};

/// Decoded picture in host memory; the implementation keeps the memory alive.
pub trait HostFrameBuffer: Send + Sync {
    /// Returns the luma plane, which has the `extent` of the frame.
    fn luma(&self) -> Plane<'_>;

    /// Returns the U and V planes; `None` for a picture with luma only.
    fn chroma(&self) -> Option<[Plane<'_>; 2]>;
}

/// Decoded picture in device memory; the implementation keeps the memory alive.
pub trait DeviceFrameBuffer: Send + Sync {
    /// Returns the planes in device memory, valid while the buffer lives.
    fn surface(&self) -> DeviceSurface;

    /// Returns the same samples in host memory, which may outlive the device memory; copies them on the first
    /// call and caches the copy.
    fn host(&self) -> Result<&Arc<dyn HostFrameBuffer>, DeviceMemoryLost>;
}

/// Error of copying pixels from a device that was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("a picture could not be fetched from the device: {reason}")]
pub struct DeviceMemoryLost {
    /// Error message of the driver.
    pub reason: String,
}

/// Location of a frame's pixels.
#[derive(Clone)]
pub enum Pixels {
    /// Pixels in host memory.
    Host(Arc<dyn HostFrameBuffer>),
    /// Pixels in device memory.
    Device(Arc<dyn DeviceFrameBuffer>),
}

impl Pixels {
    /// Returns the picture in host memory; a device frame is copied on the first call.
    pub fn host(&self) -> Result<&Arc<dyn HostFrameBuffer>, DeviceMemoryLost> {
        match self {
            Pixels::Host(picture) => Ok(picture),
            Pixels::Device(picture) => picture.host(),
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
