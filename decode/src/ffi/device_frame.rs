//! Pictures that stay in the memory of the NVIDIA device that decoded them.
//!
//! A decoder has few surfaces and reuses each, so a picture is copied within the device to memory of a pool,
//! which grows to the number of pictures held at once. It is downloaded when its samples are read; if that
//! fails, its decoder is marked lost.

use std::{
    ptr::NonNull,
    sync::{Arc, OnceLock},
};

use ffmpeg_next::ffi;
use media::{
    DeviceFrameBuffer, DeviceMemoryLost, DeviceSurface, HostFrameBuffer, PixelLayout, Subsampling,
};

use super::{
    AvError,
    av_frame::{AvFrame, layout_of},
    callbacks::CallbackState,
    cuda::{CopyDestination, CudaCopier},
};

/// Device that holds a picture.
#[derive(Clone)]
pub(super) struct DeviceFrameOwner {
    /// Number of the NVIDIA device, from 0.
    pub number: u32,
    pub copier: Arc<CudaCopier>,
    /// Callback state of the decoder of the picture.
    pub guard: Arc<CallbackState>,
}

/// Device memory for pictures of one size and format.
pub(super) struct FramePool(NonNull<ffi::AVBufferRef>);

// SAFETY: libav counts references to a pool atomically and locks what it hands out.
unsafe impl Send for FramePool {}

impl FramePool {
    /// Makes a pool for pictures like `frame`, which a device decoded.
    fn like(frame: &AvFrame) -> Result<FramePool, AvError> {
        let source = frame.pool().ok_or(AvError::INVALID)?;
        // SAFETY: a valid reference to the device that the pool of a valid frame holds.
        let raw = unsafe { ffi::av_hwframe_ctx_alloc(source.device_ref) };
        let pool = FramePool(NonNull::new(raw).ok_or(AvError::NO_MEMORY)?);
        // SAFETY: plain fields of a pool that is not initialised yet, of the type that libav says.
        unsafe {
            let own = (*pool.0.as_ptr()).data.cast::<ffi::AVHWFramesContext>();
            (*own).format = source.format;
            (*own).sw_format = source.sw_format;
            (*own).width = source.width;
            (*own).height = source.height;
            AvError::check(ffi::av_hwframe_ctx_init(pool.0.as_ptr()))?;
        }
        Ok(pool)
    }

    fn is_like(&self, frame: &AvFrame) -> bool {
        // SAFETY: an initialised pool, of the type that libav says.
        let own = unsafe { &*(*self.0.as_ptr()).data.cast::<ffi::AVHWFramesContext>() };
        let shape = |of: &ffi::AVHWFramesContext| (of.format, of.sw_format, of.width, of.height);
        frame.pool().is_some_and(|source| shape(source) == shape(own))
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        let mut raw = self.0.as_ptr();
        // SAFETY: one reference, released once; pictures have their own.
        unsafe { ffi::av_buffer_unref(&mut raw) };
    }
}

/// Copies `frame` to memory of `pool`, which is replaced if it does not fit. Returns `None` for a picture
/// that only host code can read: not semi-planar 4:2:0, or with edges to crop on the left or above.
pub(super) fn keep(
    frame: &AvFrame,
    pool: &mut Option<FramePool>,
    keeper: DeviceFrameOwner,
) -> Result<Option<AvFrame>, String> {
    let is_semi_planar = stored(frame).is_some_and(|layout| {
        layout.subsampling == Subsampling::Yuv420 && layout.interleaved_chroma
    });
    if !is_semi_planar || frame.is_cut_before() {
        return Ok(None);
    }
    let said = |error: AvError| error.to_string();
    let pool = match pool.take_if(|pool| pool.is_like(frame)) {
        Some(fitting) => pool.insert(fitting),
        None => pool.insert(FramePool::like(frame).map_err(said)?),
    };
    let mut kept = AvFrame::empty().map_err(said)?;
    // SAFETY: an initialised pool and an empty frame, which is given memory of it.
    let given = unsafe { ffi::av_hwframe_get_buffer(pool.0.as_ptr(), kept.as_ptr(), 0) };
    AvError::check(given).map_err(said)?;
    let format = frame.pool().ok_or("a picture of no device")?.sw_format;
    keeper.copier.copy(frame, &mut kept, format, CopyDestination::Device)?;
    kept.take_marks(frame).map_err(said)?;
    kept.keeper = Some(keeper);
    Ok(kept.has_one_pitch().then_some(kept))
}

/// Returns the layout of a picture in device memory; `None` if it is not YUV planes.
fn stored(frame: &AvFrame) -> Option<PixelLayout> {
    let pool = frame.pool()?;
    layout_of(pool.sw_format as i32, frame.range())
}

/// Picture in device memory.
pub(super) struct DeviceFrame {
    frame: AvFrame,
    keeper: DeviceFrameOwner,
    /// Downloaded picture or error; set by the first request.
    host: OnceLock<Result<Arc<dyn HostFrameBuffer>, DeviceMemoryLost>>,
}

// SAFETY: the frame is not written after the copy, so views from several threads only read; the driver
// accepts copies from any thread.
unsafe impl Sync for DeviceFrame {}

impl DeviceFrame {
    pub(super) fn new(
        frame: AvFrame,
        keeper: DeviceFrameOwner,
    ) -> Option<(PixelLayout, DeviceFrame)> {
        let layout = stored(&frame)?;
        Some((layout, DeviceFrame { frame, keeper, host: OnceLock::new() }))
    }

    fn fetch(&self) -> Result<Arc<dyn HostFrameBuffer>, DeviceMemoryLost> {
        let fetched = self.frame.downloaded(Some(&self.keeper.copier));
        let picture =
            fetched.and_then(|frame| frame.into_picture().map_err(|error| error.to_string()));
        picture.map(|picture| Arc::new(picture) as Arc<dyn HostFrameBuffer>).map_err(|reason| {
            let lost = DeviceMemoryLost { reason };
            self.keeper.guard.lose(lost.to_string());
            lost
        })
    }
}

impl DeviceFrameBuffer for DeviceFrame {
    fn surface(&self) -> DeviceSurface {
        let [(luma, pitch), (chroma, _)] = [0, 1].map(|plane| self.frame.plane_at(plane));
        let (luma, chroma, pitch) =
            (luma.addr() as u64, chroma.addr() as u64, pitch.cast_unsigned());
        // SAFETY: `keep` checked that both planes have this pitch. The frame holds its memory, which
        // libav took of the device's primary context; the copy was given to the default stream and nothing
        // writes a frame that was handed out.
        unsafe { DeviceSurface::new(self.keeper.number, luma, chroma, pitch) }
    }

    fn host(&self) -> Result<&Arc<dyn HostFrameBuffer>, DeviceMemoryLost> {
        self.host.get_or_init(|| self.fetch()).as_ref().map_err(Clone::clone)
    }
}
