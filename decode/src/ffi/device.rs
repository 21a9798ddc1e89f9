//! Decoding device, opened through libav.

use std::{
    ffi::{CStr, CString},
    fmt::Display,
    fs::OpenOptions,
    ptr::{self, NonNull},
    sync::Arc,
};

use ffmpeg_next::ffi;
use media::Codec;

use super::{AvError, CodecContext, DecoderSetup, cuda::CudaCopier, driver};
use crate::{
    BackendError, DecodeBackend,
    decoder::{DecoderFactory, FrameDecoder},
};

/// Path of a machine's first render node.
const RENDER_NODE: &str = "/dev/dri/renderD128";

/// Device to open.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HwDeviceSpec {
    /// Backend of the device; not [`DecodeBackend::Software`], which has none.
    pub backend: DecodeBackend,
    /// Device number of the driver, from 0, or path of a render node; `None` is the first.
    pub device: Option<String>,
    /// Value of `NVIDIA_DRIVER_CAPABILITIES`, for the error of a driver without video.
    pub capabilities: Option<String>,
}

/// Open device, shared by the decoders of many threads.
pub struct HwDevice {
    raw: NonNull<ffi::AVBufferRef>,
    pub(super) backend: DecodeBackend,
    pub(super) nvidia: Option<CudaContext>,
}

/// State of an NVIDIA device.
#[derive(Clone)]
pub(super) struct CudaContext {
    /// Device number, from 0.
    pub(super) number: u32,
    pub(super) copier: Arc<CudaCopier>,
    /// True if pictures stay in device memory.
    pub(super) keeps: bool,
}

// SAFETY: libav counts references to a device atomically and serialises calls where the driver needs it.
unsafe impl Send for HwDevice {}
// SAFETY: as above; through `&Device` only new references are made.
unsafe impl Sync for HwDevice {}

impl HwDevice {
    /// Opens a device; the error names the missing part.
    pub fn open(spec: &HwDeviceSpec) -> Result<HwDevice, BackendError> {
        super::silence_log();
        let backend = spec.backend;
        let kind = kind(backend).filter(|kind| is_built(*kind));
        let kind = kind.ok_or_else(|| not_built(backend.as_str()))?;
        let (device, number, flags) = match backend {
            DecodeBackend::Vaapi => (render_node(spec.device.as_deref())?, None, 0),
            _ => {
                let number = nvidia(spec)?;
                // Shares the primary context with the gate backend that measures on the device.
                (number.to_string(), Some(number), ffi::AV_CUDA_USE_PRIMARY_CONTEXT)
            }
        };
        let bad = |_| BackendError::bad_device(&device, "a name without a zero byte");
        let name = CString::new(device.as_str()).map_err(bad)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a place for one reference, a C string and no options.
        let code = unsafe {
            ffi::av_hwdevice_ctx_create(&mut raw, kind, name.as_ptr(), ptr::null_mut(), flags)
        };
        let refused = |error: AvError| failed("av_hwdevice_ctx_create", error);
        AvError::check(code).map_err(refused)?;
        let raw = NonNull::new(raw).ok_or(AvError::NO_MEMORY).map_err(refused)?;
        let mut device = HwDevice { raw, backend, nvidia: None };
        if let Some(number) = number {
            // SAFETY: an initialised context of CUDA, whose data is of this type.
            let copier = unsafe { CudaCopier::of(&*(*raw.as_ptr()).data.cast()) };
            let copier = copier.map_err(|detail| failed("loading the driver", detail))?;
            device.nvidia = Some(CudaContext { number, copier: Arc::new(copier), keeps: false });
        }
        Ok(device)
    }

    /// Leaves pictures in the memory of NVIDIA device `number`, if this is that device, to be measured there.
    /// Reading their samples downloads them.
    pub fn keeping_pictures_on(mut self, number: u32) -> HwDevice {
        if let Some(nvidia) = &mut self.nvidia {
            nvidia.keeps = nvidia.number == number;
        }
        self
    }

