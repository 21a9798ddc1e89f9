//! Where a picture lies in a device's memory.
//!
//! Only numbers and names: nothing here reads them. Whoever makes one vouches for the memory, so that code which
//! has a device read there need not know who decoded the picture.

use std::os::fd::BorrowedFd;

/// Where the planes of a semi-planar 4:2:0 picture (NV12, P010) are.
#[derive(Clone, Copy, Debug)]
pub enum DeviceMemory<'a> {
    /// In the memory of an NVIDIA device.
    Nvidia(DeviceSurface),
    /// In memory that another driver of the machine can import: luma, then chroma.
    DmaBuf([DmaBufPlane<'a>; 2]),
}

/// One plane in a dma-buf, as the kernel's `drm_fourcc.h` describes memory.
#[derive(Clone, Copy, Debug)]
pub struct DmaBufPlane<'a> {
    fd: BorrowedFd<'a>,
    modifier: u64,
    offset: u64,
    pitch: u64,
}

impl<'a> DmaBufPlane<'a> {
    /// A plane `offset` bytes into `fd`, rows `pitch` bytes apart, arranged as `modifier` says.
    ///
    /// # Safety
    ///
    /// `fd` is a dma-buf with every row of the plane, so arranged. For as long as the
    /// [`crate::DevicePicture`] that gives it lives, nothing writes there, and what did has ended.
    #[expect(unsafe_code, reason = "what a dma-buf holds cannot be checked here")]
    pub unsafe fn new(
        fd: BorrowedFd<'a>,
        modifier: u64,
        offset: u64,
        pitch: u64,
    ) -> DmaBufPlane<'a> {
        DmaBufPlane { fd, modifier, offset, pitch }
    }

    /// The dma-buf; planes of one picture may share it.
    pub fn fd(&self) -> BorrowedFd<'a> {
        self.fd
    }

    /// How samples are arranged in memory, tiles and compression: a DRM format modifier; 0 is row by row.
    pub fn modifier(&self) -> u64 {
        self.modifier
    }

    /// Bytes before the plane.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes between row starts, where rows are in a row.
    pub fn pitch(&self) -> u64 {
        self.pitch
    }
}

/// The planes of a semi-planar 4:2:0 picture (NV12, P010) in the memory of an NVIDIA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSurface {
    device: u32,
    luma: u64,
    chroma: u64,
    pitch: u32,
}

impl DeviceSurface {
    /// Planes at these addresses of device number `device`, rows `pitch` bytes apart.
    ///
    /// # Safety
    ///
    /// For as long as the [`crate::DevicePicture`] that gives it lives, every row of both planes, `pitch`
    /// bytes each, is readable memory of the primary context of that device. What writes it was given
    /// to the context's default stream before the picture was handed out, and nothing does so later.
    #[expect(unsafe_code, reason = "addresses of a device cannot be checked here")]
    pub unsafe fn new(device: u32, luma: u64, chroma: u64, pitch: u32) -> DeviceSurface {
        DeviceSurface { device, luma, chroma, pitch }
    }

    /// The device's number as the driver counts, from 0.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Address of the first sample of luma.
    pub fn luma(&self) -> u64 {
        self.luma
    }

    /// Address of the first pair of chroma samples.
    pub fn chroma(&self) -> u64 {
        self.chroma
    }

    /// Bytes between row starts, of both planes.
    pub fn pitch(&self) -> u32 {
        self.pitch
    }
}
