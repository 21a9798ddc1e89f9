//! A part of a file, cut out by copying its packets: from the keyframe before it, with its sound.
//!
//! Nothing is decoded but what comes without times. The file is read twice from a place before the part:
//! once to find the keyframe, once to copy. What was shown before the keyframe though it comes after
//! it is left out, and the keyframe is shown at zero.

mod lane;
mod order;

use std::{ffi::CStr, io::Write, ops::Range};

use media::{Codec, Timestamp};

use super::Demuxer;
use crate::{
    DecodeError,
    decoder::open_software,
    ffi::{AvError, DamagePolicy, Muxer, Packet},
    file::frame_ticks,
};
use lane::Lane;
use order::{Order, Timed};

/// Target of an excerpt's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ExcerptContainer {
    /// In fragments, each with the index of its own packets.
    Mp4,
    /// For what MP4 does not hold.
    Matroska,
}

/// Facts that are known before the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExcerptStart {
    /// Container of the bytes.
    pub container: ExcerptContainer,
    /// Time in the source of the first picture.
    pub starts_at_ms: i64,
}

impl ExcerptContainer {
    fn name(self) -> &'static CStr {
        match self {
            ExcerptContainer::Mp4 => c"mp4",
            ExcerptContainer::Matroska => c"matroska",
        }
    }

    /// A fragment is kept in memory until it ends: with a keyframe, or at these bounds.
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

/// Steps back from the part in search of a keyframe: twice as far each time, then to the beginning.
const BACK_MS: i64 = 1000;
const BACK_MS_MAX: i64 = 600_000;
/// Sound of a keyframe's time lies in a file no further before it than so.
const LEAD_MS: i64 = 1000;
/// And sound of the part's end no further behind it.
const LAG_MS: i64 = 2000;
/// Pictures shown after the end of a part that some before it need; more than any codec reorders.
const AHEAD_MAX: usize = 64;

/// A keyframe of the file.
#[derive(Clone, Copy)]
struct Place {
    /// Show time, as far as it is known.
    shown: i64,
    /// The container says when it is shown.
    is_timed: bool,
}

/// Pictures between a place in the file and the part.
#[derive(Default)]
struct Seen {
    /// The last keyframe that is not after the part's beginning.
    before: Option<Place>,
    /// The first that is.
    after: Option<Place>,
    /// End of the last picture, where the file ends before the part.
    end: Option<i64>,
}

/// Counts the pictures of a stream without times.
struct Clock {
    /// Ticks of a picture.
    step: i64,
    /// Ticks from when a picture is decoded to when it is shown, at most.
    delay: i64,
    pictures: i64,
}

impl Clock {
    /// Decode and show times of the picture, as far as they are known.
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
    /// Writes the part of the file at `span`, in milliseconds of media time, to what `begin` gives.
    ///
    /// It begins with the last keyframe that is not after its beginning, or the first of all; it ends with
    /// the file where that is shorter. Packets that cannot be copied are left out.
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

    /// The streams that go into an excerpt, that of the pictures first, and what holds them.
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

    /// Pictures that are decoded before the first is shown.
    fn depth(&self) -> i64 {
        i64::try_from(self.parameters.reorder_depth()).unwrap_or(0)
    }

    fn clock(&self) -> Clock {
        let step = frame_ticks(&self.stream);
        Clock { step, delay: step.saturating_mul(self.depth()), pictures: 0 }
    }

    /// The keyframe with which the part begins.
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
                    return Err(DecodeError::PastEnd { end_ms });
                }
                break before.or(after).ok_or(DecodeError::NoKeyframe)?;
            }
            back_ms = (2 * back_ms).max(BACK_MS);
        };
        match self.ms(start.shown) {
            start_ms if start_ms >= span.end => Err(DecodeError::BeforeStart { start_ms }),
            _ => Ok(start),
        }
    }

    /// Packets come one after the other, with no times.
    fn is_untimed(&self) -> bool {
        matches!(&*self.stream.container, "h264" | "hevc" | "obu" | "mjpeg" | "m4v")
    }

    /// Goes on at the keyframe before these ticks, or at the beginning.
    fn go(&mut self, to: Option<i64>) -> Result<(), DecodeError> {
        let gone = match to {
            Some(ticks) => self.format.seek(self.stream_index, ticks),
            None => self.format.rewind(self.stream_index),
        };
        gone.map_err(failed("av_seek_frame"))
    }

    /// Reads on until pictures are decoded after `from_ms`.
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

    /// Copies what lies between `start` and the end of `span`.
    fn copy(
        &mut self,
        span: &Range<i64>,
        start: Place,
        copy: &mut Copy,
    ) -> Result<(), DecodeError> {
        let lead = self.ms(start.shown).saturating_sub(LEAD_MS);
        self.go(if self.is_untimed() { None } else { Some(self.ticks(lead)) })?;
        let (mut clock, mut order) = (self.clock(), None);
        // Of each lane: all that it has of the part was read.
        let mut over = vec![false; copy.lanes.len()];
        while !copy.is_closed() && !over.iter().all(|over| *over) {
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

    /// Writes the pictures whose times are known, as far as one is shown before the end.
    fn pictures(&self, order: &mut Order, end_ms: i64, copy: &mut Copy) {
        while let Some(Timed { packet, pts, dts }) = order.pop(|pts| self.ms(pts) < end_ms) {
            copy.write(0, packet, pts, dts);
        }
    }

    fn order(&self, start: Place) -> Result<Order, DecodeError> {
        let (depth, step) = (self.depth(), frame_ticks(&self.stream));
        let is_reordered =
            depth > 0 && matches!(self.stream.codec, Codec::H264 | Codec::H265 | Codec::Mpeg4);
        let decoder = (is_reordered && !start.is_timed).then(|| {
            let parameters = Some(&*self.parameters);
            open_software(self.stream.codec, parameters, 1, DamagePolicy::Conceal, self.limits)
        });
        Ok(Order::new(decoder.transpose()?, depth, step))
    }
}

/// An excerpt that is being written.
struct Copy {
    lanes: Vec<Lane>,
    muxer: Muxer,
    /// Packets written.
    written: u64,
    /// Reason for which the last packet was left out.
    error: Option<AvError>,
}

impl Copy {
    /// Nobody takes its bytes any more.
    fn is_closed(&self) -> bool {
        self.muxer.is_closed()
    }

    /// Writes a packet of sound; returns true where it is after the end.
    fn sound(&mut self, at: usize, packet: Packet, end_ms: i64) -> bool {
        let Some(time) = packet.pts().or(packet.dts()) else { return false };
        let time_ms = self.lanes[at].ms(time);
        if self.lanes[at].is_after_zero(time) && time_ms < end_ms {
            let dts = packet.dts().unwrap_or(time);
            self.write(at, packet, time, dts);
        }
        time_ms >= end_ms
    }

    fn write(&mut self, at: usize, mut packet: Packet, pts: i64, dts: i64) {
        let lane = &mut self.lanes[at];
        let (pts, dts) = lane.place(pts, dts);
        packet.set_times(pts, dts);
        match self.muxer.write(at, packet, lane.timebase()) {
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

fn failed(call: &'static str) -> impl FnOnce(AvError) -> DecodeError {
    move |error| DecodeError::Libav { call: call.to_owned(), detail: error.to_string() }
}
