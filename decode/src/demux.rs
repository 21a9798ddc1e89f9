//! Reads a container file into segments of its video stream, in one pass. Long because all steps share the
//! state.

mod earlier;
mod excerpt;
mod limits;
mod reread;

use std::{
    io::{self, Read, Seek},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use media::{Codec, Dimensions, FrameRate, PixelLayout, Rotation, Timebase, Timestamp, WallTime};

use crate::{
    DecodeError, Sampling,
    ffi::{FormatContext, Packet, Parameters, StreamParameters},
    random_access::RandomAccessDetector,
    sampling::SamplerState,
    segment::{CodedPacket, PacketSegment, Segmenter},
    timestamp_offset::TimestampRebaser,
};
pub use earlier::Earlier;
pub use excerpt::{ExcerptContainer, ExcerptStart};
pub use limits::DemuxLimits;
pub(crate) use limits::check_extent;
use reread::Reread;

/// Source of a container's bytes; no other source is ever opened.
pub trait ByteSource: Read + Seek + Send {}

impl<T: Read + Seek + Send> ByteSource for T {}

/// Facts about the video stream, from the container and its first pictures.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct StreamInfo {
    /// Codec of the stream.
    pub codec: Codec,
    /// libav's short name of the demuxer, such as `mov,mp4,m4a,3gp,3g2,mj2`.
    pub container: String,
    /// Size of the coded pictures, before any rotation.
    pub extent: Dimensions,
    /// Rotation that the container asks for.
    pub rotation: Rotation,
    /// Layout of the samples; `None` if the pixel format is unsupported.
    pub layout: Option<PixelLayout>,
    /// Average frame rate.
    pub source_rate: Option<FrameRate>,
    /// Duration declared by the stream or else by the container.
    pub duration: Option<Timestamp>,
    /// Unit of the presentation times.
    pub timebase: Timebase,
    /// libav's name of the pixel format.
    pub pixel_format: String,
    /// Number of frames that the container declares.
    pub declared_frames: Option<u64>,
    /// Wall-clock time of the start, declared by the container.
    pub wall_start: Option<WallTime>,
    /// True if the source is recorded while it is read and has no known end.
    pub is_endless: bool,
}

/// Demuxers that read media from the given input alone.
const CONTAINERS: [&str; 11] = [
    "mov,mp4,m4a,3gp,3g2,mj2",
    "matroska,webm",
    "mpegts",
    "avi",
    "flv",
    "h264",
    "hevc",
    "ivf",
    "obu",
    "mjpeg",
    "m4v",
];

/// Demuxers that would open resources named in the input.
const PLAYLISTS: [&str; 8] =
    ["hls", "hls,applehttp", "concat", "dash", "imf", "sdp", "rtsp", "image2"];

/// First bytes of playlists that libav does not recognise.
const PLAYLIST_MAGIC: [(&[u8], &str); 2] = [(b"ffconcat", "concat"), (b"[playlist]", "pls")];
/// First bytes of every HLS playlist (RFC 8216 4.3.1.1), possibly after a byte order mark.
const HLS_MAGIC: &[u8] = b"#EXTM3U";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Number of first bytes that [`is_playlist`] needs.
pub const PLAYLIST_HEAD_BYTES: usize = BYTE_ORDER_MARK.len() + HLS_MAGIC.len();

/// Returns true if `head` begins an HLS playlist.
pub fn is_playlist(head: &[u8]) -> bool {
    head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head).starts_with(HLS_MAGIC)
}

/// Returns the stream to decode and its index: the first video stream that is no cover picture.
fn first_video(
    format: &FormatContext,
    limits: DemuxLimits,
) -> Result<(usize, StreamParameters), DecodeError> {
    let streams = format.stream_count();
    if streams > limits.streams {
        return Err(DecodeError::TooManyStreams { count: streams, max: limits.streams });
    }
    (0..streams)
        .filter_map(|index| format.stream(index).map(|facts| (index, facts)))
        .find(|(_, facts)| facts.is_video && !facts.is_cover)
        .ok_or(DecodeError::NoVideoStream(streams))
}

