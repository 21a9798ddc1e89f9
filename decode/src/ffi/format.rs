//! Opened container. Long because every libav call on it is here, each with its safety reason.

use std::{
    ffi::{CStr, c_char, c_int},
    io::{Cursor, Read},
    ptr,
};

use ffmpeg_next::ffi;
use media::{FrameRate, Rotation, Timebase, Timestamp, WallTime};

use super::{
    AvError, Packet, Parameters, failed,
    io::{AvioContext, AvioOpaque, Unseekable},
    packet::known,
};
use crate::{ByteSource, DecodeError};

/// Owns an `AVFormatContext` and the byte stream it reads.
pub(crate) struct FormatContext {
    context: *mut ffi::AVFormatContext,
    /// libav's name of the container.
    pub(crate) name: String,
    io: AvioContext,
}

// SAFETY: owned by this value and used by one thread at a time; its input is `Send`.
unsafe impl Send for FormatContext {}

/// Seek target before every stream's first packet; demuxers calculate with it, so it is not the least value.
const BEGINNING: i64 = -(1 << 40);

/// Decoders that may read the input while a container is probed: those that decode later.
const PROBING_DECODERS: &CStr = c"h264,hevc,vp8,vp9,libdav1d,mpeg4,mjpeg";

/// Facts about one stream from its container.
pub(crate) struct StreamParameters {
    pub(crate) is_video: bool,
    /// True for audio with a known sample rate.
    pub(crate) is_audio: bool,
    /// True for a still image beside the media, such as an album cover.
    pub(crate) is_cover: bool,
    pub(crate) parameters: Parameters,
    pub(crate) timebase: Option<Timebase>,
    pub(crate) rate: Option<FrameRate>,
    pub(crate) duration: Option<i64>,
    pub(crate) frames: Option<u64>,
    pub(crate) rotation: Rotation,
}

impl FormatContext {
    /// Opens a container. `allowed` accepts its name before more than its first bytes are parsed; a container
    /// of more than `streams_max` streams is refused before any decoder reads it. At most `longest_us` of
    /// media is probed; 0 means libav's own limit.
    pub(crate) fn open(
        input: Box<dyn ByteSource>,
        allowed: impl FnOnce(&str) -> Result<(), DecodeError>,
        streams_max: usize,
        longest_us: i64,
    ) -> Result<FormatContext, DecodeError> {
        let mut format = FormatContext::recognise(input, allowed)?;
        // SAFETY: a plain field of an open context.
        unsafe { (*format.context).max_analyze_duration = longest_us };
        format.look_at_streams(streams_max)?;
        Ok(format)
    }

    fn recognise(
        input: Box<dyn ByteSource>,
        allowed: impl FnOnce(&str) -> Result<(), DecodeError>,
    ) -> Result<FormatContext, DecodeError> {
        super::silence_log();
        let io = AvioContext::new(input, false).map_err(no_memory)?;
        let mut kind: *const ffi::AVInputFormat = ptr::null();
        // SAFETY: the byte stream is valid, the name is a C string, 0 means libav's own limits.
        let probed = unsafe {
            ffi::av_probe_input_buffer2(io.context, &mut kind, c"".as_ptr(), ptr::null_mut(), 0, 0)
        };
        if probed < 0 || kind.is_null() {
            return Err(DecodeError::UnsupportedContainer(None));
        }
        // SAFETY: a static descriptor whose name is a C string.
        let name = unsafe { CStr::from_ptr((*kind).name) }.to_string_lossy().into_owned();
        allowed(&name)?;
        let mut format = FormatContext::prepare(name, io)?;
        format.open_input(kind, &mut Options::default())?;
        Ok(format)
    }

