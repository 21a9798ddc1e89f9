//! Copies of pictures within an NVIDIA device, and from it to host memory.
//!
//! Uses the driver directly: libav's copies report no error, so that a lost device would leave old memory
//! contents as the picture (libavutil 57, `hwcontext_cuda`).

use std::{
    ffi::{c_int, c_uint, c_void},
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ffmpeg_next::ffi;

use super::{
    av_frame::AvFrame,
    driver::{CUDA, function, load, meaning},
};

/// Function of one context, stream or event.
type OfHandle = unsafe extern "C" fn(*mut c_void) -> c_int;
type Pop = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Copy = unsafe extern "C" fn(*const Plan, *mut c_void) -> c_int;
type CreateEvent = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int;
type RecordEvent = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

/// `CU_EVENT_DISABLE_TIMING`.
const UNTIMED: c_uint = 2;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;

/// Longest wait for a copy; the device's queued work takes milliseconds. After it the device counts as lost;
/// shorter than the watchdog of a stalled process.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Interval between two polls.
const LOOK_EVERY: Duration = Duration::from_micros(50);

/// `CUDA_MEMCPY2D` of the CUDA Driver API.
#[derive(Default)]
#[repr(C)]
struct Plan {
    from_x: usize,
    from_y: usize,
    from_kind: c_uint,
    from_host: *const c_void,
    from_device: u64,
    from_array: *mut c_void,
    from_pitch: usize,
    to_x: usize,
    to_y: usize,
    to_kind: c_uint,
    to_host: *mut c_void,
    to_device: u64,
    to_array: *mut c_void,
    to_pitch: usize,
    row_bytes: usize,
    rows: usize,
}

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

/// Destination of a copied picture.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyDestination {
    /// Memory of the same device; the copy is queued on its default stream.
    Device,
    /// Host memory; the copy is done when the call returns.
    Host,
}

/// The driver's functions, and the context in which libav decodes.
pub(super) struct CudaCopier {
    context: NonNull<c_void>,
    push: OfHandle,
    pop: Pop,
    copy: Copy,
    synchronize: OfHandle,
    create_event: CreateEvent,
    record_event: RecordEvent,
    query_event: OfHandle,
    destroy_event: OfHandle,
    /// True after a wait timed out; later waits fail at once.
    is_silent: AtomicBool,
}

// SAFETY: the driver accepts calls from any thread; the context is the device's primary one, which a
// reference held by libav keeps alive as long as there are decoders and pictures of it.
unsafe impl Send for CudaCopier {}
// SAFETY: as above; the fields are only read.
unsafe impl Sync for CudaCopier {}

impl CudaCopier {
    /// Makes a copier for the CUDA device of `device`; the driver is loaded already.
    ///
    /// # Safety
    ///
    /// `device` must be an initialised CUDA context.
    pub(super) unsafe fn of(device: &ffi::AVHWDeviceContext) -> Result<CudaCopier, String> {
        // SAFETY: by this function's contract, `hwctx` is of this type.
        let context = unsafe { (*device.hwctx.cast::<ffi::AVCUDADeviceContext>()).cuda_ctx };
        let context = NonNull::new(context.cast()).ok_or("libav has no context")?;
        let cuda = load(CUDA)?;
        // SAFETY: the driver's own functions of these names have these types (CUDA Driver API, 6.8, 6.13,
        // 6.18 and 6.19).
        unsafe {
            Ok(CudaCopier {
                context,
                push: function(&cuda, c"cuCtxPushCurrent_v2")?,
                pop: function(&cuda, c"cuCtxPopCurrent_v2")?,
                copy: function(&cuda, c"cuMemcpy2DAsync_v2")?,
                synchronize: function(&cuda, c"cuStreamSynchronize")?,
                create_event: function(&cuda, c"cuEventCreate")?,
                record_event: function(&cuda, c"cuEventRecord")?,
                query_event: function(&cuda, c"cuEventQuery")?,
                destroy_event: function(&cuda, c"cuEventDestroy_v2")?,
                is_silent: AtomicBool::new(false),
            })
        }
    }

