//! A decoded libav frame as a [`HostFrameBuffer`], or as one in device memory.

use std::{ffi::CStr, ptr::NonNull, sync::Arc};

use ffmpeg_next::ffi;
use media::{
    Dimensions, Frame, HostFrameBuffer, PixelLayout, Pixels, Plane, SampleFormat, SampleRange,
    Subsampling, Timestamp,
};

use super::{
    AvError,
    cuda::{CopyDestination, CudaCopier},
    device_frame::{DeviceFrame, DeviceFrameOwner},
    packet::known,
    place::Place,
};
use crate::DecodeError;

/// Owns an `AVFrame`, filled by a decoder or empty.
pub(crate) struct AvFrame {
    raw: NonNull<ffi::AVFrame>,
    /// Owner of the device memory, for a picture that stays on its device.
    pub(super) keeper: Option<DeviceFrameOwner>,
}

// SAFETY: owned by this value; libav counts references to the buffers behind it atomically.
unsafe impl Send for AvFrame {}

impl AvFrame {
    pub(super) fn empty() -> Result<AvFrame, AvError> {
        // SAFETY: plain allocation.
        let raw = NonNull::new(unsafe { ffi::av_frame_alloc() }).ok_or(AvError::NO_MEMORY)?;
        Ok(AvFrame { raw, keeper: None })
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::AVFrame {
        self.raw.as_ptr()
    }

    fn raw(&self) -> &ffi::AVFrame {
        // SAFETY: valid for as long as self.
        unsafe { self.raw.as_ref() }
    }

    /// Returns libav's number of the pixel format.
    pub(super) fn format(&self) -> i32 {
        self.raw().format
    }

    /// Sets the time and the sample range, which NUT does not carry.
    pub(crate) fn set_times(&mut self, pts: Option<i64>, is_full_range: bool) {
        // SAFETY: owned by this value; plain fields of a frame that is not shared.
        let raw = unsafe { self.raw.as_mut() };
        raw.pts = pts.unwrap_or(ffi::AV_NOPTS_VALUE);
        raw.best_effort_timestamp = raw.pts;
        if is_full_range {
            raw.color_range = ffi::AVColorRange::AVCOL_RANGE_JPEG;
        }
    }

    /// Copies a picture in device memory to host memory, with its times, properties and cropping. `copier`
    /// must be given for a picture in CUDA memory.
    pub(super) fn downloaded(&self, copier: Option<&CudaCopier>) -> Result<AvFrame, String> {
        let said = |error: AvError| error.to_string();
        let mut copy = AvFrame::empty().map_err(said)?;
        match copier {
            Some(copier) => {
                let format = self.pool().ok_or("a picture of no device")?.sw_format;
                copy.take_memory(format as i32, self.size()).map_err(said)?;
                copier.copy(self, &mut copy, format, CopyDestination::Host)?;
            }
            // SAFETY: both frames are valid and the copy is empty; the device's picture is only read.
            None => AvError::check(unsafe {
                ffi::av_hwframe_transfer_data(copy.as_ptr(), self.as_ptr(), 0)
            })
            .map_err(said)?,
        }
        copy.take_marks(self).map_err(said)?;
        let uncut = ffi::AV_FRAME_CROP_UNALIGNED as i32;
        // SAFETY: a valid frame of our own. libav does not crop the left and upper edges of a device's
        // picture, so they are cropped here.
        AvError::check(unsafe { ffi::av_frame_apply_cropping(copy.as_ptr(), uncut) })
            .map_err(said)?;
        Ok(copy)
    }

    /// Allocates host memory for a picture in an empty frame.
    fn take_memory(&mut self, format: i32, (width, height): (i32, i32)) -> Result<(), AvError> {
        // SAFETY: plain fields of a frame of our own, for which libav then allocates.
        unsafe {
            let raw = self.raw.as_mut();
            (raw.format, raw.width, raw.height) = (format, width, height);
            AvError::check(ffi::av_frame_get_buffer(raw, 0))
        }
    }

    /// Copies the properties and the size of `other`, but no samples.
    pub(super) fn take_marks(&mut self, other: &AvFrame) -> Result<(), AvError> {
        // SAFETY: both frames are valid, and this one is our own.
        unsafe {
            AvError::check(ffi::av_frame_copy_props(self.as_ptr(), other.as_ptr()))?;
            let raw = self.raw.as_mut();
            (raw.width, raw.height) = other.size();
        }
        Ok(())
    }

    /// Returns columns and rows.
    pub(super) fn size(&self) -> (i32, i32) {
        (self.raw().width, self.raw().height)
    }

    /// Returns the address of a plane, in host or device memory, and the bytes between its rows.
    pub(super) fn plane_at(&self, plane: usize) -> (*mut u8, i32) {
        (self.raw().data[plane], self.raw().linesize[plane])
    }

    /// Returns the pool of a picture in device memory.
    pub(super) fn pool(&self) -> Option<&ffi::AVHWFramesContext> {
        // SAFETY: null, or a reference to an initialised pool, whose data is of this type; it lives as long
        // as the frame.
        unsafe { self.raw().hw_frames_ctx.as_ref().map(|held| &*held.data.cast()) }
    }

    /// Returns true if the left or upper edge is still to be cropped.
    pub(super) fn is_cut_before(&self) -> bool {
        (self.raw().crop_left, self.raw().crop_top) != (0, 0)
    }

    /// Returns true if the rows of luma and chroma take equally many bytes.
    pub(super) fn has_one_pitch(&self) -> bool {
        let [luma, chroma, ..] = self.raw().linesize;
        luma > 0 && luma == chroma
    }

    /// Returns the sample range: the codes of black and white.
    pub(super) fn range(&self) -> ffi::AVColorRange {
        self.raw().color_range
    }

    /// Returns the container's presentation time, or libav's best guess from decode times.
    pub(crate) fn pts(&self) -> Option<i64> {
        known(self.raw().best_effort_timestamp)
    }

    /// Returns the presentation time of the packet, unchanged.
    pub(crate) fn packet_pts(&self) -> Option<i64> {
        known(self.raw().pts)
    }

    /// Returns true if the decoder concealed gaps, or got bytes that the demuxer flagged as damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        let raw = self.raw();
        raw.flags & ffi::AV_FRAME_FLAG_CORRUPT != 0 || raw.decode_error_flags != 0
    }

