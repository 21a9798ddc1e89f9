//! Raw pictures from a NUT stream.

use std::{
    io::{self, Read},
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use ffmpeg_next::ffi;

use super::{AvError, AvFrame, FormatContext, failed};
use crate::DecodeError;

/// Timebase of the returned times: milliseconds.
const TOLD: ffi::AVRational = ffi::AVRational { num: 1, den: 1000 };

/// Start code of the index, the last part that a muxer writes (NUT 2.4, `index_startcode`).
const INDEX: [u8; 8] = *b"NX\xdd\x67\x2f\x23\xe6\x4e";

/// Bytes that the demuxer may have read ahead when it hands out a picture.
const AHEAD_BYTES: usize = 256 << 10;
/// First bytes of a tail, in which the index begins: only headers come between the last picture and it.
const FRONT_BYTES: usize = 2 * AHEAD_BYTES;
/// Most bytes of a tail. A picture may have more, and so may an index, which takes some bytes per picture.
const TAIL_BYTES_MAX: usize = 4 << 20;

/// Bytes read since about the latest picture; of many, the first and the last.
#[derive(Clone, Default)]
struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(bytes);
        if tail.len() > TAIL_BYTES_MAX {
            let last = tail.len() - AHEAD_BYTES;
            tail.drain(FRONT_BYTES..last);
        }
    }

    /// Drops the bytes before a picture that was handed out.
    fn begin_anew(&self) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let excess = tail.len().saturating_sub(AHEAD_BYTES);
        tail.drain(..excess);
    }

    fn has_index(&self) -> bool {
        let tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.windows(INDEX.len()).any(|bytes| bytes == INDEX)
    }
}

struct Tailed {
    bytes: Box<dyn Read + Send>,
    tail: Tail,
}

impl Read for Tailed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.bytes.read(out)?;
        self.tail.push(&out[..len]);
        Ok(len)
    }
}

/// Alignment of the rows of raw pictures in bytes.
const ALIGNMENT: i32 = 1;

/// Reads raw pictures with their times.
pub(crate) struct NutFrames {
    format: FormatContext,
    /// Raw video decoder that turns the bytes of a packet into a picture.
    shaper: NonNull<ffi::AVCodecContext>,
    timebase: ffi::AVRational,
    tail: Tail,
}

// SAFETY: owned by this value and used by one thread at a time.
unsafe impl Send for NutFrames {}

impl NutFrames {
    pub(crate) fn open(output: Box<dyn Read + Send>) -> Result<NutFrames, DecodeError> {
        let tail = Tail::default();
        let format =
            FormatContext::open_nut(Box::new(Tailed { bytes: output, tail: tail.clone() }))?;
        let facts = format.stream(0).ok_or(DecodeError::NoVideoStream(0))?;
        // SAFETY: a static descriptor, or null, which is an error of the next call.
        let decoder = unsafe { ffi::avcodec_find_decoder(ffi::AVCodecID::AV_CODEC_ID_RAWVIDEO) };
        // SAFETY: as above.
        let raw = NonNull::new(unsafe { ffi::avcodec_alloc_context3(decoder) })
            .ok_or(AvError::NO_MEMORY)
            .map_err(failed("avcodec_alloc_context3"))?;
        let timebase = facts.parameters.timebase;
        let pictures = NutFrames { format, shaper: raw, timebase, tail };
        // SAFETY: both are valid and the context is not open yet.
        unsafe {
            let raw = raw.as_ptr();
            AvError::check(ffi::avcodec_parameters_to_context(raw, facts.parameters.as_ptr()))
                .map_err(failed("avcodec_parameters_to_context"))?;
            AvError::check(ffi::avcodec_open2(raw, decoder, std::ptr::null_mut()))
                .map_err(failed("avcodec_open2"))?;
        }
        Ok(pictures)
    }

    /// Returns the next picture, with its time in milliseconds.
    pub(crate) fn next(&mut self) -> Result<Option<AvFrame>, AvError> {
        let Some(packet) = self.format.read()? else { return Ok(None) };
        self.tail.begin_anew();
        let frame = AvFrame::empty()?;
        // SAFETY: all are valid; a raw picture comes out at once.
        unsafe {
            // The stream's header gives one picture size: a packet of another size has another format.
            let shape = self.shaper.as_ref();
            let size =
                ffi::av_image_get_buffer_size(shape.pix_fmt, shape.width, shape.height, ALIGNMENT);
            if (*packet.as_ptr()).size != size {
                return Err(AvError::INVALID);
            }
            AvError::check(ffi::avcodec_send_packet(self.shaper.as_ptr(), packet.as_ptr()))?;
            AvError::check(ffi::avcodec_receive_frame(self.shaper.as_ptr(), frame.as_ptr()))?;
            let raw = frame.as_ptr();
            if (*raw).pts != ffi::AV_NOPTS_VALUE {
                (*raw).pts = ffi::av_rescale_q((*raw).pts, self.timebase, TOLD);
            }
        }
        Ok(Some(frame))
    }

    /// Returns true if the stream has an index, which a program that dies does not write.
    pub(crate) fn ended_whole(&self) -> bool {
        self.tail.has_index()
    }
}

impl Drop for NutFrames {
    fn drop(&mut self) {
        let mut raw = self.shaper.as_ptr();
        // SAFETY: made by `avcodec_alloc_context3`, freed once.
        unsafe { ffi::avcodec_free_context(&mut raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_of_any_length_is_found_about_the_end_of_the_last_picture() {
        let zeros = |count| vec![0; count];
        let long = || zeros(3 * TAIL_BYTES_MAX);
        // Name, bytes read when the last picture is handed out, bytes read after it, expected.
        let rows = [
            ("none", long(), long(), false),
            ("short", long(), [&INDEX[..], &[0; 9]].concat(), true),
            ("long, after headers", long(), [zeros(9999), INDEX.to_vec(), long()].concat(), true),
            ("read ahead", [long(), INDEX.to_vec()].concat(), long(), true),
            ("inside a picture", [&INDEX[..], &long()].concat(), zeros(9), false),
        ];
        for (name, before, after, expected) in rows {
            let tail = Tail::default();
            before.chunks(64 << 10).for_each(|read| tail.push(read));
            tail.begin_anew();
            after.chunks(64 << 10).for_each(|read| tail.push(read));
            assert_eq!(tail.has_index(), expected, "{name}");
        }
    }
}
