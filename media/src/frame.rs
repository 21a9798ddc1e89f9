//! A decoded picture with its exact time, on the host or on a device.

use std::sync::Arc;

use crate::{Extent, PixelLayout, Plane, Timestamp};

/// A decoded picture in host memory, kept alive by whoever decoded it.
pub trait HostPicture: Send + Sync {
    /// The luma plane, `extent` of the frame.
    fn luma(&self) -> Plane<'_>;

    /// The U and V planes; `None` for luma-only pictures.
    fn chroma(&self) -> Option<[Plane<'_>; 2]>;
}

/// Where a frame's pixels are.
#[derive(Clone)]
pub enum Pixels {
    /// In host memory.
    Host(Arc<dyn HostPicture>),
}

impl std::fmt::Debug for Pixels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pixels::Host(_) => f.write_str("Host"),
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
    pub extent: Extent,
    /// How samples are stored.
    pub layout: PixelLayout,
    /// The samples.
    pub pixels: Pixels,
}
