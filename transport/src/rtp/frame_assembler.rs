//! Assembler of payloads in order to complete units; only decodable ones are returned.
//!
//! A unit ends with the marker or where the timestamp changes. The marker is trusted once it has proven
//! right; until then a unit waits for the packet after it, as long as the path may delay one. Senders without
//! the marker cost a delay of one frame, and their last picture is never known to be complete.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use media::{AccessUnit, Codec, Timebase, Timestamp};

use super::{
    ReceivedUnit, UNIT_BYTES_MAX,
    clock::RtpClock,
    depacketize::{Depacketizer, Malformed, PayloadPart, UnitKind},
    jitter_buffer::{BYTES_MAX, HELD_MAX},
};

/// Most units waiting to be polled: as many as a filled gap can release.
const READY_MAX: usize = HELD_MAX;
/// Most bytes of waiting units.
const READY_BYTES_MAX: usize = BYTES_MAX + UNIT_BYTES_MAX;

/// Next packet in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) timestamp: u32,
    pub(super) marker: bool,
    pub(super) payload: &'a [u8],
    pub(super) at: Instant,
}

/// Units in a row with the marker on the last packet only, after which the marker is checked again.
const CLEAN_MAX: u32 = 30;

/// Trust in the marker as the end of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    Unproven,
    Trusted,
    /// The marker was set within a unit; `clean` counts the correctly marked units since.
    Ignored {
        clean: u32,
    },
}

#[derive(Debug)]
struct Open {
    timestamp: u32,
    last_at: Instant,
    packets: u32,
    /// Number of packets with the marker, and whether the last packet is one.
    marked: u32,
    ends_marked: bool,
    /// True if the beginning is missing or a part was rejected.
    is_skipped: bool,
    /// True if decoding may start with the unit.
    may_start: bool,
    /// Arrival of the packet with the marker; `None` before it.
    ended_at: Option<Instant>,
}

impl Marker {
    /// Returns the trust after a unit that was ended by another one.
    fn after(self, unit: &Open) -> Marker {
        let is_clean = unit.ends_marked && unit.marked == 1;
        match self {
            Marker::Unproven if unit.ended_at.is_some() && unit.packets > 1 => Marker::Trusted,
            Marker::Ignored { clean: CLEAN_MAX } if is_clean => Marker::Unproven,
            Marker::Ignored { clean } if is_clean => Marker::Ignored { clean: clean + 1 },
            Marker::Ignored { .. } => Marker::Ignored { clean: 0 },
            known => known,
        }
    }
}

/// Assembler of the units of one source.
pub(super) struct FrameAssembler {
    codec: Codec,
    depacketizer: Box<dyn Depacketizer>,
    pub(super) clock: RtpClock,
    open: Option<Open>,
    /// True if the packet before the next one has arrived.
    is_contiguous: bool,
    /// True if a start was returned and nothing was lost since.
    pub(super) is_started: bool,
    /// True if pictures shown before the last start refer to pictures that were never returned.
    skips_leading: bool,
    marker: Marker,
    /// Timestamp of the previous unit, if its marker ended it.
    ended: Option<u32>,
    ready: VecDeque<ReceivedUnit>,
    ready_bytes: usize,
}

impl FrameAssembler {
    pub(super) fn new(codec: Codec, depacketizer: Box<dyn Depacketizer>) -> FrameAssembler {
        FrameAssembler {
            codec,
            depacketizer,
            clock: RtpClock::default(),
            open: None,
            is_contiguous: false,
            is_started: false,
            skips_leading: false,
            marker: Marker::Unproven,
            ended: None,
            ready: VecDeque::new(),
            ready_bytes: 0,
        }
    }

    /// Returns true if no start was returned since the last loss and none is being gathered.
    pub(super) fn has_nothing(&self) -> bool {
        !self.is_started && self.open.as_ref().is_none_or(|open| !open.may_start)
    }

    /// Returns true if a unit in which decoding may start begins with this payload.
    pub(super) fn begins_start(&self, payload: &[u8]) -> bool {
        self.depacketizer.starts_keyframe(payload)
    }

    /// Returns the end of the open unit's wait, on a path that delays packets by up to `hold`.
    pub(super) fn held_until(&self, hold: Duration) -> Option<Instant> {
        self.open.as_ref()?.ended_at.map(|at| at + hold)
    }

    /// Returns the next complete, decodable unit.
    pub(super) fn pop(&mut self) -> Option<ReceivedUnit> {
        let unit = self.ready.pop_front()?;
        self.ready_bytes -= unit.access_unit.data.len();
        Some(unit)
    }

    /// Records that packets before the next one are lost.
    pub(super) fn gap(&mut self) {
        self.depacketizer.reset();
        self.open = None;
        self.ended = None;
        self.is_contiguous = false;
        self.is_started = false;
    }

    /// Discards the open unit; the next ones are of another codec.
    pub(super) fn codec_changed(&mut self, codec: Codec, depacketizer: Box<dyn Depacketizer>) {
        self.gap();
        (self.codec, self.depacketizer, self.marker) = (codec, depacketizer, Marker::Unproven);
    }

