//! Counters of each principal's own work, shown to that principal alone and never exposed to scrapers.

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

/// Counts of a principal's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts<T> {
    /// Frames that the gate decided about.
    pub frames: T,
    /// Frames among them that the gate selected.
    pub kept: T,
    /// Descriptions returned by models.
    pub descriptions: T,
    /// Tokens of those descriptions.
    pub tokens: T,
    /// Requests refused to keep a limit.
    pub refused: T,
}

/// Counters of a principal's work.
pub type Work = Counts<AtomicU64>;
/// Values of [`Work`] at one moment, or their increase over a period.
pub type Tally = Counts<u64>;

impl Work {
    /// Adds `frames` that the gate decided about, `kept` of which it selected.
    pub fn decided(&self, frames: u64, kept: u64) {
        self.frames.fetch_add(frames, Relaxed);
        self.kept.fetch_add(kept, Relaxed);
    }

    /// Returns the counts so far.
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
    /// Returns the increase since `before`.
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

/// Counters of each principal; the configuration bounds the number of principals.
#[derive(Default)]
pub struct Owners(Mutex<HashMap<Principal, Arc<Work>>>);

impl Owners {
    pub(super) fn new(_: &Registry, _: &str, _: String) -> Owners {
        Owners::default()
    }

    /// Returns the counters of `principal`, which callers may hold on to.
    pub fn of(&self, principal: &Principal) -> Arc<Work> {
        Arc::clone(self.0.lock().entry(principal.clone()).or_default())
    }

    /// Returns the counts of each principal so far.
    pub fn tallies(&self) -> HashMap<Principal, Tally> {
        self.0.lock().iter().map(|(owner, work)| (owner.clone(), work.tally())).collect()
    }
}