    /// Returns a new reference for a decoder to own; null if memory runs out.
    pub(super) fn reference(&self) -> *mut ffi::AVBufferRef {
        // SAFETY: the device is valid for as long as self.
        unsafe { ffi::av_buffer_ref(self.raw.as_ptr()) }
    }

    /// Returns the format of this device's pictures from `decoder`; `None` without support for the device.
    pub(super) fn format_of(&self, decoder: *const ffi::AVCodec) -> Option<i32> {
        kind(self.backend).and_then(|kind| format_of(decoder, kind))
    }
}

impl DecoderFactory for HwDevice {
    fn open(&self, setup: DecoderSetup<'_>) -> Result<Box<dyn FrameDecoder>, BackendError> {
        Ok(Box::new(CodecContext::open_on(self, setup)?))
    }
}

impl Drop for HwDevice {
    fn drop(&mut self) {
        let mut raw = self.raw.as_ptr();
        // SAFETY: one reference, released once; decoders have their own.
        unsafe { ffi::av_buffer_unref(&mut raw) };
    }
}

/// Returns the decoder's name; a lookup by name avoids other libraries: libdav1d supports no device.
pub(super) fn decoder_name(codec: Codec) -> Option<&'static CStr> {
    match codec {
        Codec::Av1 => Some(c"av1"),
        // Their inverse transforms are not exact by the standard, so devices produce other bits.
        Codec::Mpeg4 | Codec::Mjpeg => None,
        Codec::H264 | Codec::H265 | Codec::Vp8 | Codec::Vp9 => Some(super::decoder_name(codec)),
    }
}

pub(super) fn failed(call: &str, detail: impl Display) -> BackendError {
    BackendError::unavailable(format!("{call} failed: {detail}"))
}

pub(super) fn not_built(what: &str) -> BackendError {
    BackendError::unsupported(format!("this libav was built without {what}"))
}

fn kind(backend: DecodeBackend) -> Option<ffi::AVHWDeviceType> {
    match backend {
        DecodeBackend::Nvdec => Some(ffi::AVHWDeviceType::AV_HWDEVICE_TYPE_CUDA),
        DecodeBackend::Vaapi => Some(ffi::AVHWDeviceType::AV_HWDEVICE_TYPE_VAAPI),
        DecodeBackend::Software | DecodeBackend::FfmpegCli => None,
    }
}

/// Returns true if some decoder of this libav supports such a device.
fn is_built(kind: ffi::AVHWDeviceType) -> bool {
    Codec::ALL.into_iter().filter_map(decoder_name).any(|name| {
        // SAFETY: the name is a C string.
        let decoder = unsafe { ffi::avcodec_find_decoder_by_name(name.as_ptr()) };
        format_of(decoder, kind).is_some()
    })
}

fn format_of(decoder: *const ffi::AVCodec, kind: ffi::AVHWDeviceType) -> Option<i32> {
    if decoder.is_null() {
        return None;
    }
    let by_device = ffi::AV_CODEC_HW_CONFIG_METHOD_HW_DEVICE_CTX as i32;
    (0..)
        .map_while(|index| {
            // SAFETY: `decoder` is a static descriptor; past its last entry the result is null.
            unsafe { ffi::avcodec_get_hw_config(decoder, index).as_ref() }
        })
        .find(|config| config.device_type == kind && config.methods & by_device != 0)
        .map(|config| config.pix_fmt as i32)
}

fn nvidia(spec: &HwDeviceSpec) -> Result<u32, BackendError> {
    let named = spec.device.as_deref().unwrap_or("0");
    let expected = "the number of an NVIDIA device, counted from 0";
    let index: u32 = named.parse().map_err(|_| BackendError::bad_device(named, expected))?;
    driver::check_nvidia(index, spec.capabilities.as_deref())?;
    Ok(index)
}

fn render_node(device: Option<&str>) -> Result<String, BackendError> {
    let path = device.unwrap_or(RENDER_NODE).to_owned();
    if !path.starts_with('/') {
        let expected = format!("the path of a render node, such as {RENDER_NODE}");
        return Err(BackendError::bad_device(&path, &expected));
    }
    match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(BackendError::unavailable(format!(
            "the render node cannot be opened: {error}: {path}"
        ))),
    }
}