    /// Waits until the default stream has done its queued work, at most [`WAIT_MAX`]; the driver's own copy
    /// to host memory would block without a limit. The context must be current.
    fn wait(&self) -> Result<(), String> {
        let silent = || Err(format!("it has not answered for {} s", WAIT_MAX.as_secs()));
        if self.is_silent.load(Ordering::Relaxed) {
            return silent();
        }
        let mut event = ptr::null_mut();
        // SAFETY: a place for one event, which is destroyed below.
        said(unsafe { (self.create_event)(&mut event, UNTIMED) })?;
        // SAFETY: the event exists; a null stream is the default one.
        let mut waited = said(unsafe { (self.record_event)(event, ptr::null_mut()) });
        let began = Instant::now();
        while waited.is_ok() {
            // SAFETY: the event exists.
            match unsafe { (self.query_event)(event) } {
                NOT_READY if began.elapsed() > WAIT_MAX => {
                    self.is_silent.store(true, Ordering::Relaxed);
                    waited = silent();
                }
                NOT_READY => thread::sleep(LOOK_EVERY),
                code => {
                    waited = said(code);
                    break;
                }
            }
        }
        // SAFETY: made above; the driver keeps an event with pending work alive.
        waited.and(said(unsafe { (self.destroy_event)(event) }))
    }

    /// Copies the planes of `from`, stored as `format` in device memory, to those of `to`, which are
    /// allocated in the memory that `place` names.
    pub(super) fn copy(
        &self,
        from: &AvFrame,
        to: &mut AvFrame,
        format: ffi::AVPixelFormat,
        place: CopyDestination,
    ) -> Result<(), String> {
        // SAFETY: the context is alive; the push is popped below.
        said(unsafe { (self.push)(self.context.as_ptr()) })?;
        let ready = if place == CopyDestination::Host { self.wait() } else { Ok(()) };
        let is_ready = ready.is_ok();
        let mut copied = ready.and_then(|()| {
            (0..planes_of(format)).try_for_each(|plane| {
                let plan = Plan::of(plane, from, to, format, place)?;
                // SAFETY: both frames have their planes where the plan says; a null stream is the default
                // one.
                said(unsafe { (self.copy)(&plan, ptr::null_mut()) })
            })
        });
        if place == CopyDestination::Host && is_ready {
            // SAFETY: a null stream is the default one. Also waits after an error, because a queued copy
            // still writes to `to`.
            copied = copied.and(said(unsafe { (self.synchronize)(ptr::null_mut()) }));
        }
        let mut popped = ptr::null_mut();
        // SAFETY: pops the context pushed on this thread.
        copied.and(said(unsafe { (self.pop)(&mut popped) }))
    }
}

/// Converts the result code of the driver.
fn said(code: c_int) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(meaning(code)) }
}

fn planes_of(format: ffi::AVPixelFormat) -> usize {
    // SAFETY: `format` is one of libav's; the call reads a static table.
    usize::try_from(unsafe { ffi::av_pix_fmt_count_planes(format) }).unwrap_or(0)
}

impl Plan {
    /// Describes the copy of one plane of pictures stored as `format`.
    fn of(
        plane: usize,
        from: &AvFrame,
        to: &AvFrame,
        format: ffi::AVPixelFormat,
        place: CopyDestination,
    ) -> Result<Plan, String> {
        let (width, height) = from.size();
        // SAFETY: `format` is one of libav's; both read a static table.
        let (row_bytes, halvings) = unsafe {
            let halvings =
                ffi::av_pix_fmt_desc_get(format).as_ref().map_or(0, |of| of.log2_chroma_h);
            (ffi::av_image_get_linesize(format, width, plane as c_int), halvings)
        };
        let halvings = if plane == 0 { 0 } else { halvings };
        let rows = (height + (1 << halvings) - 1) >> halvings;
        let (from, from_pitch) = from.plane_at(plane);
        let (to, to_pitch) = to.plane_at(plane);
        let [row_bytes, rows, from_pitch, to_pitch] = [row_bytes, rows, from_pitch, to_pitch]
            .map(|number| usize::try_from(number).unwrap_or(0));
        let is_sound = !from.is_null() && !to.is_null() && row_bytes > 0 && rows > 0;
        if !is_sound || row_bytes > from_pitch.min(to_pitch) {
            return Err("planes that do not fit each other".to_owned());
        }
        let (to_kind, to_host, to_device) = match place {
            CopyDestination::Host => (HOST, to.cast(), 0),
            CopyDestination::Device => (DEVICE, ptr::null_mut(), to.addr() as u64),
        };
        Ok(Plan {
            from_kind: DEVICE,
            from_device: from.addr() as u64,
            from_pitch,
            to_kind,
            to_host,
            to_device,
            to_pitch,
            row_bytes,
            rows,
            ..Plan::default()
        })
    }
}
