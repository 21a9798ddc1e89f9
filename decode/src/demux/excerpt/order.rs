//! Pictures of an excerpt in decode order, with the times at which they are shown.
//!
//! A decoder tells the order in which they are shown where a container does not: one after the other.

use std::collections::VecDeque;

use super::AHEAD_MAX;
use crate::{
    decoder::FrameDecoder,
    ffi::{Packet, ReceiveOutcome},
};

/// Errors that a decoder may give while its pictures are taken out.
const ERRORS_MAX: u32 = 64;

/// A picture and its times.
pub(super) struct Timed {
    pub packet: Packet,
    pub pts: i64,
    pub dts: i64,
}

struct Held {
    packet: Packet,
    /// Position after the first picture.
    key: i64,
    decoded: i64,
    shown: Option<i64>,
}

pub(super) struct Order {
    /// Tells the order of pictures without times.
    decoder: Option<Box<dyn FrameDecoder>>,
    /// Pictures that are decoded before the first is shown, and the ticks of one.
    depth: i64,
    step: i64,
    pushed: i64,
    held: VecDeque<Held>,
    /// Presentation times of the pictures whose rank is not taken.
    ranks: VecDeque<i64>,
    /// Presentation time of the first picture.
    first: Option<i64>,
    is_over: bool,
}

impl Order {
    pub fn new(decoder: Option<Box<dyn FrameDecoder>>, depth: i64, step: i64) -> Order {
        Order {
            decoder,
            depth,
            step,
            pushed: 0,
            held: VecDeque::new(),
            ranks: VecDeque::new(),
            first: None,
            is_over: false,
        }
    }

    /// Takes the next picture in decode order; the first is the keyframe.
    pub fn push(&mut self, packet: Packet, decoded: i64, shown: i64) {
        let key = self.pushed;
        self.pushed += 1;
        let Some(mut decoder) = self.decoder.take() else {
            let first = *self.first.get_or_insert(shown);
            // Containers with show times alone: libav has not seen enough of them at first.
            let decoded = packet.dts().unwrap_or_else(|| match self.depth - key {
                left @ 1.. => first.saturating_sub(left.saturating_mul(self.step)),
                _ => i64::MIN,
            });
            self.held.push_back(Held { packet, key, decoded, shown: Some(shown) });
            return;
        };
        self.ranks.push_back(decoded.saturating_add(self.depth.saturating_mul(self.step)));
        if let Ok(keyed) = Packet::copied([packet.data(), &[]], key) {
            // A packet that it refuses has no rank and is left out.
            decoder.send(&keyed).ok();
        }
        self.held.push_back(Held { packet, key, decoded, shown: None });
        self.take_out(decoder.as_mut());
        self.decoder = Some(decoder);
    }

    /// No picture follows.
    pub fn end(&mut self) {
        if let Some(mut decoder) = self.decoder.take() {
            // A decoder that refuses the end gives what it has.
            decoder.send_end().ok();
            self.take_out(decoder.as_mut());
        }
        self.is_over = true;
    }

    fn take_out(&mut self, decoder: &mut dyn FrameDecoder) {
        let mut errors = 0;
        loop {
            match decoder.receive() {
                Ok(ReceiveOutcome::Frame(frame)) => {
                    let Some(key) = frame.packet_pts() else { continue };
                    let Some(held) = self.held.iter_mut().find(|held| held.key == key) else {
                        continue;
                    };
                    held.shown = self.ranks.pop_front();
                    if key == 0 {
                        self.first = held.shown;
                    }
                }
                Ok(ReceiveOutcome::NeedsInput | ReceiveOutcome::End) => return,
                Err(_) if errors < ERRORS_MAX => errors += 1,
                Err(_) => return,
            }
        }
    }

    /// The next picture in decode order, once it is known when it is shown, and that it or one
    /// after it `is_wanted`.
    pub fn pop(&mut self, is_wanted: impl Fn(i64) -> bool) -> Option<Timed> {
        loop {
            let front = self.held.front()?;
            match front.shown {
                // Never shown, as far as can be told: hidden, damaged, or in need of what is not there.
                None if self.is_over || self.held.len() > AHEAD_MAX => {
                    self.held.pop_front();
                }
                None => return None,
                // It comes after the keyframe and is shown before it.
                Some(shown) if self.first.is_some_and(|first| shown < first) => {
                    self.held.pop_front();
                }
                Some(_) => break,
            }
        }
        let wanted = |held: &Held| held.shown.is_some_and(&is_wanted);
        if !self.held.iter().any(wanted) && (self.is_over || self.held.len() <= AHEAD_MAX) {
            return None;
        }
        let Held { packet, decoded, shown, .. } = self.held.pop_front()?;
        Some(Timed { packet, pts: shown?, dts: decoded })
    }
}
