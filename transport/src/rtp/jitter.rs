//! Packets that came too early, and what is missing before them.
//!
//! Packets in order never get in here. Holds at most [`HELD_MAX`] packets and [`BYTES_MAX`] bytes;
//! what is missing is asked for [`ATTEMPTS`] times at most and given up in the end.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::Packet;

/// Most packets from the first that is missing to the last that came: 1.2 s at 24 Mbit/s.
pub(super) const HELD_MAX: usize = 2048;
/// Most bytes of them.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// A longer hole is an outage, which retransmissions would make worse.
pub(super) const HOLE_MAX: usize = 512;
/// Most packets asked for at once: a compound packet of 1200 bytes holds them in any pattern.
pub(super) const NACK_MAX: usize = 128;
/// Times that a packet is asked for.
pub(super) const ATTEMPTS: usize = 4;
/// Until it is asked for, and until it is asked for again. The first bridges reordering between
/// neighbours, the others a path's round trip, which is not known.
const PATIENCE_MS: [u64; ATTEMPTS] = [10, 50, 100, 200];
/// Payload buffers kept for packets to come.
const POOL_MAX: usize = 64;
/// Larger buffers are not kept; a datagram that is not fragmented fits.
const POOLED_BYTES_MAX: usize = 2048;

/// A packet that waits for others.
#[derive(Debug)]
pub(super) struct Held {
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
}

#[derive(Debug)]
enum Slot {
    Missing(Missing),
    Held(Held),
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is the one that is waited for: use it, then take what follows from [`Jitter::pop`].
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
pub(super) struct Jitter {
    wait: Duration,
    /// Number of the packet waited for, which is that of the first slot.
    next: Option<i64>,
    /// Empty, or the first one is missing and the last one held.
    slots: VecDeque<Slot>,
    bytes: usize,
    /// Earliest instant at which something is asked for.
    ask_at: Option<Instant>,
    pool: Vec<Vec<u8>>,
}

impl Jitter {
    /// What is missing is given up after `wait`.
    pub(super) fn new(wait: Duration) -> Jitter {
        Jitter {
            wait,
            next: None,
            slots: VecDeque::new(),
            bytes: 0,
            ask_at: None,
            pool: Vec::new(),
        }
    }

    /// Nothing is missing.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The packet `number` has come. One that is [`Arrival::Held`] is kept by [`Jitter::hold`].
    pub(super) fn arrive(&mut self, number: i64, bytes: usize) -> Arrival {
        let next = *self.next.get_or_insert(number);
        let Ok(ahead) = usize::try_from(number - next) else { return Arrival::Late };
        if ahead == 0 {
            return Arrival::Next;
        }
        match self.slots.get(ahead) {
            Some(Slot::Held(_)) => return Arrival::Duplicate,
            Some(Slot::Missing(missing)) if self.bytes + bytes <= BYTES_MAX => {
                return Arrival::Held { is_repaired: missing.asked > 0 };
            }
            _ => {}
        }
        let hole = ahead.saturating_sub(self.slots.len().max(1));
        if ahead >= HELD_MAX || hole >= HOLE_MAX || self.bytes + bytes > BYTES_MAX {
            return Arrival::Full;
        }
        Arrival::Held { is_repaired: false }
    }

    /// Keeps a packet that [`Jitter::arrive`] has found to be ahead.
    pub(super) fn hold(
        &mut self,
        number: i64,
        packet: &Packet<'_>,
        begins_start: bool,
        now: Instant,
    ) {
        let ahead = self.next.map_or(0, |next| number - next);
        let Ok(ahead) = usize::try_from(ahead) else { return };
        let ask_at = now + Duration::from_millis(PATIENCE_MS[0]);
        while self.slots.len() <= ahead {
            let give_up_at = now + self.wait;
            self.slots.push_back(Slot::Missing(Missing {
                give_up_at,
                ask_at: Some(ask_at),
                asked: 0,
            }));
            self.ask_at = Some(self.ask_at.map_or(ask_at, |earlier| earlier.min(ask_at)));
        }
        let mut payload = self.pool.pop().unwrap_or_default();
        payload.clear();
        payload.extend_from_slice(packet.payload);
        self.bytes += payload.len();
        let (timestamp, marker) = (packet.timestamp, packet.marker);
        let held = Held { timestamp, marker, payload, at: now, begins_start };
        self.slots[ahead] = Slot::Held(held);
    }