fn check_container(name: &str) -> Result<(), DecodeError> {
    if CONTAINERS.contains(&name) {
        Ok(())
    } else if PLAYLISTS.contains(&name) {
        Err(DecodeError::NestedResource(name.to_owned()))
    } else {
        Err(DecodeError::UnsupportedContainer(Some(name.to_owned())))
    }
}

/// Largest shortfall that is no truncation: a last packet without a duration, or a rounded header.
const SHORTFALL_MS_MAX: i64 = 500;

/// Length of media probed at first in a live source, in microseconds.
const LIVE_LOOK_US: i64 = 500_000;

/// H.264 High 4:4:4 Predictive. libav decodes lossless blocks of old x264 versions specially, and learns the
/// version from the first packet only.
const H264_PROFILE_HIGH_444: i32 = 244;

fn can_start_anew(codec: Codec, parameters: &Parameters) -> bool {
    match codec {
        Codec::H264 => parameters.profile() != H264_PROFILE_HIGH_444,
        Codec::H265 | Codec::Vp8 | Codec::Vp9 | Codec::Av1 => true,
        Codec::Mpeg4 | Codec::Mjpeg => false,
    }
}

/// Opened container.
pub struct Demuxer {
    format: FormatContext,
    stream_index: usize,
    stream: StreamInfo,
    pub(crate) parameters: Arc<Parameters>,
    pub(crate) limits: DemuxLimits,
    inspector: RandomAccessDetector,
    segmenter: Segmenter<Packet>,
    /// Earliest and latest time of the packets read.
    seen: Option<(Timestamp, Timestamp)>,
    read_failed: bool,
    ended: bool,
    /// Arrival of the first bytes of a live input, which cannot be read again; `None` for any other.
    heard_at: Option<Instant>,
    /// True if the input arrives live and each picture must be delivered at once.
    pub(crate) flows: bool,
    /// Rebases the times of an input whose parts each restart them; see [`Demuxer::joined`].
    continuity: Option<TimestampRebaser>,
    /// Number of packets after which the first output must come; see [`Demuxer::in_hurry`].
    hurry: Option<usize>,
    /// Frames of an earlier connection that this one continues.
    earlier: Option<Earlier>,
    /// Ticks added to the times; `None` until the first packet with a time.
    moved_by: Option<i64>,
}

impl Demuxer {
    /// Recognises the container and probes its first packets.
    pub fn open(
        mut input: Box<dyn ByteSource>,
        limits: DemuxLimits,
    ) -> Result<Demuxer, DecodeError> {
        check_first_bytes(&mut input)?;
        let format = FormatContext::open(input, check_container, limits.streams, 0)?;
        Demuxer::of_format(format, limits)
    }

    /// As [`Demuxer::open`], for an input that can be read only once: damage is concealed at once, since
    /// nothing can be decoded again. libav would probe seconds of a source with audio; here it does so only
    /// if the first half second contains no picture.
    pub fn open_live(
        mut input: Box<dyn ByteSource>,
        limits: DemuxLimits,
    ) -> Result<Demuxer, DecodeError> {
        check_first_bytes(&mut input)?;
        let heard_at = Some(Instant::now());
        let (input, is_over) = Reread::of(input);
        let mut format = FormatContext::open(input, check_container, limits.streams, LIVE_LOOK_US)?;
        is_over.store(true, Relaxed);
        if !format.shows_pictures() {
            // A context cannot be probed again.
            let mut input = format.take_input();
            input.rewind().map_err(|error| DecodeError::Input(error.to_string()))?;
            format = FormatContext::open(input, check_container, limits.streams, 0)?;
        }
        Ok(Demuxer { heard_at, ..Demuxer::of_format(format, limits)? })
    }

    /// Opens live media over RTP: `description` is an SDP text about one video stream, and each read of
    /// `packets` returns one RTP or RTCP packet. Times begin at 0.
    pub fn open_rtp(
        description: &str,
        packets: Box<dyn Read + Send>,
        limits: DemuxLimits,
    ) -> Result<Demuxer, DecodeError> {
        let heard_at = Some(Instant::now());
        let format = FormatContext::open_rtp(description, packets, limits.streams)?;
        let opened = Demuxer::of_format(format, limits)?;
        Ok(Demuxer { heard_at, ..opened }.flowing())
    }