    pub(crate) fn extent(&self) -> Option<Dimensions> {
        let raw = self.raw();
        Dimensions::new(u32::try_from(raw.width).ok()?, u32::try_from(raw.height).ok()?)
    }

    /// Checks the layout and every plane and lends the pixels; `place` holds a picture in host memory.
    pub(crate) fn into_shown(
        mut self,
        place: &mut Place,
        pts: Timestamp,
        source_index: u64,
    ) -> Result<Frame, DecodeError> {
        let Some(keeper) = self.keeper.take() else {
            let picture = self.into_picture()?;
            let (extent, layout) = (picture.extent, picture.shape.layout);
            let pixels = Pixels::Host(place.lend(picture));
            return Ok(Frame { pts, source_index, extent, layout, pixels });
        };
        let unsupported = self.unsupported();
        let shown = self.extent().zip(DeviceFrame::new(self, keeper));
        let (extent, (layout, picture)) = shown.ok_or(unsupported)?;
        let pixels = Pixels::Device(Arc::new(picture));
        Ok(Frame { pts, source_index, extent, layout, pixels })
    }

    fn unsupported(&self) -> DecodeError {
        DecodeError::UnsupportedPixelFormat(format_name(self.raw().format))
    }

    /// As [`AvFrame::into_shown`], for a frame in host memory.
    pub(super) fn into_picture(self) -> Result<HostFrame, DecodeError> {
        let raw = self.raw();
        let unsupported = || self.unsupported();
        let extent = self.extent().ok_or_else(unsupported)?;
        let shape = Shape::of(raw.format, raw.color_range).ok_or_else(unsupported)?;
        let is_grey = shape.layout.subsampling == Subsampling::Gray;
        let picture = HostFrame { frame: self, extent, shape };
        let chroma_is_whole = is_grey || picture.try_chroma().is_some();
        if picture.try_luma().is_none() || !chroma_is_whole {
            let name = format_name(picture.frame.raw().format);
            return Err(DecodeError::UnsupportedPixelFormat(format!("{name} with missing planes")));
        }
        Ok(picture)
    }
}

