//! Position of a picture in a device's memory.
//!
//! Only numbers: nothing here reads them. Whoever makes one vouches for the memory, so that code which
//! has a device read there need not know who decoded the picture.

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
    /// For as long as the [`crate::DeviceFrameBuffer`] that gives it lives, every row of both planes, `pitch`
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