    /// Makes the times of an input continuous whose parts may each restart them; of one that is endless they
    /// begin at 0.
    #[must_use]
    pub fn joined(self) -> Demuxer {
        Demuxer { continuity: Some(TimestampRebaser::new(self.stream.timebase)), ..self }
    }

    /// Hands out a longer first GOP in pieces of `packets`, for early output; otherwise it is decoded as a
    /// whole on one thread.
    #[must_use]
    pub fn in_hurry(mut self, packets: usize) -> Demuxer {
        self.segmenter.hold_at_first(packets);
        Demuxer { hurry: Some(packets), ..self }
    }

    /// Stops cutting, for a decoder that cannot start over.
    #[must_use]
    pub(crate) fn uncut(mut self) -> Demuxer {
        self.segmenter.stop_cutting();
        self
    }

    fn of_format(mut format: FormatContext, limits: DemuxLimits) -> Result<Demuxer, DecodeError> {
        let (stream_index, facts) = first_video(&format, limits)?;
        let parameters = &facts.parameters;
        let codec = parameters
            .codec()
            .ok_or_else(|| DecodeError::UnsupportedCodec(parameters.codec_name()))?;
        let container = format.name.clone();
        let is_mov = container.starts_with("mov,");
        let damaged = |detail: &str| DecodeError::DamagedHeader {
            container: container.clone(),
            detail: detail.to_owned(),
        };
        let extent = parameters.extent().ok_or_else(|| damaged("the picture size is unknown"))?;
        check_extent(extent, limits)?;
        let timebase = facts.timebase.ok_or_else(|| damaged("the timebase is unknown"))?;
        let own_duration = facts.duration.map(|ticks| Timestamp::new(ticks, timebase));
        // If only the container declares a duration, any stream may be the longest.
        if own_duration.is_some() {
            format.keep_only(&[stream_index]);
        }
        let duration = own_duration.or_else(|| format.duration());
        let declared = if is_mov { duration } else { duration.max(length_by_count(&facts)) };
        let stream = StreamInfo {
            codec,
            extent,
            rotation: facts.rotation,
            layout: parameters.layout(),
            source_rate: facts.rate,
            duration: declared,
            timebase,
            pixel_format: parameters.pixel_format(),
            declared_frames: facts.frames,
            wall_start: format.wall_start(stream_index),
            container,
            is_endless: false,
        };
        let mut segmenter = Segmenter::new();
        if !can_start_anew(codec, parameters) {
            segmenter.stop_cutting();
        }
        Ok(Demuxer {
            inspector: RandomAccessDetector::new(codec, parameters.extradata()),
            format,
            stream_index,
            stream,
            parameters: Arc::new(facts.parameters),
            limits,
            segmenter,
            seen: None,
            read_failed: false,
            ended: false,
            heard_at: None,
            flows: false,
            continuity: None,
            hurry: None,
            earlier: None,
            moved_by: None,
        })
    }

    /// Returns the stream to decode: the first video stream that is no cover picture.
    pub fn stream(&self) -> &StreamInfo {
        &self.stream
    }

    /// Returns when the first bytes of a live input came, before it was probed; `None` if the input can be
    /// read again.
    pub fn heard_at(&self) -> Option<Instant> {
        self.heard_at
    }

    /// Returns the sampler position before the first picture.
    pub(crate) fn begin(&self, sampling: Sampling) -> SamplerState {
        self.earlier
            .as_ref()
            .map(|earlier| SamplerState::after(earlier, sampling))
            .unwrap_or_default()
    }

    /// Opens the same file again from its beginning.
    pub(crate) fn reopened(mut self) -> Result<Demuxer, DecodeError> {
        let mut input = self.format.take_input();
        input.rewind().map_err(|error| DecodeError::Input(error.to_string()))?;
        let mut demuxer = Demuxer::open(input, self.limits)?;
        if let Some(packets) = self.hurry {
            demuxer = demuxer.in_hurry(packets);
        }
        Ok(if self.continuity.is_some() { demuxer.joined() } else { demuxer })
    }