impl Drop for AvFrame {
    fn drop(&mut self) {
        let mut raw = self.as_ptr();
        // SAFETY: made by `av_frame_alloc`, freed once; drops its references to the buffers.
        unsafe { ffi::av_frame_free(&mut raw) };
    }
}

/// Checked frame; the pixels live as long as it does.
pub(super) struct HostFrame {
    frame: AvFrame,
    extent: Dimensions,
    shape: Shape,
}

// SAFETY: the frame is never written after it was decoded (decoders keep reading their
// reference frames, and libav copies on write), so views from several threads are reads only.
unsafe impl Sync for HostFrame {}

impl HostFrame {
    /// Returns the pixels to libav; no view of them may exist.
    pub(super) fn release(&mut self) {
        // SAFETY: a valid frame of our own, which stays valid without pixels.
        unsafe { ffi::av_frame_unref(self.frame.as_ptr()) };
    }

    fn plane(
        &self,
        index: usize,
        offset: usize,
        step: usize,
        extent: Dimensions,
    ) -> Option<Plane<'_>> {
        let raw = self.frame.raw();
        let stride = usize::try_from(raw.linesize[index]).ok().filter(|&stride| stride > 0)?;
        let data = raw.data[index];
        if data.is_null() {
            return None;
        }
        let sample = self.shape.layout.sample;
        let row = ((extent.width as usize - 1) * step + 1) * sample.bytes();
        let bytes = stride.checked_mul(extent.height as usize - 1)?.checked_add(row)?;
        // SAFETY: libav guarantees `linesize` bytes for every row but the last and a full row
        // of samples for the last; `offset` only moves to the second sample of a pair.
        let data = unsafe { std::slice::from_raw_parts(data.add(offset), bytes) };
        Plane::new(data, stride, extent, sample, step)
    }

    fn try_luma(&self) -> Option<Plane<'_>> {
        self.plane(0, 0, 1, self.extent)
    }

    fn try_chroma(&self) -> Option<[Plane<'_>; 2]> {
        let Shape { layout, chroma: [u, v] } = self.shape;
        let extent = layout.subsampling.chroma_extent(self.extent)?;
        let step = if layout.interleaved_chroma { 2 } else { 1 };
        Some([self.plane(u.0, u.1, step, extent)?, self.plane(v.0, v.1, step, extent)?])
    }
}

impl HostFrameBuffer for HostFrame {
    fn luma(&self) -> Plane<'_> {
        self.try_luma().expect("checked when the picture was made")
    }

    fn chroma(&self) -> Option<[Plane<'_>; 2]> {
        self.try_chroma()
    }
}

/// Layout of a libav pixel format, and the place of its chroma.
#[derive(Clone, Copy)]
struct Shape {
    layout: PixelLayout,
    /// Plane and byte offset of the first U and of the first V sample.
    chroma: [(usize, usize); 2],
}

