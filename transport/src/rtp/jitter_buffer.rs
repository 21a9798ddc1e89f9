//! Packets that came too early, and what is missing before them.
//!
//! Packets in order never get in here. Holds at most [`HELD_MAX`] packets and [`BYTES_MAX`] bytes;
//! what is missing is asked for once it is more likely lost than late, some times more, and given
//! up in the end.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{RtpPacket, jitter_estimate::PATIENCE_MIN};

/// Most packets from the first that is missing to the last that came: 1.2 s at 24 Mbit/s.
pub(super) const HELD_MAX: usize = 2048;
/// Most bytes of them.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// A longer hole is an outage, which retransmissions would make worse.
pub(super) const HOLE_MAX: usize = 512;
/// Most packets asked for at once: a compound packet of 1200 bytes holds them in any pattern.
pub(super) const NACK_MAX: usize = 128;
/// Least time from asking for a packet to asking for it again, each time that it is asked for but
/// the last; where one and a half round trips take longer, that long.
const AGAIN_MS: [u64; 4] = [20, 50, 100, 200];
/// Stand-in for one and a half round trips of a path on which nothing was repaired yet.
const ANSWER: Duration = Duration::from_millis(50);
/// Most packets before the first that came which may still come: a picture of 300 kB, whose packets
/// were sent together. Where none of them does, nothing that came is of use before the next start,
/// which is not kept waiting by them.
const LOOK_BACK: usize = 256;
/// Packets remembered of those that had been asked for or were given up: as many as are asked for at once.
const PAST_MAX: usize = NACK_MAX;
/// Payload buffers kept for packets to come.
const POOL_MAX: usize = 64;
/// Larger buffers are not kept; a datagram that is not fragmented fits.
const POOLED_BYTES_MAX: usize = 2048;

/// A packet that waits for others.
#[derive(Debug)]
pub(super) struct BufferedPacket {
    pub(super) timestamp: u32,
    pub(super) marker: bool,
    pub(super) payload: Vec<u8>,
    pub(super) at: Instant,
    /// Decoding may start here, whatever came before.
    pub(super) begins_start: bool,
}

#[derive(Debug)]
struct Missing {
    give_up_at: Instant,
    /// `None` when it was asked for often enough.
    ask_at: Option<Instant>,
    asked: usize,
    /// Time of the first request for it.
    asked_at: Option<Instant>,
    /// It was never sent, for all that is known.
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
    /// It is the one that is waited for: use it, then take what follows from [`JitterBuffer::pop`].
    Next,
    /// Something before it is missing.
    Held {
        /// It had been asked for.
        is_repaired: bool,
    },
    Duplicate,
    /// It was used, or given up, before.
    Late,
    /// There is no room between what is waited for and this one: skip, and offer it again.
    Full,
}

/// The window of packets from the first missing one on.
#[derive(Debug)]
pub(super) struct JitterBuffer {
    wait: Duration,
    /// Until a packet that others overtook is asked for.
    patience: Duration,
    /// Number of the packet waited for, which is that of the first slot.
    next: Option<i64>,
    /// Empty, or the first one is missing and the last one held.
    slots: VecDeque<Slot>,
    /// The last that had been asked for or were given up, and how many answers may still come: one copy
    /// more, and the packet was only late.
    past: VecDeque<(i64, usize)>,
    bytes: usize,
    /// Earliest instant at which something is asked for.
    ask_at: Option<Instant>,
    /// From asking for a packet to its coming, smoothed.
    round_trip: Duration,
    /// True where a packet that was asked for and comes now tells the round trip.
    is_answer: bool,
    pool: Vec<Vec<u8>>,
}

impl JitterBuffer {
    /// Makes a window in which a missing packet is given up after `wait`.
    pub(super) fn new(wait: Duration) -> JitterBuffer {
        JitterBuffer {
            wait,
            patience: PATIENCE_MIN,
            next: None,
            slots: VecDeque::new(),
            past: VecDeque::new(),
            bytes: 0,
            ask_at: None,
            round_trip: Duration::ZERO,
            is_answer: true,
            pool: Vec::new(),
        }
    }

    /// Sets the `patience` before packets that the next one shows to be missing are asked for;
    /// where it had been asked for itself it is an answer, and not one that was only late.
    pub(super) fn expect(&mut self, patience: Duration, is_answer: bool) {
        (self.patience, self.is_answer) = (patience, is_answer);
    }