    /// Returns the next segment; `None` after the last.
    pub(crate) fn next_segment(&mut self) -> Option<PacketSegment<Packet>> {
        loop {
            if let Some(segment) = self.segmenter.pop() {
                return Some(segment);
            }
            if self.ended {
                return None;
            }
            match self.format.read() {
                Ok(Some(packet)) => self.take(packet),
                Ok(None) => self.end(self.format.input_failed()),
                Err(_) => self.end(true),
            }
        }
    }

    /// Returns the number of packets after the last segment handed out; `None` until the end has been read.
    pub(crate) fn packets_left(&self) -> Option<usize> {
        self.ended.then(|| self.segmenter.pending_packets())
    }

    /// Returns true if the packets read cover less than the declared duration, or reading failed.
    pub(crate) fn is_truncated(&self) -> bool {
        let Some(declared) = self.stream.duration else { return self.read_failed };
        let covered_ms = self.seen.map_or(0, |(first, last)| {
            // Some containers count from zero, others from the first packet.
            let last_ms = last.as_millis();
            last_ms.max(last_ms.saturating_sub(first.as_millis()))
        });
        self.read_failed || covered_ms.saturating_add(SHORTFALL_MS_MAX) < declared.as_millis()
    }

    fn take(&mut self, mut packet: Packet) {
        let is_ours = usize::try_from(packet.stream()) == Ok(self.stream_index);
        if is_ours && let Some(continuity) = &mut self.continuity {
            let offset = continuity.offset(packet.dts(), packet.duration());
            packet.shift(offset);
        }
        if is_ours {
            packet.shift(self.way_on(&packet));
        }
        self.note_times(&packet);
        if !is_ours {
            return;
        }
        self.segmenter.push(CodedPacket {
            pts: packet.pts(),
            is_discarded: packet.is_discarded(),
            is_repeat: false,
            reconfigures: packet.reconfigures(),
            coded: self.inspector.inspect(packet.data()),
            bytes: packet.data().len(),
            payload: packet,
        });
    }

    fn note_times(&mut self, packet: &Packet) {
        let Some(start) = packet.pts().or(packet.dts()) else { return };
        let Some(timebase) = self.format.timebase(packet.stream()) else { return };
        let at = |ticks| Timestamp::new(ticks, timebase);
        let (start, end) = (at(start), at(start.saturating_add(packet.duration().max(0))));
        let (first, last) = self.seen.unwrap_or((start, end));
        self.seen = Some((first.min(start), last.max(end)));
    }

    fn end(&mut self, failed: bool) {
        self.ended = true;
        self.read_failed = failed;
        self.segmenter.finish();
    }
}

/// Returns the duration of the declared number of frames, because AVI shortens its duration to the bytes
/// present. Unsuitable for MP4, which also counts frames outside its edit list.
fn length_by_count(facts: &StreamParameters) -> Option<Timestamp> {
    let (frames, rate) = (facts.frames?, facts.rate?);
    let ms = u128::from(frames) * u128::from(rate.den()) * 1000 / u128::from(rate.num());
    i64::try_from(ms).ok().map(Timestamp::from_millis)
}

fn check_first_bytes(input: &mut Box<dyn ByteSource>) -> Result<(), DecodeError> {
    let failed = |error: io::Error| DecodeError::Input(error.to_string());
    let mut head = Vec::new();
    input.by_ref().take(16).read_to_end(&mut head).map_err(failed)?;
    if head.is_empty() {
        return Err(DecodeError::Empty);
    }
    let known = PLAYLIST_MAGIC.iter().find(|(magic, _)| head.starts_with(magic));
    if let Some(name) = known.map(|(_, name)| *name).or(is_playlist(&head).then_some("m3u")) {
        return Err(DecodeError::NestedResource(name.to_owned()));
    }
    input.rewind().map_err(failed)
}
