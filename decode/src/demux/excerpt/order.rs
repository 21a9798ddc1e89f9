//! Pictures of an excerpt in decode order, with presentation times.
//!
//! For containers without presentation times, a decoder gives the presentation order, at a constant rate.

use std::collections::VecDeque;

use super::AHEAD_MAX;
use crate::{decoder::FrameDecoder, ffi::Packet};

/// Most errors of a decoder in one go while its pictures are taken.
const ERRORS_MAX: u32 = 64;

/// Picture and its times.
pub(super) struct Timed {
    pub packet: Packet,
    pub pts: i64,
    pub dts: i64,
}

struct Held {
    packet: Packet,
    /// Number of pictures before this one in decode order.
    key: i64,
    decoded: i64,
    shown: Option<i64>,
}

pub(super) struct Order {
    /// Decoder that gives the presentation order of pictures without times.
    decoder: Option<Box<dyn FrameDecoder>>,
    /// Number of pictures decoded before the first is presented, and ticks per picture.
    depth: i64,
    step: i64,
    pushed: i64,
    held: VecDeque<Held>,
    /// Presentation times not yet assigned to a picture.
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
            // Containers with presentation times only: libav derives no decode times for the first packets.
            let decoded = packet.dts().unwrap_or_else(|| match self.depth - key {
                left @ 1.. => first.saturating_sub(left.saturating_mul(self.step)),
                _ => i64::MIN,
            });
            self.held.push_back(Held { packet, key, decoded, shown: Some(shown) });
            return;
        };
        self.ranks.push_back(decoded.saturating_add(self.depth.saturating_mul(self.step)));
        if let Ok(keyed) = Packet::copied([packet.data(), &[]], key) {
            // A packet that the decoder refuses gets no time and is left out.
            decoder.send(Some(&keyed)).ok();
        }
        self.held.push_back(Held { packet, key, decoded, shown: None });
        self.take_out(decoder.as_mut());
        self.decoder = Some(decoder);
    }

    /// Signals that no picture follows.
    pub fn end(&mut self) {
        if let Some(mut decoder) = self.decoder.take() {
            // A decoder that refuses the end signal still returns the pictures that it has.
            decoder.send(None).ok();
            self.take_out(decoder.as_mut());
        }
        self.is_over = true;
    }

    fn take_out(&mut self, decoder: &mut dyn FrameDecoder) {
        let mut errors = 0;
        loop {
            match decoder.receive() {
                Ok(Some(frame)) => {
                    let Some(key) = frame.packet_pts() else { continue };
                    let Some(held) = self.held.iter_mut().find(|held| held.key == key) else {
                        continue;
                    };
                    held.shown = self.ranks.pop_front();
                    if key == 0 {
                        self.first = held.shown;
                    }
                }
                Ok(None) => return,
                Err(_) if errors < ERRORS_MAX => errors += 1,
                Err(_) => return,
            }
        }
    }

    /// Returns the next picture in decode order, once its presentation time is known and it or a later one
    /// `is_wanted`.
    pub fn pop(&mut self, is_wanted: impl Fn(i64) -> bool) -> Option<Timed> {
        loop {
            let front = self.held.front()?;
            match front.shown {
                // Probably never presented: hidden, damaged, or with missing references.
                None if self.is_over || self.held.len() > AHEAD_MAX => {
                    self.held.pop_front();
                }
                None => return None,
                // The picture follows the keyframe in decode order but precedes it in presentation order.
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