    /// The packet that was waited for has been used; it had been asked for where this is true.
    pub(super) fn advance(&mut self) -> bool {
        self.next = self.next.map(|next| next + 1);
        let slot = self.slots.pop_front();
        matches!(slot, Some(Slot::Missing(missing)) if missing.asked > 0)
    }

    /// The next packet in order, if it is there; give it back with [`Jitter::recycle`].
    pub(super) fn pop(&mut self) -> Option<Held> {
        if !matches!(self.slots.front(), Some(Slot::Held(_))) {
            return None;
        }
        let Some(Slot::Held(held)) = self.slots.pop_front() else { return None };
        self.next = self.next.map(|next| next + 1);
        self.bytes -= held.payload.len();
        Some(held)
    }

    /// Takes back the buffer of a packet that has been used.
    pub(super) fn recycle(&mut self, held: Held) {
        if self.pool.len() < POOL_MAX && held.payload.capacity() <= POOLED_BYTES_MAX {
            self.pool.push(held.payload);
        }
    }

    /// Gives up what is missing before the first packet that is held: how many.
    pub(super) fn skip_hole(&mut self) -> u64 {
        let mut count = 0;
        while matches!(self.slots.front(), Some(Slot::Missing(_))) {
            self.advance();
            count += 1;
        }
        count
    }