    /// Opens the media that `description`, an SDP text, describes; every read of `packets` returns one RTP or
    /// RTCP packet. No address in the description is used.
    pub(crate) fn open_rtp(
        description: &str,
        packets: Box<dyn Read + Send>,
        streams_max: usize,
    ) -> Result<FormatContext, DecodeError> {
        super::silence_log();
        let text = Box::new(Cursor::new(description.as_bytes().to_vec()));
        let text = AvioContext::new(text, false).map_err(no_memory)?;
        let io = AvioContext::new(Box::new(Unseekable(packets)), true).map_err(no_memory)?;
        let mut format = FormatContext::prepare("rtsp".to_owned(), io)?;
        let mut options = Options::default();
        // Packets arrive in order over TCP: reordering would only add delay.
        options.set(c"sdp_flags", c"custom_io").map_err(no_memory)?;
        options.set(c"reorder_queue_size", c"0").map_err(no_memory)?;
        // SAFETY: a field to be set before opening, and a C string. The description is read first and the
        // packets after it, which is how libav's custom_io works.
        let kind = unsafe {
            (*format.context).pb = text.context;
            ffi::av_find_input_format(c"sdp".as_ptr())
        };
        format.open_input(kind, &mut options)?;
        // SAFETY: the context is open, and the stream of packets lives as long as it does.
        unsafe { (*format.context).pb = format.io.context };
        format.look_at_streams(streams_max)?;
        Ok(format)
    }

    /// Opens a NUT stream of raw pictures.
    pub(crate) fn open_nut(output: Box<dyn Read + Send>) -> Result<FormatContext, DecodeError> {
        super::silence_log();
        let io = AvioContext::new(Box::new(Unseekable(output)), false).map_err(no_memory)?;
        let mut format = FormatContext::prepare("nut".to_owned(), io)?;
        // SAFETY: the name is a C string.
        let kind = unsafe { ffi::av_find_input_format(c"nut".as_ptr()) };
        format.open_input(kind, &mut Options::default())?;
        Ok(format)
    }

    /// Allocates a context that reads `io`, opens nothing else and probes with few decoders only.
    fn prepare(name: String, io: AvioContext) -> Result<FormatContext, DecodeError> {
        // SAFETY: plain allocation.
        let context = unsafe { ffi::avformat_alloc_context() };
        if context.is_null() {
            return Err(no_memory(AvError::NO_MEMORY));
        }
        let format = FormatContext { context, name, io };
        // SAFETY: fields to be set before opening. `opaque` points to the source that lives as
        // long as `format.io`, which is dropped after the context.
        unsafe {
            (*context).pb = format.io.context;
            (*context).opaque = format.io.source.cast();
            (*context).io_open = Some(refuse);
            // The byte stream is freed by us, the list with the context.
            (*context).flags |= ffi::AVFMT_FLAG_CUSTOM_IO;
            (*context).codec_whitelist = ffi::av_strdup(PROBING_DECODERS.as_ptr());
            if (*context).codec_whitelist.is_null() {
                return Err(no_memory(AvError::NO_MEMORY));
            }
        }
        Ok(format)
    }

    /// Opens the prepared context as a container of `kind`, a static descriptor or null.
    fn open_input(
        &mut self,
        kind: *const ffi::AVInputFormat,
        options: &mut Options,
    ) -> Result<(), DecodeError> {
        let (context, options) = (&mut self.context, &mut options.0);
        // SAFETY: as prepared; on failure libav frees the context and clears the pointer.
        let opened = unsafe { ffi::avformat_open_input(context, c"".as_ptr(), kind, options) };
        AvError::check(opened).map_err(|error| self.header_error(error))
    }

    /// Probes the streams; to be called once, as libav frees what a second call would read.
    fn look_at_streams(&mut self, streams_max: usize) -> Result<(), DecodeError> {
        let count = self.stream_count();
        if count > streams_max {
            return Err(DecodeError::TooManyStreams { count, max: streams_max });
        }
        // SAFETY: the context is open; no options are given.
        let probed = unsafe { ffi::avformat_find_stream_info(self.context, ptr::null_mut()) };
        AvError::check(probed).map_err(|error| self.header_error(error))
    }

    /// Takes the input; nothing can be read afterwards.
    pub(crate) fn take_input(&mut self) -> Box<dyn ByteSource> {
        self.io.take_input()
    }

    fn header_error(&self, error: AvError) -> DecodeError {
        if self.io.refused() {
            return DecodeError::NestedResource(self.name.clone());
        }
        DecodeError::DamagedHeader { container: self.name.clone(), detail: error.to_string() }
    }

