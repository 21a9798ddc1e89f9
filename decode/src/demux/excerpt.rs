//! Excerpt of a file, cut by copying packets: from the keyframe before its beginning, with audio.
//!
//! Only streams without times are decoded. The file is read twice from a position before the excerpt: once to
//! find the keyframe, once to copy. Pictures coded after the keyframe but presented before it are left out,
//! and the keyframe is presented at zero.

mod lane;
mod order;

use std::{ffi::CStr, io::Write, ops::Range};

use media::{Codec, Timestamp};

use super::Demuxer;
use crate::{
    DecodeError,
    decoder::open_software,
    ffi::{AvError, DamagePolicy, DecoderSetup, Muxer, Packet, failed},
    file::frame_ticks,
};
use lane::Lane;
use order::{Order, Timed};

/// Container of an excerpt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ExcerptContainer {
    /// Fragmented MP4; each fragment indexes its own packets.
    Mp4,
    /// Matroska, for codecs that MP4 does not hold.
    Matroska,
}

/// Facts known before the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExcerptStart {
    /// Container of the bytes.
    pub container: ExcerptContainer,
    /// Time of the first picture in the source.
    pub starts_at_ms: i64,
}

impl ExcerptContainer {
    fn name(self) -> &'static CStr {
        match self {
            ExcerptContainer::Mp4 => c"mp4",
            ExcerptContainer::Matroska => c"matroska",
        }
    }

    /// Returns muxer options. A fragment stays in memory until a keyframe or one of these bounds ends it.
    fn options(self) -> &'static [(&'static CStr, &'static CStr)] {
        match self {
            ExcerptContainer::Mp4 => &[
                (c"movflags", c"frag_keyframe+empty_moov+delay_moov+default_base_moof"),
                (c"frag_duration", c"2000000"),
                (c"frag_size", c"4194304"),
            ],
            ExcerptContainer::Matroska => &[],
        }
    }
}

/// First and last step back in search of a keyframe; each doubles. Then the search starts at zero.
const BACK_MS: i64 = 1000;
const BACK_MS_MAX: i64 = 600_000;
/// Largest distance in the file by which audio of a keyframe's time precedes the keyframe.
const LEAD_MS: i64 = 1000;
/// Largest distance in the file by which audio of the excerpt's end follows it.
const LAG_MS: i64 = 2000;
/// Most pictures presented after the end that earlier ones need; more than any codec reorders.
const AHEAD_MAX: usize = 64;

/// Keyframe of the file.
#[derive(Clone, Copy)]
struct Place {
    /// Presentation time in ticks, as far as it is known.
    shown: i64,
    /// True if the container gives the presentation time.
    is_timed: bool,
}

/// Pictures between a position in the file and the beginning of the excerpt.
#[derive(Default)]
struct Seen {
    /// Last keyframe at or before the beginning of the excerpt.
    before: Option<Place>,
    /// First keyframe after it.
    after: Option<Place>,
    /// End of the last picture, if the file ends before the excerpt begins.
    end: Option<i64>,
}

/// Counts the pictures of a stream without times.
struct Clock {
    /// Ticks per picture.
    step: i64,
    /// Most ticks from decoding to presentation.
    delay: i64,
    pictures: i64,
}

impl Clock {
    /// Returns the decode and presentation times of the picture, estimated if unknown.
    fn times(&mut self, packet: &Packet) -> (i64, i64) {
        let counted = self.pictures.saturating_mul(self.step);
        self.pictures = self.pictures.saturating_add(1);
        match (packet.dts(), packet.pts()) {
            (Some(decoded), shown) => {
                (decoded, shown.unwrap_or(decoded.saturating_add(self.delay)))
            }
            (None, shown) => {
                let shown = shown.unwrap_or(counted);
                (shown.saturating_sub(self.delay), shown)
            }
        }
    }
}