    /// Forgets all up to the packet `number`, which is then waited for: how many were missing.
    pub(super) fn skip_to(&mut self, number: i64) -> u64 {
        let from = self.next.replace(number).unwrap_or(number);
        let mut missing = number.saturating_sub(from).max(0) as u64;
        for _ in from..number {
            match self.slots.pop_front() {
                None => break,
                Some(Slot::Missing(_)) => {}
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

    /// When the packet waited for is given up.
    pub(super) fn give_up_at(&self) -> Option<Instant> {
        match self.slots.front() {
            Some(Slot::Missing(missing)) => Some(missing.give_up_at),
            _ => None,
        }
    }

    /// When something is to be asked for.
    pub(super) fn ask_at(&self) -> Option<Instant> {
        self.ask_at.filter(|_| !self.slots.is_empty())
    }

    /// What is to be asked for by now.
    pub(super) fn ask(&mut self, now: Instant) -> Vec<u16> {
        let mut due = Vec::new();
        let (Some(next), true) = (self.next, self.ask_at().is_some_and(|at| at <= now)) else {
            return due;
        };
        let mut earliest: Option<Instant> = None;
        for (ahead, slot) in self.slots.iter_mut().enumerate() {
            let Slot::Missing(missing) = slot else { continue };
            if missing.ask_at.is_some_and(|at| at <= now) && due.len() < NACK_MAX {
                due.push((next + ahead as i64) as u16);
                missing.asked += 1;
                let patience = PATIENCE_MS.get(missing.asked).map(|&ms| Duration::from_millis(ms));
                missing.ask_at = patience.map(|patience| now + patience);
            }
            earliest = match (earliest, missing.ask_at) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        self.ask_at = earliest;
        due
    }

    /// What must hold after every step, for tests and fuzzers.
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
mod tests {
    use super::*;

    fn packet(sequence: i64) -> Packet<'static> {
        Packet {
            payload_type: 96,
            ssrc: 1,
            sequence: sequence as u16,
            timestamp: 0,
            marker: false,
            payload: &[0; 100],
        }
    }

    /// After these numbers came at `now`.
    fn after(numbers: &[i64], now: Instant) -> (Jitter, Vec<Arrival>) {
        let mut jitter = Jitter::new(Duration::from_millis(500));
        let mut arrivals = Vec::new();
        for &number in numbers {
            let arrival = jitter.arrive(number, 100);
            match arrival {
                Arrival::Next => {
                    jitter.advance();
                    while let Some(held) = jitter.pop() {
                        jitter.recycle(held);
                    }
                }
                Arrival::Held { .. } => jitter.hold(number, &packet(number), number == 9, now),
                _ => {}
            }
            jitter.check();
            arrivals.push(arrival);
        }
        (jitter, arrivals)
    }

    #[test]
    fn every_packet_has_its_place() {
        let held = Arrival::Held { is_repaired: false };
        let cases: [(&str, &[i64], &[Arrival]); 7] = [
            ("in order", &[5, 6], &[Arrival::Next, Arrival::Next]),
            ("late", &[5, 4], &[Arrival::Next, Arrival::Late]),
            ("twice", &[5, 5], &[Arrival::Next, Arrival::Late]),
            ("early", &[5, 7, 6, 8], &[Arrival::Next, held, Arrival::Next, Arrival::Next]),
            ("early twice", &[5, 7, 7], &[Arrival::Next, held, Arrival::Duplicate]),
            ("into a hole", &[5, 9, 7], &[Arrival::Next, held, held]),
            ("an outage", &[5, 6 + 513], &[Arrival::Next, Arrival::Full]),
        ];
        for (name, numbers, expected) in cases {
            assert_eq!(after(numbers, Instant::now()).1, expected, "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_asked_for_with_growing_patience() {
        let zero = Instant::now();
        let (mut jitter, _) = after(&[5, 8], zero);
        let mut asked = Vec::new();
        let at = |ms| zero + Duration::from_millis(ms);
        for ms in 0..500 {
            if !jitter.ask(at(ms)).is_empty() {
                asked.push(ms);
            }
        }
        assert_eq!(asked, [10, 60, 160, 360]);
        assert_eq!(jitter.ask_at(), None, "asked for often enough");
        assert_eq!(jitter.give_up_at(), Some(at(500)));
        assert_eq!(jitter.arrive(6, 100), Arrival::Next);
        assert!(jitter.advance(), "was asked for");
        assert_eq!(jitter.arrive(8, 100), Arrival::Duplicate);
        assert_eq!(jitter.skip_hole(), 1);
        assert!(jitter.pop().is_some());
        assert!(jitter.is_empty());
    }

    #[test]
    fn no_more_is_asked_for_than_a_packet_holds() {
        let zero = Instant::now();
        let (mut jitter, _) = after(&[0, 300], zero);
        let later = zero + Duration::from_secs(1);
        let first = jitter.ask(later);
        assert_eq!(first, (1..129).collect::<Vec<u16>>());
        assert_eq!(jitter.ask_at(), Some(zero + Duration::from_millis(10)), "more is due");
        assert_eq!(jitter.ask(later)[0], 129);
    }

    #[test]
    fn a_start_can_be_skipped_to() {
        let (mut jitter, _) = after(&[5, 7, 9, 10], Instant::now());
        assert_eq!(jitter.first_start(), Some(9));
        assert_eq!(jitter.skip_to(9), 2, "6 and 8 were missing");
        jitter.check();
        let timestamps = std::iter::from_fn(|| jitter.pop()).count();
        assert_eq!(timestamps, 2);
        assert_eq!(jitter.arrive(11, 100), Arrival::Next);
    }

    #[test]
    fn bytes_and_packets_are_bounded() {
        let mut jitter = Jitter::new(Duration::from_secs(1));
        let large = vec![0; 60_000];
        let now = Instant::now();
        jitter.arrive(0, 1);
        let mut held = 0;
        for number in 1..HELD_MAX as i64 {
            let packet = Packet { payload: &large, ..packet(number) };
            if jitter.arrive(number, large.len()) == Arrival::Full {
                break;
            }
            jitter.hold(number, &packet, false, now);
            jitter.check();
            held += 1;
        }
        assert_eq!(held, BYTES_MAX / large.len());
        assert_eq!(jitter.arrive(HELD_MAX as i64, 0), Arrival::Full);
    }
}