    /// Returns true where `number`, which comes now, is of a packet that was only late: others have
    /// overtaken it, and it is no answer, which it may be as often as it was asked for.
    pub(super) fn was_overtaken(&mut self, number: i64, may_answer: bool) -> bool {
        let Some(next) = self.next else { return false };
        let slot = usize::try_from(number - next).map(|ahead| self.slots.get(ahead));
        match slot {
            Ok(Some(Slot::Missing(missing))) => missing.asked == 0 || !may_answer,
            Ok(None) => false,
            // It is here, or was.
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

    /// Nothing is missing.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// No packet has come yet.
    pub(super) fn is_new(&self) -> bool {
        self.next.is_none()
    }

    /// Some packets before `number`, which is the first to come, may only be late.
    pub(super) fn expect_earlier(&mut self, number: i64, now: Instant) {
        let give_up_at = now + self.wait;
        self.next = Some(number - LOOK_BACK as i64);
        let unsent =
            || Missing { give_up_at, ask_at: None, asked: 0, asked_at: None, may_not_be: true };
        self.slots.extend(std::iter::repeat_with(unsent).map(Slot::Missing).take(LOOK_BACK));
    }

    /// The packet `number` has come. One that is [`InsertOutcome::Held`] is kept by [`JitterBuffer::hold`].
    pub(super) fn arrive(&mut self, number: i64, bytes: usize) -> InsertOutcome {
        let next = *self.next.get_or_insert(number);
        let Ok(ahead) = usize::try_from(number - next) else { return InsertOutcome::Late };
        if ahead == 0 {
            return InsertOutcome::Next;
        }
        match self.slots.get(ahead) {
            Some(Slot::Held(_)) => return InsertOutcome::Duplicate,
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

    /// Keeps a packet that [`JitterBuffer::arrive`] has found to be ahead.
    pub(super) fn hold(
        &mut self,
        number: i64,
        packet: &RtpPacket<'_>,
        begins_start: bool,
        now: Instant,
    ) {
        let ahead = self.next.map_or(0, |next| number - next);
        let Ok(ahead) = usize::try_from(ahead) else { return };
        let ask_at = now + self.patience;
        while self.slots.len() <= ahead {
            let give_up_at = now + self.wait;
            self.slots.push_back(Slot::Missing(Missing {
                give_up_at,
                ask_at: Some(ask_at),
                asked: 0,
                asked_at: None,
                may_not_be: false,
            }));
            self.ask_at = Some(self.ask_at.map_or(ask_at, |earlier| earlier.min(ask_at)));
        }
        let mut payload = self.pool.pop().unwrap_or_default();
        payload.clear();
        payload.extend_from_slice(packet.payload);
        self.bytes += payload.len();
        let (timestamp, marker) = (packet.timestamp, packet.marker);
        let held = BufferedPacket { timestamp, marker, payload, at: now, begins_start };
        if let Slot::Missing(missing) = std::mem::replace(&mut self.slots[ahead], Slot::Held(held))
        {
            self.learn(number, &missing, now);
            if missing.may_not_be {
                self.expect_after(ahead, now);
            }
        }
    }

    /// Schedules requests for the packets behind this one that are missing and were surely sent.
    fn expect_after(&mut self, ahead: usize, now: Instant) {
        let ask_at = now + self.patience;
        for slot in self.slots.iter_mut().skip(ahead + 1) {
            if let Slot::Missing(missing) = slot
                && std::mem::take(&mut missing.may_not_be)
            {
                missing.ask_at = Some(ask_at);
                missing.give_up_at = now + self.wait;
                self.ask_at = Some(self.ask_at.map_or(ask_at, |earlier| earlier.min(ask_at)));
            }
        }
    }

    /// A packet that was missing has come.
    fn learn(&mut self, number: i64, missing: &Missing, now: Instant) {
        if let Some(answers) = missing.asked.checked_sub(1) {
            self.remember(number, answers);
        }
        let Some(asked_at) = missing.asked_at.filter(|_| self.is_answer) else { return };
        // From the first request: where the round trip is long, every packet is asked for twice.
        let sample = now.saturating_duration_since(asked_at);
        self.round_trip = match self.round_trip {
            Duration::ZERO => sample,
            before if sample < before => (before + sample) / 2,
            before => (before * 7 + sample) / 8,
        };
    }

    /// The packet that was waited for has been used; it had been asked for where this is true.
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        let number = self.next.unwrap_or_default();
        self.next = self.next.map(|next| next + 1);
        if matches!(self.slots.front(), Some(Slot::Missing(Missing { may_not_be: true, .. }))) {
            self.expect_after(0, now);
        }
        let Some(Slot::Missing(missing)) = self.slots.pop_front() else { return false };
        self.learn(number, &missing, now);
        missing.asked > 0
    }

    /// The next packet in order, if it is there; give it back with [`JitterBuffer::recycle`].
    pub(super) fn pop(&mut self) -> Option<BufferedPacket> {
        if !matches!(self.slots.front(), Some(Slot::Held(_))) {
            return None;
        }
        let Some(Slot::Held(held)) = self.slots.pop_front() else { return None };
        self.next = self.next.map(|next| next + 1);
        self.bytes -= held.payload.len();
        Some(held)
    }

    /// Takes back the buffer of a packet that has been used.
    pub(super) fn recycle(&mut self, held: BufferedPacket) {
        if self.pool.len() < POOL_MAX && held.payload.capacity() <= POOLED_BYTES_MAX {
            self.pool.push(held.payload);
        }
    }

    /// Gives up what is missing before the first packet that is held: how many.
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

    /// Forgets all up to the packet `number`, which is then waited for: how many were missing.
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
                    self.recycle(held);
                }
            }
        }
        missing
    }

    /// Number of the first held packet from which decoding may start.
    pub(super) fn first_start(&self) -> Option<i64> {
        let is_start = |slot: &Slot| matches!(slot, Slot::Held(held) if held.begins_start);
        let ahead = self.slots.iter().position(is_start)?;
        self.next.map(|next| next + ahead as i64)
    }

    /// Returns the time at which the packet waited for is given up.
    pub(super) fn give_up_at(&self) -> Option<Instant> {
        match self.slots.front() {
            Some(Slot::Missing(missing)) => Some(missing.give_up_at),
            _ => None,
        }
    }

    /// Returns the time of the next request.
    pub(super) fn next_nack_at(&self) -> Option<Instant> {
        self.ask_at.filter(|_| !self.slots.is_empty())
    }

    /// Returns the packets to ask for by now.
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
            earliest = match (earliest, missing.ask_at) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        self.ask_at = earliest;
        due
    }

    /// Checks the invariants that hold after every step, for tests and fuzzers.
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
