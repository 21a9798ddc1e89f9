//! Location of a picture in device memory.
//!
//! Holds only numbers and never reads the memory. The creator vouches for the memory, so that code which has
//! a device read it need not know the decoder.

/// The planes of a semi-planar 4:2:0 picture (NV12, P010) in the memory of an NVIDIA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSurface {
    device: u32,
    luma: u64,
    chroma: u64,
    pitch: u32,
}

impl DeviceSurface {
    /// Creates a surface from the plane addresses on device number `device`; rows are `pitch` bytes apart.
    ///
    /// # Safety
    ///
    /// As long as the [`crate::DeviceFrameBuffer`] of this surface lives, every row of both planes, `pitch`
    /// bytes each, must be readable memory of the primary context of that device. All writes to it must be
    /// queued on the context's default stream before the picture is handed out; none may follow.
    #[expect(unsafe_code, reason = "addresses of a device cannot be checked here")]
    pub unsafe fn new(device: u32, luma: u64, chroma: u64, pitch: u32) -> DeviceSurface {
        DeviceSurface { device, luma, chroma, pitch }
    }

    /// Returns the device's number in the driver's order, from 0.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Returns the address of the first luma sample.
    pub fn luma(&self) -> u64 {
        self.luma
    }

    /// Returns the address of the first pair of chroma samples.
    pub fn chroma(&self) -> u64 {
        self.chroma
    }

    /// Returns the bytes between row starts, the same for both planes.
    pub fn pitch(&self) -> u32 {
        self.pitch
    }
}