impl Demuxer {
    /// Writes the part of the file at `span` (milliseconds of media time) to the writer that `begin` returns.
    ///
    /// Starts at the last keyframe at or before the beginning of `span`, or else at the first of the file;
    /// ends with the file if that is shorter. Leaves out packets that cannot be copied.
    pub fn excerpt(
        mut self,
        span: Range<i64>,
        begin: impl FnOnce(ExcerptStart) -> Box<dyn Write + Send>,
    ) -> Result<(), DecodeError> {
        let (container, tracks) = self.tracks();
        self.format.keep_only(&tracks);
        let start = self.keyframe(&span)?;
        let starts_at_ms = self.ms(start.shown);
        let out = begin(ExcerptStart { container, starts_at_ms });
        let mut muxer = Muxer::new(container.name(), out).map_err(failed("avformat_alloc"))?;
        for &track in &tracks {
            muxer.add(&self.format, track).map_err(failed("avformat_new_stream"))?;
        }
        muxer.begin(container.options()).map_err(failed("avformat_write_header"))?;
        let zero = Timestamp::new(start.shown, self.stream.timebase);
        let lanes = tracks.iter().filter_map(|&track| Lane::new(&self.format, track, zero));
        let mut copy = Copy { lanes: lanes.collect(), muxer, written: 0, error: None };
        self.copy(&span, start, &mut copy)?;
        copy.end()
    }

    /// Returns the streams of the excerpt, video first, and a container that holds them.
    fn tracks(&self) -> (ExcerptContainer, Vec<usize>) {
        let is_sound = |&index: &usize| self.format.stream(index).is_some_and(|it| it.is_audio);
        let mut tracks = vec![self.stream_index];
        tracks.extend((0..self.format.stream_count()).filter(is_sound));
        let holds = |container: ExcerptContainer, index| {
            Muxer::holds(container.name(), &self.format, index)
        };
        if tracks.iter().all(|&index| holds(ExcerptContainer::Mp4, index)) {
            return (ExcerptContainer::Mp4, tracks);
        }
        tracks.retain(|&index| {
            index == self.stream_index || holds(ExcerptContainer::Matroska, index)
        });
        (ExcerptContainer::Matroska, tracks)
    }

    fn ms(&self, ticks: i64) -> i64 {
        Timestamp::new(ticks, self.stream.timebase).as_millis()
    }

    fn ticks(&self, ms: i64) -> i64 {
        Timestamp::from_millis(ms).ticks_of(self.stream.timebase)
    }

    fn clock(&self) -> Clock {
        let step = frame_ticks(&self.stream);
        Clock { step, delay: step.saturating_mul(self.parameters.reorder_depth()), pictures: 0 }
    }

    /// Returns the keyframe at which the excerpt begins.
    fn keyframe(&mut self, span: &Range<i64>) -> Result<Place, DecodeError> {
        let mut back_ms = 0;
        let start = loop {
            let is_first = back_ms > BACK_MS_MAX || self.is_untimed();
            let to = if is_first { None } else { Some(self.ticks(span.start - back_ms)) };
            self.go(to)?;
            let Seen { before, after, end } = self.look(span.start);
            if before.is_some() || is_first {
                if let Some(end_ms) = end.map(|end| self.ms(end))
                    && end_ms <= span.start
                {
                    return Err(DecodeError::PastEnd(end_ms));
                }
                break before.or(after).ok_or(DecodeError::NoKeyframe)?;
            }
            back_ms = (2 * back_ms).max(BACK_MS);
        };
        match self.ms(start.shown) {
            start_ms if start_ms >= span.end => Err(DecodeError::BeforeStart(start_ms)),
            _ => Ok(start),
        }
    }

    /// Returns true for raw streams, whose packets have no times.
    fn is_untimed(&self) -> bool {
        matches!(&*self.stream.container, "h264" | "hevc" | "obu" | "mjpeg" | "m4v")
    }

    /// Seeks to the keyframe before `to` ticks, or to the beginning.
    fn go(&mut self, to: Option<i64>) -> Result<(), DecodeError> {
        let gone = match to {
            Some(ticks) => self.format.seek(self.stream_index, ticks),
            None => self.format.rewind(self.stream_index),
        };
        gone.map_err(failed("av_seek_frame"))
    }

    /// Reads until pictures are decoded after `from_ms`.
    fn look(&mut self, from_ms: i64) -> Seen {
        let (mut seen, mut clock, mut end) = (Seen::default(), self.clock(), None);
        while let Ok(Some(packet)) = self.format.read() {
            if usize::try_from(packet.stream()) != Ok(self.stream_index) {
                continue;
            }
            let (decoded, shown) = clock.times(&packet);
            let latest = shown.max(decoded.saturating_add(clock.delay));
            end = end.max(Some(latest.saturating_add(packet.duration().max(1))));
            let is_before = self.ms(shown) <= from_ms;
            if packet.is_keyframe() {
                let place = Place { shown, is_timed: packet.pts().is_some() };
                match is_before {
                    true => seen.before = Some(place),
                    false => seen.after = seen.after.or(Some(place)),
                }
            }
            if self.ms(decoded) > from_ms {
                return seen;
            }
        }
        Seen { end, ..seen }
    }

