//! libav decoder, on the CPU or on a device.

use std::{
    ffi::CStr,
    ptr::NonNull,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use ffmpeg_next::ffi;
use media::{Codec, DeviceMemoryLost};

use super::{
    AvError, AvFrame, HwDevice, Packet, Parameters,
    av_frame::format_name,
    buffer_limit::FrameSizeLimit,
    callbacks::{CallbackState, get_buffer, pick_format},
    device::{self, CudaContext},
    device_frame::{self, DeviceFrameOwner, FramePool},
    undecoded_blocks::has_holes,
};
use crate::{BackendError, DecodeBackend, DecodeError, DemuxLimits, decoder::FrameDecoder};

/// Treatment of damaged input by a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DamagePolicy {
    /// Reports damage, and is not used further: its output would depend on the timing of its threads.
    Refuse,
    /// Outputs as much as it can; on one thread the result is always the same.
    Conceal,
    /// As [`DamagePolicy::Refuse`], for a decoder on one thread that is reset after damage: no damaged
    /// picture is ever output, and pictures need no clearing.
    Discard,
}

/// `AV_HWACCEL_FLAG_UNSAFE_OUTPUT` of later libav versions: libav does not copy the decoder's output, because
/// we copy it and notice failures. Earlier versions never copy.
const OWN_SURFACES: i32 = 1 << 3;

/// Owns an open `AVCodecContext`.
pub(crate) struct CodecContext {
    raw: NonNull<ffi::AVCodecContext>,
    guard: Arc<CallbackState>,
    backend: DecodeBackend,
    nvidia: Option<CudaContext>,
    /// True if pictures are checked for blocks that were not decoded.
    may_have_holes: bool,
    /// Memory of an NVIDIA device for pictures that stay there; `None` until the first one.
    pool: Option<FramePool>,
    /// Empty frame, reused until a decoder fills it.
    spare: Option<AvFrame>,
}

// SAFETY: owned by this value and used by one thread at a time; libav contexts are not bound
// to the thread that made them.
unsafe impl Send for CodecContext {}

/// Returns the decoder's name; a lookup by name avoids wrappers of devices or other libraries.
pub(crate) fn decoder_name(codec: Codec) -> &'static CStr {
    match codec {
        Codec::H264 => c"h264",
        Codec::H265 => c"hevc",
        Codec::Vp8 => c"vp8",
        Codec::Vp9 => c"vp9",
        Codec::Av1 => c"libdav1d",
        Codec::Mpeg4 => c"mpeg4",
        Codec::Mjpeg => c"mjpeg",
    }
}

/// Stream to decode, and the decoder's duties, whatever its backend.
#[derive(Clone, Copy)]
pub(crate) struct DecoderSetup<'a> {
    pub(crate) codec: Codec,
    /// Parameters from the container; without them all parameters come in band.
    pub(crate) parameters: Option<&'a Parameters>,
    pub(crate) on_damage: DamagePolicy,
    pub(crate) limits: DemuxLimits,
}

