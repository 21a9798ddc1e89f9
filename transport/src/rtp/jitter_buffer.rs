//! Jitter buffer: packets that arrived early, and requests for the missing ones before them.
//!
//! Packets in order bypass the buffer. Holds at most [`HELD_MAX`] packets and [`BYTES_MAX`] bytes. A missing
//! packet is requested once it is more likely lost than late, again a few times, and given up in the end.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::RtpPacket;

/// Most packets from the first missing to the last received: 1.2 s at 24 Mbit/s.
pub(super) const HELD_MAX: usize = 2048;
/// Most bytes of buffered payloads.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// Longest gap, in packets; a longer one is an outage, which retransmissions would make worse.
pub(super) const HOLE_MAX: usize = 512;
/// Most packets requested at once; a compound packet of 1200 bytes holds them in any pattern.
pub(super) const NACK_MAX: usize = 128;
/// Time after which a missing packet is given up: several round trips plus reordering.
const WAIT: Duration = Duration::from_millis(500);
/// Shortest time between requests for the same packet, in ms, after each request but the last; raised to one
/// and a half round trips.
const AGAIN_MS: [u64; 4] = [20, 50, 100, 200];
/// Assumed one and a half round trips until a retransmission has been measured.
const ANSWER: Duration = Duration::from_millis(50);
/// Most packets before the first received that may still arrive: a picture of 300 kB whose packets were sent
/// together. If none of them arrives, nothing is usable before the next start, which is not delayed by them.
const LOOK_BACK: usize = 256;
/// Number of past packets remembered that were requested or given up: as many as are requested at once.
const PAST_MAX: usize = NACK_MAX;

/// Arrival of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Instant,
    /// Time from being overtaken until a packet is requested.
    pub(super) patience: Duration,
    /// True if the packet may answer a request and so measures the round trip.
    pub(super) is_answer: bool,
}

/// Packet that waits for earlier ones.
#[derive(Debug)]
pub(super) struct BufferedPacket {
    pub(super) timestamp: u32,
    pub(super) marker: bool,
    pub(super) payload: Vec<u8>,
    pub(super) at: Instant,
    /// True if decoding may start here, whatever came before.
    pub(super) begins_start: bool,
}

#[derive(Debug)]
struct Missing {
    give_up_at: Instant,
    /// Time of the next request; `None` after the last one.
    ask_at: Option<Instant>,
    asked: usize,
    /// Time of the first request.
    asked_at: Option<Instant>,
    /// True if the packet may never have been sent.
    may_not_be: bool,
}

#[derive(Debug)]
enum Slot {
    Missing(Missing),
    Held(BufferedPacket),
}

/// Outcome of a packet's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InsertOutcome {
    /// The packet is the next in order: use it, then take the following ones from [`JitterBuffer::pop`].
    Next,
    /// A packet before it is missing.
    Held {
        /// True if the packet had been requested.
        is_repaired: bool,
    },
    /// The packet was received or given up before.
    Useless,
    /// The packet is too far ahead: skip some missing ones and offer it again.
    Full,
}

/// Window of packets, from the first missing one on.
#[derive(Debug, Default)]
pub(super) struct JitterBuffer {
    /// Number of the next packet in order, which belongs to the first slot.
    next: Option<i64>,
    /// Slots of the window: empty, or the first one is missing and the last one is held.
    slots: VecDeque<Slot>,
    /// Past packets that were requested or given up, and the number of answers still expected: one more copy
    /// than that, and the packet was only late.
    past: VecDeque<(i64, usize)>,
    bytes: usize,
    /// Earliest time of a request.
    ask_at: Option<Instant>,
    /// Smoothed time from a request to the arrival.
    round_trip: Duration,
}

impl JitterBuffer {
    /// Returns true if the arriving packet `number` was only late: others have overtaken it, and it is no
    /// answer. A packet may be an answer as often as it was requested.
    pub(super) fn was_overtaken(&mut self, number: i64, may_answer: bool) -> bool {
        let Some(next) = self.next else { return false };
        let slot = usize::try_from(number - next).map(|ahead| self.slots.get(ahead));
        match slot {
            Ok(Some(Slot::Missing(missing))) => missing.asked == 0 || !may_answer,
            Ok(None) => false,
            // The packet has been received or given up.
            Ok(Some(Slot::Held(_))) | Err(_) => {
                let past = self.past.iter_mut().find(|(past, _)| *past == number);
                past.is_some_and(|(_, answers)| {
                    let is_answer = may_answer && *answers > 0;
                    *answers = answers.saturating_sub(1);
                    !is_answer
                })
            }
        }
    }