impl Shape {
    /// Returns `None` if the format is not planar or semi-planar YUV or grey.
    fn of(format: i32, range: ffi::AVColorRange) -> Option<Shape> {
        let descriptor = descriptor(format)?;
        let refused = ffi::AV_PIX_FMT_FLAG_RGB
            | ffi::AV_PIX_FMT_FLAG_PAL
            | ffi::AV_PIX_FMT_FLAG_BITSTREAM
            | ffi::AV_PIX_FMT_FLAG_HWACCEL
            | ffi::AV_PIX_FMT_FLAG_FLOAT
            | ffi::AV_PIX_FMT_FLAG_BAYER;
        if descriptor.flags & refused as u64 != 0 {
            return None;
        }
        let luma = descriptor.comp[0];
        let sample = match (luma.depth, luma.shift) {
            (8, 0) => SampleFormat::U8,
            (9..=16, shift) if descriptor.flags & ffi::AV_PIX_FMT_FLAG_BE as u64 == 0 => {
                SampleFormat::U16 { shift: u8::try_from(luma.depth + shift - 8).ok()? }
            }
            _ => return None,
        };
        let bytes = sample.bytes() as i32;
        if luma.plane != 0 || luma.offset != 0 || luma.step != bytes {
            return None;
        }
        let is_full = range == ffi::AVColorRange::AVCOL_RANGE_JPEG
            || static_name(descriptor).to_bytes().starts_with(b"yuvj");
        let range = if is_full { SampleRange::Full } else { SampleRange::Limited };
        let shape = |subsampling, interleaved_chroma, chroma| Shape {
            layout: PixelLayout { subsampling, sample, interleaved_chroma, range },
            chroma,
        };
        if descriptor.nb_components < 3 {
            return Some(shape(Subsampling::Gray, false, [(0, 0); 2]));
        }
        let subsampling = match (descriptor.log2_chroma_w, descriptor.log2_chroma_h) {
            (1, 1) => Subsampling::Yuv420,
            (1, 0) => Subsampling::Yuv422,
            (0, 1) => Subsampling::Yuv440,
            (2, 0) => Subsampling::Yuv411,
            (0, 0) => Subsampling::Yuv444,
            _ => return None,
        };
        let (u, v) = (descriptor.comp[1], descriptor.comp[2]);
        let interleaved = match (u.plane, v.plane) {
            (1, 2) if u.step == bytes && v.step == bytes => false,
            (1, 1) if u.step == 2 * bytes && v.step == 2 * bytes => true,
            _ => return None,
        };
        let at = |component: ffi::AVComponentDescriptor| {
            Some((usize::try_from(component.plane).ok()?, usize::try_from(component.offset).ok()?))
        };
        Some(shape(subsampling, interleaved, [at(u)?, at(v)?]))
    }
}

/// Returns the layout of a libav pixel format; `None` if it is not planar or semi-planar YUV or grey.
pub(super) fn layout_of(format: i32, range: ffi::AVColorRange) -> Option<PixelLayout> {
    Shape::of(format, range).map(|shape| shape.layout)
}

/// Returns libav's name of a pixel format.
pub(super) fn format_name(format: i32) -> String {
    descriptor(format).map_or(c"unknown", static_name).to_string_lossy().into_owned()
}

fn static_name(descriptor: &'static ffi::AVPixFmtDescriptor) -> &'static CStr {
    if descriptor.name.is_null() {
        return c"unknown";
    }
    // SAFETY: descriptors are static and their names are C strings.
    unsafe { CStr::from_ptr(descriptor.name) }
}

pub(super) fn descriptor(format: i32) -> Option<&'static ffi::AVPixFmtDescriptor> {
    // SAFETY: returns null or a pointer into a static table.
    unsafe { ffi::av_pix_fmt_desc_get(named(format)?).as_ref() }
}

/// Returns the pixel format with this number.
pub(super) fn named(format: i32) -> Option<ffi::AVPixelFormat> {
    let known = 0..ffi::AVPixelFormat::AV_PIX_FMT_NB as i32;
    // SAFETY: the C enumerators run from 0 to NB without a gap, so `format` is one of them.
    known
        .contains(&format)
        .then(|| unsafe { std::mem::transmute::<i32, ffi::AVPixelFormat>(format) })
}