    pub(crate) fn stream_count(&self) -> usize {
        // SAFETY: the context is open.
        unsafe { (*self.context).nb_streams as usize }
    }

    pub(super) fn stream_at(&self, index: usize) -> Option<*mut ffi::AVStream> {
        // SAFETY: the context is open and holds `nb_streams` stream pointers.
        (index < self.stream_count()).then(|| unsafe { *(*self.context).streams.add(index) })
    }

    /// Returns the container's facts about stream `index`.
    pub(crate) fn stream(&self, index: usize) -> Option<StreamParameters> {
        let raw = self.stream_at(index)?;
        // SAFETY: streams and their parameters live as long as the context; all reads are of
        // plain fields, the matrix is checked for its nine integers.
        unsafe {
            let parameters = Parameters::copy_of((*raw).codecpar, (*raw).time_base).ok()?;
            let mut size = 0;
            let matrix = ffi::av_stream_get_side_data(
                raw,
                ffi::AVPacketSideDataType::AV_PKT_DATA_DISPLAYMATRIX,
                &mut size,
            );
            let rotation = if matrix.is_null() || size < 9 * size_of::<i32>() {
                Rotation::None
            } else {
                // libav counts counterclockwise.
                Rotation::from_degrees(-ffi::av_display_rotation_get(matrix.cast()))
            };
            Some(StreamParameters {
                is_video: (*(*raw).codecpar).codec_type == ffi::AVMediaType::AVMEDIA_TYPE_VIDEO,
                is_audio: parameters.is_audio(),
                is_cover: (*raw).disposition & ffi::AV_DISPOSITION_ATTACHED_PIC != 0,
                parameters,
                timebase: ratio((*raw).time_base).and_then(|(num, den)| Timebase::new(num, den)),
                rate: ratio((*raw).avg_frame_rate)
                    .or_else(|| ratio((*raw).r_frame_rate))
                    .and_then(|(num, den)| FrameRate::new(num, den)),
                duration: known((*raw).duration).filter(|&duration| duration > 0),
                frames: u64::try_from((*raw).nb_frames).ok().filter(|&frames| frames > 0),
                rotation,
            })
        }
    }

    /// Returns the recording time of the container, or else of its stream `index`.
    pub(crate) fn wall_start(&self, index: usize) -> Option<WallTime> {
        let raw = self.stream_at(index)?;
        // SAFETY: the context is open; the lists of its metadata live as long as it does, and their values
        // are C strings that are not changed meanwhile.
        let mut said = unsafe {
            [(*self.context).metadata, (*raw).metadata].map(|list| {
                let entry = ffi::av_dict_get(list, c"creation_time".as_ptr(), ptr::null(), 0);
                (!entry.is_null()).then(|| CStr::from_ptr((*entry).value).to_string_lossy())
            })
        }
        .into_iter();
        said.find_map(|text| WallTime::from_rfc3339(&text?))
    }

    pub(crate) fn shows_pictures(&self) -> bool {
        let mut streams = (0..self.stream_count()).filter_map(|index| self.stream(index));
        streams.any(|facts| facts.is_video && facts.parameters.extent().is_some())
    }

    /// Returns the timebase of the packets of stream `index`.
    pub(crate) fn timebase(&self, index: i32) -> Option<Timebase> {
        let raw = self.stream_at(usize::try_from(index).ok()?)?;
        // SAFETY: a plain field of a live stream.
        ratio(unsafe { (*raw).time_base }).and_then(|(num, den)| Timebase::new(num, den))
    }

    /// Returns the container's duration; `None` if libav only estimates it from the bit rate.
    pub(crate) fn duration(&self) -> Option<Timestamp> {
        let timebase = Timebase::new(1, ffi::AV_TIME_BASE as u32)?;
        // SAFETY: the context is open.
        let (duration, estimated) = unsafe {
            let guess = ffi::AVDurationEstimationMethod::AVFMT_DURATION_FROM_BITRATE;
            ((*self.context).duration, (*self.context).duration_estimation_method == guess)
        };
        let duration = known(duration).filter(|&duration| duration > 0 && !estimated)?;
        Some(Timestamp::new(duration, timebase))
    }

