//! Counters of each principal's own work, shown to that principal alone: no series, and shown to no scraper.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use prometheus::Registry;

use crate::base::keys::Principal;

/// Counters of a principal's work.
#[derive(Debug, Default)]
pub struct Work {
    /// Frames that the gate decided about.
    pub frames: AtomicU64,
    /// Frames among them that it keeps.
    pub kept: AtomicU64,
    /// Descriptions that models gave.
    pub descriptions: AtomicU64,
    /// Tokens of their answers.
    pub tokens: AtomicU64,
    /// Requests refused to keep a limit.
    pub refused: AtomicU64,
}

/// The counts of [`Work`] at one moment, or of a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames that the gate decided about.
    pub frames: u64,
    /// Frames among them that it keeps.
    pub kept: u64,
    /// Descriptions that models gave.
    pub descriptions: u64,
    /// Tokens of their answers.
    pub tokens: u64,
    /// Requests refused to keep a limit.
    pub refused: u64,
}

impl Work {
    /// The frames of a span of signals were decided about.
    pub fn decided(&self, frames: u64, kept: u64) {
        self.frames.fetch_add(frames, Relaxed);
        self.kept.fetch_add(kept, Relaxed);
    }

    /// Counts so far.
    pub fn tally(&self) -> Tally {
        Tally {
            frames: self.frames.load(Relaxed),
            kept: self.kept.load(Relaxed),
            descriptions: self.descriptions.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }
}

impl Tally {
    /// Counts since `before`.
    pub fn since(&self, before: &Tally) -> Tally {
        Tally {
            frames: self.frames.saturating_sub(before.frames),
            kept: self.kept.saturating_sub(before.kept),
            descriptions: self.descriptions.saturating_sub(before.descriptions),
            tokens: self.tokens.saturating_sub(before.tokens),
            refused: self.refused.saturating_sub(before.refused),
        }
    }
}

/// The work of every principal, of which the configuration bounds the number.
#[derive(Default)]
pub struct Owners(Mutex<HashMap<Principal, Arc<Work>>>);

impl Owners {
    pub(super) fn new(_: &Registry, _: &str, _: String) -> Owners {
        Owners::default()
    }

    /// The counts of `principal`, which may be kept.
    pub fn of(&self, principal: &Principal) -> Arc<Work> {
        Arc::clone(self.0.lock().entry(principal.clone()).or_default())
    }

    /// Counts of each principal so far.
    pub fn tallies(&self) -> HashMap<Principal, Tally> {
        self.0.lock().iter().map(|(owner, work)| (owner.clone(), work.tally())).collect()
    }
}