    /// Takes the next packet, after the previous one or a gap.
    pub(super) fn push(&mut self, part: &Part<'_>) {
        // A packet of padding has a sequence number but no payload.
        if part.payload.is_empty() {
            return;
        }
        self.end_before(part);
        if self.open.is_none() {
            self.begin(part);
        }
        self.is_contiguous = true;
        let ignores_marker = self.ignores_marker();
        let Some(open) = &mut self.open else { return };
        open.last_at = open.last_at.max(part.at);
        open.packets = open.packets.saturating_add(1);
        open.marked = open.marked.saturating_add(u32::from(part.marker));
        open.ends_marked = part.marker;
        if !open.is_skipped && self.depacketizer.push(part.payload).is_err() {
            (open.is_skipped, self.is_started) = (true, false);
        }
        let is_picture = open.is_skipped || self.depacketizer.has_picture();
        if part.marker && is_picture && !ignores_marker {
            open.ended_at = Some(part.at);
            if self.marker == Marker::Trusted {
                self.close();
            }
        }
    }

    /// Closes the open unit if it has waited long enough for another packet.
    pub(super) fn release(&mut self, hold: Duration, now: Instant) {
        if self.held_until(hold).is_some_and(|until| until <= now) {
            self.close();
        }
    }

    /// Closes the open unit at the end of the source if its marker has arrived.
    pub(super) fn end(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.ended_at.is_some()) {
            self.close();
        }
    }

    /// Closes the open unit if this packet belongs to another one.
    fn end_before(&mut self, part: &Part<'_>) {
        let Some(open) = &mut self.open else {
            let is_rest = self.ended == Some(part.timestamp);
            let says_more = self.depacketizer.part(part.payload) == PayloadPart::Some;
            if is_rest && says_more && !self.depacketizer.begins_unit(part.payload) {
                // The unit that was returned was incomplete.
                self.marker = Marker::Ignored { clean: 0 };
                self.is_started = false;
            }
            return;
        };
        let is_another = open.timestamp != part.timestamp
            || self.depacketizer.begins_another(part.payload)
            || open.ended_at.is_some()
                && self.depacketizer.part(part.payload) == PayloadPart::Beginning;
        if is_another {
            self.marker = self.marker.after(open);
            self.close();
        } else if open.ended_at.is_some()
            && self.depacketizer.part(part.payload) == PayloadPart::Some
        {
            open.ended_at = None;
            self.marker = Marker::Ignored { clean: 0 };
        }
    }

    fn ignores_marker(&self) -> bool {
        matches!(self.marker, Marker::Ignored { .. })
    }

    fn begin(&mut self, part: &Part<'_>) {
        let is_rest = self.ended == Some(part.timestamp) && self.ignores_marker();
        let is_clean =
            self.is_contiguous && !is_rest || self.depacketizer.begins_unit(part.payload);
        self.depacketizer.reset();
        self.ended = None;
        self.open = Some(Open {
            timestamp: part.timestamp,
            last_at: part.at,
            packets: 0,
            marked: 0,
            ends_marked: false,
            is_skipped: !is_clean,
            may_start: self.depacketizer.starts_keyframe(part.payload),
            ended_at: None,
        });
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.ended = open.ended_at.map(|_| open.timestamp);
        if open.is_skipped {
            return;
        }
        let picture = match self.depacketizer.finish() {
            Ok(Some(picture)) => picture,
            Ok(None) => return,
            Err(Malformed) => {
                self.is_started = false;
                return;
            }
        };
        let keyframe = match picture.role {
            UnitKind::Start { breaks_link } => {
                self.skips_leading = !self.is_started || breaks_link;
                self.is_started = true;
                true
            }
            kind if !self.is_started || kind == UnitKind::Leading && self.skips_leading => return,
            UnitKind::Leading | UnitKind::Other => false,
        };
        let (bytes, last_packet_at) = (picture.data.len(), open.last_at);
        if self.ready.len() >= READY_MAX || self.ready_bytes + bytes > READY_BYTES_MAX {
            // Units that refer to this one are undecodable.
            self.is_started = false;
            return;
        }
        let ticks = self.clock.ticks(open.timestamp, last_packet_at);
        let pts = Timestamp::new(ticks, Timebase::RTP_VIDEO);
        let access_unit = AccessUnit { codec: self.codec, pts, keyframe, data: picture.data };
        let captured_at = self.clock.wall(ticks);
        self.ready_bytes += bytes;
        self.ready.push_back(ReceivedUnit { access_unit, last_packet_at, captured_at });
    }

    /// Checks the invariants after every step.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) {
        assert!(self.ready.len() <= READY_MAX, "{} units", self.ready.len());
        let bytes: usize = self.ready.iter().map(|unit| unit.access_unit.data.len()).sum();
        assert!(bytes == self.ready_bytes && bytes <= READY_BYTES_MAX, "{bytes} bytes");
    }
}