    fn remember(&mut self, number: i64, answers: usize) {
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back((number, answers));
    }

    /// Returns true if no packet is missing.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns true before the first packet.
    pub(super) fn is_new(&self) -> bool {
        self.next.is_none()
    }

    /// Marks packets before `number`, the first to arrive, as possibly late.
    pub(super) fn expect_earlier(&mut self, number: i64, now: Instant) {
        let give_up_at = now + WAIT;
        self.next = Some(number - LOOK_BACK as i64);
        let unsent =
            || Missing { give_up_at, ask_at: None, asked: 0, asked_at: None, may_not_be: true };
        self.slots.extend(std::iter::repeat_with(unsent).map(Slot::Missing).take(LOOK_BACK));
    }

    /// Classifies the arriving packet `number`; [`JitterBuffer::hold`] stores one that is
    /// [`InsertOutcome::Held`].
    pub(super) fn arrive(&mut self, number: i64, bytes: usize) -> InsertOutcome {
        let next = *self.next.get_or_insert(number);
        let Ok(ahead) = usize::try_from(number - next) else { return InsertOutcome::Useless };
        if ahead == 0 {
            return InsertOutcome::Next;
        }
        match self.slots.get(ahead) {
            Some(Slot::Held(_)) => return InsertOutcome::Useless,
            Some(Slot::Missing(missing)) if self.bytes + bytes <= BYTES_MAX => {
                return InsertOutcome::Held { is_repaired: missing.asked > 0 };
            }
            _ => {}
        }
        let hole = ahead.saturating_sub(self.slots.len().max(1));
        if ahead >= HELD_MAX || hole >= HOLE_MAX || self.bytes + bytes > BYTES_MAX {
            return InsertOutcome::Full;
        }
        InsertOutcome::Held { is_repaired: false }
    }

    /// Stores a packet that [`JitterBuffer::arrive`] found to be ahead.
    pub(super) fn hold(
        &mut self,
        number: i64,
        packet: &RtpPacket<'_>,
        begins_start: bool,
        arrival: Arrival,
    ) {
        let ahead = self.next.map_or(0, |next| number - next);
        let Ok(ahead) = usize::try_from(ahead) else { return };
        let ask_at = arrival.at + arrival.patience;
        while self.slots.len() <= ahead {
            let give_up_at = arrival.at + WAIT;
            self.slots.push_back(Slot::Missing(Missing {
                give_up_at,
                ask_at: Some(ask_at),
                asked: 0,
                asked_at: None,
                may_not_be: false,
            }));
            self.ask_at = Some(self.ask_at.map_or(ask_at, |earlier| earlier.min(ask_at)));
        }
        let payload = packet.payload.to_vec();
        self.bytes += payload.len();
        let (timestamp, marker) = (packet.timestamp, packet.marker);
        let held = BufferedPacket { timestamp, marker, payload, at: arrival.at, begins_start };
        if let Slot::Missing(missing) = std::mem::replace(&mut self.slots[ahead], Slot::Held(held))
        {
            self.learn(number, &missing, arrival);
            if missing.may_not_be {
                self.expect_after(ahead, arrival);
            }
        }
    }

    /// Schedules requests for missing packets after this one, which were certainly sent.
    fn expect_after(&mut self, ahead: usize, arrival: Arrival) {
        let ask_at = arrival.at + arrival.patience;
        for slot in self.slots.iter_mut().skip(ahead + 1) {
            if let Slot::Missing(missing) = slot
                && std::mem::take(&mut missing.may_not_be)
            {
                missing.ask_at = Some(ask_at);
                missing.give_up_at = arrival.at + WAIT;
                self.ask_at = Some(self.ask_at.map_or(ask_at, |earlier| earlier.min(ask_at)));
            }
        }
    }

    /// Records the arrival of a missing packet and measures the round trip.
    fn learn(&mut self, number: i64, missing: &Missing, arrival: Arrival) {
        if let Some(answers) = missing.asked.checked_sub(1) {
            self.remember(number, answers);
        }
        let Some(asked_at) = missing.asked_at.filter(|_| arrival.is_answer) else { return };
        // Measured from the first request: on a long round trip every packet is requested twice.
        let sample = arrival.at.saturating_duration_since(asked_at);
        self.round_trip = match self.round_trip {
            Duration::ZERO => sample,
            before if sample < before => (before + sample) / 2,
            before => (before * 7 + sample) / 8,
        };
    }