/// Failed call of libav.
type Failed = (&'static str, AvError);

fn failed(call: &'static str) -> impl FnOnce(AvError) -> Failed {
    move |error| (call, error)
}

impl CodecContext {
    /// Opens the software decoder on `threads` threads.
    pub(crate) fn open(
        setup: DecoderSetup<'_>,
        threads: usize,
    ) -> Result<CodecContext, DecodeError> {
        super::silence_log();
        let codec = setup.codec;
        // SAFETY: the name is a C string.
        let decoder = unsafe { ffi::avcodec_find_decoder_by_name(decoder_name(codec).as_ptr()) };
        if decoder.is_null() {
            return Err(DecodeError::UnsupportedCodec(codec.as_str().to_owned()));
        }
        CodecContext::make(decoder, setup, threads, None)
            .map_err(|(call, error)| super::failed(call)(error))
    }

    /// Opens the decoder that uses `device`.
    pub(crate) fn open_on(
        device: &HwDevice,
        setup: DecoderSetup<'_>,
    ) -> Result<CodecContext, BackendError> {
        let codec = setup.codec;
        let decoder = device::decoder_name(codec).map_or(std::ptr::null(), |name| {
            // SAFETY: the name is a C string.
            unsafe { ffi::avcodec_find_decoder_by_name(name.as_ptr()) }
        });
        let format = device.format_of(decoder).ok_or_else(|| {
            let backend = device.backend.as_str();
            device::not_built(&format!("{backend} for {}", codec.as_str()))
        })?;
        let device = Some((device, format));
        CodecContext::make(decoder, setup, 1, device)
            .map_err(|(call, error)| device::failed(call, error))
    }

    /// Allocates and opens a context for `decoder`, which must be a static descriptor, on `device`, if there
    /// is one, with the format of its pictures.
    fn make(
        decoder: *const ffi::AVCodec,
        setup: DecoderSetup<'_>,
        threads: usize,
        device: Option<(&HwDevice, i32)>,
    ) -> Result<CodecContext, Failed> {
        let DecoderSetup { codec, parameters, on_damage, limits } = setup;
        // SAFETY: `decoder` is a static descriptor.
        let raw = NonNull::new(unsafe { ffi::avcodec_alloc_context3(decoder) })
            .ok_or(AvError::NO_MEMORY)
            .map_err(failed("avcodec_alloc_context3"))?;
        let guard = Arc::new(CallbackState {
            size: FrameSizeLimit::new(limits),
            on_damage,
            complained: AtomicBool::new(false),
            device_format: device.map(|(_, format)| format),
            lost: OnceLock::new(),
        });
        let backend = device.map_or(DecodeBackend::Software, |(device, _)| device.backend);
        let nvidia = device.and_then(|(device, _)| device.nvidia.clone());
        // With damage discarded, unused memory is not cleared, so holes cannot be found.
        let may_have_holes =
            codec == Codec::H265 && on_damage == DamagePolicy::Refuse && device.is_none();
        let (pool, spare) = (None, None);
        let context = CodecContext { raw, guard, backend, nvidia, may_have_holes, pool, spare };
        let raw = context.raw.as_ptr();
        if let Some(parameters) = parameters {
            // SAFETY: both are valid; the context is not open yet.
            AvError::check(unsafe { ffi::avcodec_parameters_to_context(raw, parameters.as_ptr()) })
                .map_err(failed("avcodec_parameters_to_context"))?;
        }
        if let Some((device, _)) = device {
            let reference = device.reference();
            if reference.is_null() {
                return Err(("av_buffer_ref", AvError::NO_MEMORY));
            }
            // SAFETY: plain fields of a context that is not open yet, which takes over the reference.
            unsafe {
                (*raw).hw_device_ctx = reference;
                (*raw).get_format = Some(pick_format);
                (*raw).hwaccel_flags |= OWN_SURFACES;
            }
        }
        context.configure(&setup, threads);
        // SAFETY: configured and not open yet; no options are given.
        AvError::check(unsafe { ffi::avcodec_open2(raw, decoder, std::ptr::null_mut()) })
            .map_err(failed("avcodec_open2"))?;
        Ok(context)
    }

    /// Sets the fields of a context that is not open yet.
    fn configure(&self, setup: &DecoderSetup<'_>, threads: usize) {
        let &DecoderSetup { codec, parameters, on_damage, limits } = setup;
        let raw = self.raw.as_ptr();
        // SAFETY: plain fields of a context that is not open yet. The guard outlives the decoder's
        // threads: `drop` joins them before the fields are dropped.
        unsafe {
            (*raw).opaque = Arc::as_ptr(&self.guard).cast_mut().cast();
            (*raw).get_buffer2 = Some(get_buffer);
            if let Some(parameters) = parameters {
                (*raw).pkt_timebase = parameters.timebase;
            }
            (*raw).thread_count = i32::try_from(threads).unwrap_or(i32::MAX);
            if on_damage != DamagePolicy::Conceal && matches!(codec, Codec::H264 | Codec::H265) {
                // Otherwise errors inside a picture are only concealed.
                (*raw).err_recognition |= ffi::AV_EF_EXPLODE;
            }
            if codec == Codec::Av1 {
                // libdav1d allocates its pictures itself; `receive` checks their bytes.
                let area_px = u64::from(limits.side_px).pow(2).min(limits.area_px);
                (*raw).max_pixels = i64::try_from(area_px).unwrap_or(i64::MAX);
            }
        }
    }

    /// Returns the frame in memory that the decoder does not reuse: device memory if pictures are to stay and
    /// can, else host memory. Returns a frame decoded on the CPU unchanged.
    fn own_frame(&mut self, frame: AvFrame) -> Result<AvFrame, AvError> {
        let Some(format) = self.guard.device_format else { return Ok(frame) };
        if frame.format() != format {
            // libav falls back to its own decoder silently.
            let name = format_name(frame.format());
            self.guard.lose(format!("a picture came as {name}, not from the device"));
            return Err(AvError::REFUSED);
        }
        if let Some(CudaContext { number, copier, keeps: true }) = self.nvidia.clone() {
            let keeper = DeviceFrameOwner { number, copier, guard: Arc::clone(&self.guard) };
            // A device without memory for the copy may still download the picture.
            if let Ok(Some(kept)) = device_frame::keep(&frame, &mut self.pool, keeper) {
                return Ok(kept);
            }
        }
        let copier = self.nvidia.as_ref().map(|nvidia| nvidia.copier.as_ref());
        frame.downloaded(copier).map_err(|reason| {
            self.guard.lose(DeviceMemoryLost { reason }.to_string());
            AvError::REFUSED
        })
    }
}

impl FrameDecoder for CodecContext {
    fn name(&self) -> String {
        // SAFETY: an open context points to its static descriptor, whose name is a C string.
        let name = unsafe { CStr::from_ptr((*(*self.raw.as_ptr()).codec).name) };
        format!("{}:{}", self.backend.as_str(), name.to_string_lossy())
    }

    fn send(&mut self, packet: Option<&Packet>) -> Result<(), AvError> {
        let packet = packet.map_or(std::ptr::null_mut(), Packet::as_ptr);
        // SAFETY: both are valid, and a null packet signals the end of the stream; libav takes its own reference
        // to the bytes.
        let code = unsafe { ffi::avcodec_send_packet(self.raw.as_ptr(), packet) };
        AvError::check(code).map_err(|error| self.guard.note_device(error))
    }

    fn receive(&mut self) -> Result<Option<AvFrame>, AvError> {
        let frame = match self.spare.take() {
            Some(frame) => frame,
            None => AvFrame::empty()?,
        };
        // SAFETY: both are valid; libav resets the frame before it fills it.
        let code = unsafe { ffi::avcodec_receive_frame(self.raw.as_ptr(), frame.as_ptr()) };
        if code >= 0 {
            let frame = self.own_frame(frame)?;
            if let Some(extent) = frame.extent() {
                self.guard.size.admit(extent, frame.format())?;
            }
            if self.may_have_holes && has_holes(&frame) {
                self.guard.complained.store(true, Ordering::Relaxed);
            }
            return Ok(Some(frame));
        }
        self.spare = Some(frame);
        match AvError(code) {
            AvError::AGAIN | AvError::END => Ok(None),
            error => Err(self.guard.note_device(error)),
        }
    }

    fn too_large(&self) -> Option<DecodeError> {
        self.guard.size.take_refusal()
    }

    fn lost(&self) -> Option<String> {
        self.guard.lost.get().cloned()
    }

    /// libav's threads may output a picture before its flags are set, and some decoders only log. Not used if
    /// damage is concealed.
    fn has_reported_damage(&self) -> bool {
        self.guard.on_damage != DamagePolicy::Conceal
            && self.guard.complained.load(Ordering::Relaxed)
    }

    fn reset(&mut self) {
        self.guard.complained.store(false, Ordering::Relaxed);
        // SAFETY: the context is open.
        unsafe { ffi::avcodec_flush_buffers(self.raw.as_ptr()) };
    }
}

impl Drop for CodecContext {
    fn drop(&mut self) {
        let mut raw = self.raw.as_ptr();
        // SAFETY: made by `avcodec_alloc_context3`, freed once; joins the decoder's threads.
        unsafe { ffi::avcodec_free_context(&mut raw) };
    }
}