    /// Copies the packets from `start` to the end of `span`.
    fn copy(
        &mut self,
        span: &Range<i64>,
        start: Place,
        copy: &mut Copy,
    ) -> Result<(), DecodeError> {
        let lead = self.ms(start.shown).saturating_sub(LEAD_MS);
        self.go(if self.is_untimed() { None } else { Some(self.ticks(lead)) })?;
        let (mut clock, mut order) = (self.clock(), None);
        // For each track: all its packets of the excerpt were read.
        let mut over = vec![false; copy.lanes.len()];
        while !copy.muxer.is_closed() && !over.iter().all(|over| *over) {
            let Ok(Some(packet)) = self.format.read() else { break };
            let Some(at) = copy.lanes.iter().position(|lane| lane.is_of(&packet)) else { continue };
            if at > 0 {
                over[at] = copy.sound(at, packet, span.end);
                continue;
            }
            let (decoded, shown) = clock.times(&packet);
            let decoded_ms = self.ms(decoded);
            if order.is_none() {
                if !packet.is_keyframe() || shown != start.shown {
                    continue;
                }
                order = Some(self.order(start)?);
            }
            over[0] |= decoded_ms >= span.end;
            if over[0] && decoded_ms >= span.end.saturating_add(LAG_MS) {
                break;
            }
            if let Some(order) = order.as_mut().filter(|_| !over[0]) {
                order.push(packet, decoded, shown);
                self.pictures(order, span.end, copy);
            }
        }
        if let Some(mut order) = order {
            order.end();
            self.pictures(&mut order, span.end, copy);
        }
        Ok(())
    }

    /// Writes the pictures with known times, up to the last one presented before the end.
    fn pictures(&self, order: &mut Order, end_ms: i64, copy: &mut Copy) {
        while let Some(Timed { packet, pts, dts }) = order.pop(|pts| self.ms(pts) < end_ms) {
            copy.write(0, packet, pts, dts);
        }
    }

    fn order(&self, start: Place) -> Result<Order, DecodeError> {
        let (depth, step) = (self.parameters.reorder_depth(), frame_ticks(&self.stream));
        let is_reordered =
            depth > 0 && matches!(self.stream.codec, Codec::H264 | Codec::H265 | Codec::Mpeg4);
        let decoder = (is_reordered && !start.is_timed).then(|| {
            let (codec, parameters) = (self.stream.codec, Some(&*self.parameters));
            let (on_damage, limits) = (DamagePolicy::Conceal, self.limits);
            open_software(DecoderSetup { codec, parameters, on_damage, limits }, 1)
        });
        Ok(Order::new(decoder.transpose()?, depth, step))
    }
}

/// Excerpt that is being written.
struct Copy {
    lanes: Vec<Lane>,
    muxer: Muxer,
    /// Number of packets written.
    written: u64,
    /// Error for which the last packet was left out.
    error: Option<AvError>,
}

impl Copy {
    /// Writes an audio packet; returns true if it is after the end.
    fn sound(&mut self, at: usize, packet: Packet, end_ms: i64) -> bool {
        let Some(time) = packet.pts().or(packet.dts()) else { return false };
        let time_ms = self.lanes[at].ms(time);
        if time >= self.lanes[at].zero && time_ms < end_ms {
            let dts = packet.dts().unwrap_or(time);
            self.write(at, packet, time, dts);
        }
        time_ms >= end_ms
    }

    fn write(&mut self, at: usize, packet: Packet, pts: i64, dts: i64) {
        let lane = &mut self.lanes[at];
        let times = lane.place(pts, dts);
        match self.muxer.write(at, packet, times, lane.timebase) {
            Ok(()) => self.written += 1,
            Err(error) => self.error = Some(error),
        }
    }

    fn end(mut self) -> Result<(), DecodeError> {
        if self.written == 0 {
            return Err(self.error.map_or(DecodeError::NoKeyframe, failed("av_write_frame")));
        }
        self.muxer.end().map_err(failed("av_write_trailer"))
    }
}