    /// Moves on after the next packet was used; returns true if it had been requested.
    pub(super) fn advance(&mut self, arrival: Arrival) -> bool {
        let number = self.next.unwrap_or_default();
        self.next = self.next.map(|next| next + 1);
        if matches!(self.slots.front(), Some(Slot::Missing(Missing { may_not_be: true, .. }))) {
            self.expect_after(0, arrival);
        }
        let Some(Slot::Missing(missing)) = self.slots.pop_front() else { return false };
        self.learn(number, &missing, arrival);
        missing.asked > 0
    }

    /// Returns the next packet in order, if held.
    pub(super) fn pop(&mut self) -> Option<BufferedPacket> {
        if !matches!(self.slots.front(), Some(Slot::Held(_))) {
            return None;
        }
        let Some(Slot::Held(held)) = self.slots.pop_front() else { return None };
        self.next = self.next.map(|next| next + 1);
        self.bytes -= held.payload.len();
        Some(held)
    }

    /// Gives up the packets missing before the first held one; returns the number of those certainly sent.
    pub(super) fn skip_hole(&mut self) -> u64 {
        let mut count = 0;
        while let (Some(next), Some(Slot::Missing(missing))) = (self.next, self.slots.front()) {
            count += u64::from(!missing.may_not_be);
            self.remember(next, 0);
            self.slots.pop_front();
            self.next = Some(next + 1);
        }
        count
    }

    /// Moves on to the packet `number`; returns the number of certainly sent packets missing before it.
    pub(super) fn skip_to(&mut self, number: i64) -> u64 {
        let from = self.next.replace(number).unwrap_or(number);
        let mut missing = number.saturating_sub(from).max(0) as u64;
        for gone in from..number {
            match self.slots.pop_front() {
                None => break,
                Some(Slot::Missing(slot)) => {
                    missing -= u64::from(slot.may_not_be);
                    self.remember(gone, 0);
                }
                Some(Slot::Held(held)) => {
                    missing -= 1;
                    self.bytes -= held.payload.len();
                }
            }
        }
        missing
    }

    /// Returns the number of the first held packet at which decoding may start.
    pub(super) fn first_start(&self) -> Option<i64> {
        let is_start = |slot: &Slot| matches!(slot, Slot::Held(held) if held.begins_start);
        let ahead = self.slots.iter().position(is_start)?;
        self.next.map(|next| next + ahead as i64)
    }

    /// Returns the time at which the next packet in order is given up.
    pub(super) fn give_up_at(&self) -> Option<Instant> {
        match self.slots.front() {
            Some(Slot::Missing(missing)) => Some(missing.give_up_at),
            _ => None,
        }
    }

    pub(super) fn next_nack_at(&self) -> Option<Instant> {
        self.ask_at.filter(|_| !self.slots.is_empty())
    }

    /// Returns the sequence numbers to request at `now`.
    pub(super) fn collect_nacks(&mut self, now: Instant) -> Vec<u16> {
        let mut due = Vec::new();
        let (Some(next), true) = (self.next, self.next_nack_at().is_some_and(|at| at <= now))
        else {
            return due;
        };
        let answer = match self.round_trip {
            Duration::ZERO => ANSWER,
            known => known * 3 / 2,
        };
        let mut earliest: Option<Instant> = None;
        for (ahead, slot) in self.slots.iter_mut().enumerate() {
            let Slot::Missing(missing) = slot else { continue };
            if missing.ask_at.is_some_and(|at| at <= now) && due.len() < NACK_MAX {
                due.push((next + ahead as i64) as u16);
                missing.asked += 1;
                missing.asked_at = missing.asked_at.or(Some(now));
                let again = AGAIN_MS.get(missing.asked - 1);
                missing.ask_at = again.map(|&ms| now + Duration::from_millis(ms).max(answer));
            }
            earliest = earliest.into_iter().chain(missing.ask_at).min();
        }
        self.ask_at = earliest;
        due
    }

    /// Checks the invariants after every step.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) {
        assert!(self.slots.len() <= HELD_MAX, "{} slots", self.slots.len());
        assert!(self.bytes <= BYTES_MAX, "{} bytes", self.bytes);
        assert!(!matches!(self.slots.back(), Some(Slot::Missing(_))), "ends with a hole");
        let held = |slot: &Slot| match slot {
            Slot::Held(held) => held.payload.len(),
            Slot::Missing(_) => 0,
        };
        assert_eq!(self.slots.iter().map(held).sum::<usize>(), self.bytes);
    }
}

#[cfg(test)]
mod tests;
