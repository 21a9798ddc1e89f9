//! Assembler of payloads in order to complete units; only decodable ones are returned.
//!
//! A unit ends with the marker or where the timestamp changes. The marker is trusted once it has proven
//! right; until then a unit waits for the packet after it, as long as the path may delay one. Senders without
//! the marker cost a delay of one frame, and their last picture is never known to be complete.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    ReceiverStats,
    depacketize::{self, DepacketizeError, Depacketizer, UnitKind},
};

/// Next packet in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) timestamp: u32,
    pub(super) marker: bool,
    pub(super) payload: &'a [u8],
    pub(super) at: Instant,
}

/// Complete, decodable unit.
#[derive(Debug)]
pub(super) struct CompleteUnit {
    pub(super) timestamp: u32,
    pub(super) data: Vec<u8>,
    pub(super) keyframe: bool,
    pub(super) last_at: Instant,
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
    depacketizer: Box<dyn Depacketizer>,
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
    ready: VecDeque<CompleteUnit>,
}

impl FrameAssembler {
    pub(super) fn new(depacketizer: Box<dyn Depacketizer>) -> FrameAssembler {
        FrameAssembler {
            depacketizer,
            open: None,
            is_contiguous: false,
            is_started: false,
            skips_leading: false,
            marker: Marker::Unproven,
            ended: None,
            ready: VecDeque::new(),
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

    /// Returns the next complete unit.
    pub(super) fn pop(&mut self) -> Option<CompleteUnit> {
        self.ready.pop_front()
    }

    /// Records that packets before the next one are lost.
    pub(super) fn gap(&mut self) {
        self.depacketizer.reset();
        self.open = None;
        self.ended = None;
        self.is_contiguous = false;
        self.is_started = false;
    }

    /// Drops complete units that the caller cannot take; units that refer to them are undecodable.
    pub(super) fn lose(&mut self) {
        self.ready.clear();
        self.is_started = false;
        if let Some(open) = &mut self.open {
            open.is_skipped = true;
        }
    }

    /// Takes the next packet, after the previous one or a gap.
    pub(super) fn push(&mut self, part: &Part<'_>, counts: &mut ReceiverStats) {
        // A packet of padding has a sequence number but no payload.
        if part.payload.is_empty() {
            return;
        }
        self.end_before(part, counts);
        if self.open.is_none() {
            self.begin(part);
        }
        self.is_contiguous = true;
        let Some(open) = &mut self.open else { return };
        open.last_at = open.last_at.max(part.at);
        open.packets = open.packets.saturating_add(1);
        open.marked = open.marked.saturating_add(u32::from(part.marker));
        open.ends_marked = part.marker;
        if !open.is_skipped
            && let Err(refusal) = self.depacketizer.push(part.payload)
        {
            open.is_skipped = true;
            self.refuse(refusal, counts);
        }
        let ignores_marker = self.ignores_marker();
        let Some(open) = &mut self.open else { return };
        let is_picture = open.is_skipped || self.depacketizer.has_picture();
        if part.marker && is_picture && !ignores_marker {
            open.ended_at = Some(part.at);
            if self.marker == Marker::Trusted {
                self.close(counts);
            }
        }
    }

    /// Closes the open unit if it has waited long enough for another packet.
    pub(super) fn release(&mut self, hold: Duration, now: Instant, counts: &mut ReceiverStats) {
        if self.held_until(hold).is_some_and(|until| until <= now) {
            self.close(counts);
        }
    }

    /// Closes the open unit at the end of the source if its marker has arrived.
    pub(super) fn end(&mut self, counts: &mut ReceiverStats) {
        if self.open.as_ref().is_some_and(|open| open.ended_at.is_some()) {
            self.close(counts);
        }
    }

    /// Closes the open unit if this packet belongs to another one.
    fn end_before(&mut self, part: &Part<'_>, counts: &mut ReceiverStats) {
        let Some(open) = &mut self.open else {
            let is_rest = self.ended == Some(part.timestamp);
            let says_more = self.depacketizer.part(part.payload) == depacketize::PayloadPart::Some;
            if is_rest && says_more && !self.depacketizer.begins_unit(part.payload) {
                // The unit that was returned was incomplete.
                counts.markers_wrong += 1;
                self.marker = Marker::Ignored { clean: 0 };
                self.is_started = false;
            }
            return;
        };
        let is_another = open.timestamp != part.timestamp
            || self.depacketizer.begins_another(part.payload)
            || open.ended_at.is_some()
                && self.depacketizer.part(part.payload) == depacketize::PayloadPart::Beginning;
        if is_another {
            self.marker = self.marker.after(open);
            self.close(counts);
        } else if open.ended_at.is_some()
            && self.depacketizer.part(part.payload) == depacketize::PayloadPart::Some
        {
            open.ended_at = None;
            counts.markers_wrong += 1;
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

    fn close(&mut self, counts: &mut ReceiverStats) {
        let Some(open) = self.open.take() else { return };
        self.ended = open.ended_at.map(|_| open.timestamp);
        if open.is_skipped {
            counts.skipped += 1;
            return;
        }
        let picture = match self.depacketizer.finish() {
            Ok(Some(picture)) => picture,
            Ok(None) => return,
            Err(refusal) => return self.refuse(refusal, counts),
        };
        let keyframe = match picture.role {
            UnitKind::Start { breaks_link } => {
                self.skips_leading = !self.is_started || breaks_link;
                self.is_started = true;
                true
            }
            kind if !self.is_started || kind == UnitKind::Leading && self.skips_leading => {
                counts.skipped += 1;
                return;
            }
            UnitKind::Leading | UnitKind::Other => false,
        };
        let (timestamp, last_at, data) = (open.timestamp, open.last_at, picture.data);
        self.ready.push_back(CompleteUnit { timestamp, data, keyframe, last_at });
    }

    fn refuse(&mut self, refusal: DepacketizeError, counts: &mut ReceiverStats) {
        match refusal {
            DepacketizeError::Malformed => counts.malformed += 1,
            DepacketizeError::TooLarge => counts.too_large += 1,
        }
        self.is_started = false;
    }
}
