//! Container that is written to a sink sequentially, without seeking.

use std::{
    ffi::{CStr, c_int, c_void},
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use ffmpeg_next::ffi;
use media::Timebase;

use super::{
    AvError, Packet,
    format::{FormatContext, Options},
    io::{free_stream, stream_with_buffer},
};

/// Owns an output `AVFormatContext`, its byte stream and its sink.
pub(crate) struct Muxer {
    context: *mut ffi::AVFormatContext,
    sink: *mut Sink,
    has_begun: bool,
}

/// State of the callback, reached through libav's opaque pointer.
struct Sink {
    out: Box<dyn Write + Send>,
    /// True after the sink refused bytes.
    is_closed: bool,
}

// SAFETY: owned by this value and used by one thread at a time; its sink is `Send`.
unsafe impl Send for Muxer {}

impl Muxer {
    /// Makes a container with libav's `name` that is written to `out`.
    pub(crate) fn new(name: &CStr, out: Box<dyn Write + Send>) -> Result<Muxer, AvError> {
        super::silence_log();
        let sink = Box::into_raw(Box::new(Sink { out, is_closed: false }));
        let mut muxer = Muxer { context: ptr::null_mut(), sink, has_begun: false };
        // SAFETY: plain allocations. The context owns nothing of ours; `sink` outlives the byte
        // stream (see `Drop`), whose callback expects exactly that pointer.
        unsafe {
            let made = ffi::avformat_alloc_output_context2(
                &mut muxer.context,
                ptr::null(),
                name.as_ptr(),
                ptr::null(),
            );
            AvError::check(made)?;
            (*muxer.context).pb = stream_with_buffer(|buffer, bytes| {
                ffi::avio_alloc_context(buffer, bytes, 1, sink.cast(), None, Some(write), None)
            })?;
            (*muxer.context).flags |= ffi::AVFMT_FLAG_CUSTOM_IO | ffi::AVFMT_FLAG_BITEXACT;
        }
        Ok(muxer)
    }

    /// Returns true if the container with libav's `name` holds the codec of stream `index` of `source`.
    pub(crate) fn holds(name: &CStr, source: &FormatContext, index: usize) -> bool {
        let Some(stream) = source.stream_at(index) else { return false };
        // SAFETY: a static descriptor, or null, which libav accepts, and the codec of a live stream.
        unsafe {
            let format = ffi::av_guess_format(name.as_ptr(), ptr::null(), ptr::null());
            let codec = (*(*stream).codecpar).codec_id;
            ffi::avformat_query_codec(format, codec, ffi::FF_COMPLIANCE_NORMAL) == 1
        }
    }

    /// Adds a stream with the parameters of stream `index` of `source`.
    pub(crate) fn add(&mut self, source: &FormatContext, index: usize) -> Result<(), AvError> {
        let from = source.stream_at(index).ok_or(AvError::INVALID)?;
        // SAFETY: both streams live as long as their contexts. The matrix is copied into as many
        // bytes as it has, and the lists of tags are static.
        unsafe {
            let to = ffi::avformat_new_stream(self.context, ptr::null());
            if to.is_null() {
                return Err(AvError::NO_MEMORY);
            }
            AvError::check(ffi::avcodec_parameters_copy((*to).codecpar, (*from).codecpar))?;
            (*to).time_base = (*from).time_base;
            (*to).avg_frame_rate = (*from).avg_frame_rate;
            (*to).disposition = (*from).disposition;
            let codec = &mut *(*to).codecpar;
            let tags = (*(*self.context).oformat).codec_tag;
            // A tag that this container knows for the codec determines how its parameters are stored.
            if ffi::av_codec_get_id(tags, codec.codec_tag) != codec.codec_id {
                codec.codec_tag = 0;
            }
            let kind = ffi::AVPacketSideDataType::AV_PKT_DATA_DISPLAYMATRIX;
            let mut size = 0;
            let matrix = ffi::av_stream_get_side_data(from, kind, &mut size);
            if !matrix.is_null() {
                let copy = ffi::av_stream_new_side_data(to, kind, size);
                if copy.is_null() {
                    return Err(AvError::NO_MEMORY);
                }
                ptr::copy_nonoverlapping(matrix, copy, size);
            }
        }
        Ok(())
    }

    /// Writes the header; all streams must have been added.
    pub(crate) fn begin(&mut self, options: &[(&CStr, &CStr)]) -> Result<(), AvError> {
        let mut given = Options::default();
        options.iter().try_for_each(|(name, value)| given.set(name, value))?;
        // SAFETY: the context is as libav wants it, and was not begun before.
        AvError::check(unsafe { ffi::avformat_write_header(self.context, &mut given.0) })?;
        self.has_begun = true;
        Ok(())
    }

    /// Writes the next packet of stream `stream`, with these times in `timebase`.
    pub(crate) fn write(
        &mut self,
        stream: usize,
        packet: Packet,
        (pts, dts): (i64, i64),
        timebase: Timebase,
    ) -> Result<(), AvError> {
        let from = ffi::AVRational { num: timebase.num() as i32, den: timebase.den() as i32 };
        // SAFETY: the header is written and the packet, which stays ours alone, is of one of its streams.
        unsafe {
            let raw = packet.as_ptr();
            ((*raw).stream_index, (*raw).pts, (*raw).dts) = (stream as i32, pts, dts);
            let to = *(*self.context).streams.add(stream);
            ffi::av_packet_rescale_ts(raw, from, (*to).time_base);
            AvError::check(ffi::av_write_frame(self.context, raw))
        }
    }

    /// Returns true if the sink takes no more bytes.
    pub(crate) fn is_closed(&self) -> bool {
        // SAFETY: `sink` lives as long as self; its callback runs only inside libav calls that the owner of
        // this value makes, so it does not run concurrently.
        unsafe { (*self.sink).is_closed }
    }

    /// Writes the trailer.
    pub(crate) fn end(&mut self) -> Result<(), AvError> {
        self.has_begun = false;
        // SAFETY: the header is written, and this is the last call.
        AvError::check(unsafe { ffi::av_write_trailer(self.context) })
    }
}

impl Drop for Muxer {
    fn drop(&mut self) {
        // SAFETY: all were made in `new`, where the context or its stream may have stayed null, and are freed
        // once. The sink goes last: freeing may flush.
        unsafe {
            if !self.context.is_null() {
                let io = (*self.context).pb;
                ffi::avformat_free_context(self.context);
                free_stream(io);
            }
            drop(Box::from_raw(self.sink));
        }
    }
}

/// Passes bytes to the sink. `P` is a pointer to bytes, which later versions of libav declare constant.
unsafe extern "C" fn write<P: Bytes>(opaque: *mut c_void, bytes: P, size: c_int) -> c_int {
    let Ok(len) = usize::try_from(size) else { return AvError::IO.0 };
    // SAFETY: `opaque` is the `Sink` given to `avio_alloc_context`, alive and used by one thread at a
    // time; libav gives `size` readable bytes.
    let (sink, bytes) =
        unsafe { (&mut *opaque.cast::<Sink>(), std::slice::from_raw_parts(bytes.pointer(), len)) };
    // A panic must not cross C.
    match catch_unwind(AssertUnwindSafe(|| sink.out.write_all(bytes))) {
        Ok(Ok(())) => size,
        Ok(Err(_)) | Err(_) => {
            sink.is_closed = true;
            AvError::IO.0
        }
    }
}

trait Bytes {
    fn pointer(self) -> *const u8;
}

impl Bytes for *mut u8 {
    fn pointer(self) -> *const u8 {
        self
    }
}

impl Bytes for *const u8 {
    fn pointer(self) -> *const u8 {
        self
    }
}