    /// Discards the packets of all streams except `kept`.
    pub(crate) fn keep_only(&mut self, kept: &[usize]) {
        for index in 0..self.stream_count() {
            let discard = match kept.contains(&index) {
                true => ffi::AVDiscard::AVDISCARD_DEFAULT,
                false => ffi::AVDiscard::AVDISCARD_ALL,
            };
            if let Some(raw) = self.stream_at(index) {
                // SAFETY: a plain field of a live stream.
                unsafe { (*raw).discard = discard };
            }
        }
    }

    /// Seeks to the last position at or before `ticks` of stream `index` at which decoding can start, by the
    /// container's index; to the beginning if the container has none.
    pub(crate) fn seek(&mut self, index: usize, ticks: i64) -> Result<(), AvError> {
        self.seek_as(index as c_int, ticks, ffi::AVSEEK_FLAG_BACKWARD)
            .or_else(|_| self.rewind(index))
    }

    /// Seeks to the first packet of stream `index`.
    pub(crate) fn rewind(&mut self, index: usize) -> Result<(), AvError> {
        self.seek_as(index as c_int, BEGINNING, 0)
            .or_else(|_| self.seek_as(-1, 0, ffi::AVSEEK_FLAG_BYTE))
    }

    fn seek_as(&mut self, index: c_int, to: i64, flags: c_int) -> Result<(), AvError> {
        // SAFETY: the context is open.
        AvError::check(unsafe { ffi::av_seek_frame(self.context, index, to, flags) })
    }

    /// Returns the next packet of a kept stream; `None` at the end.
    pub(crate) fn read(&mut self) -> Result<Option<Packet>, AvError> {
        let packet = Packet::empty()?;
        // SAFETY: the context is open and the packet is empty.
        match AvError(unsafe { ffi::av_read_frame(self.context, packet.as_ptr()) }) {
            AvError(code) if code >= 0 => Ok(Some(packet)),
            AvError::END => Ok(None),
            error => Err(error),
        }
    }

    /// Returns true if reading the input failed, or the container referred to another resource.
    pub(crate) fn input_failed(&self) -> bool {
        self.io.failed() || self.io.refused()
    }
}

impl Drop for FormatContext {
    fn drop(&mut self) {
        // SAFETY: closes an open context or ignores null; leaves our byte stream to `AvioContext`.
        unsafe { ffi::avformat_close_input(&mut self.context) };
    }
}

/// Options for a demuxer or a muxer.
#[derive(Default)]
pub(super) struct Options(pub(super) *mut ffi::AVDictionary);

impl Options {
    pub(super) fn set(&mut self, name: &CStr, value: &CStr) -> Result<(), AvError> {
        // SAFETY: the list is null or ours; libav copies both texts.
        let set = unsafe { ffi::av_dict_set(&mut self.0, name.as_ptr(), value.as_ptr(), 0) };
        AvError::check(set)
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: null or a list that is freed once.
        unsafe { ffi::av_dict_free(&mut self.0) };
    }
}

fn no_memory(error: AvError) -> DecodeError {
    failed("avformat_alloc_context")(error)
}

fn ratio(rational: ffi::AVRational) -> Option<(u32, u32)> {
    let (num, den) = (u32::try_from(rational.num).ok()?, u32::try_from(rational.den).ok()?);
    (num > 0 && den > 0).then_some((num, den))
}

/// Refuses every request of a demuxer to open another resource.
unsafe extern "C" fn refuse(
    context: *mut ffi::AVFormatContext,
    io: *mut *mut ffi::AVIOContext,
    _url: *const c_char,
    _flags: c_int,
    _options: *mut *mut ffi::AVDictionary,
) -> c_int {
    // SAFETY: libav passes its own context, whose `opaque` is our source, and a place to clear.
    unsafe {
        *io = ptr::null_mut();
        if let Some(source) = (*context).opaque.cast::<AvioOpaque>().as_mut() {
            source.refused = true;
        }
    }
    AvError::REFUSED.0
}
