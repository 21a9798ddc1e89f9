//! Fair order: principals take turns within a class, streams within a principal.
//!
//! A turn is a number; the least goes first, and whoever was served or comes anew gets the
//! greatest. So nobody is served twice while another of the same kind waits that could be.

use std::{collections::HashMap, sync::Arc};

use super::{Ask, Class, LIVE_TURNS};

type PrincipalKey = (Class, Arc<str>);
type StreamKey = (Class, Arc<str>, Arc<str>);

/// State of the offline requests when a live one goes before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassedOver {
    /// No offline request waits.
    None,
    /// An offline request waits that could go.
    One,
    /// They wait for offline work that is under way.
    NotNow,
}

/// The turns of all that wait.
#[derive(Debug, Default)]
pub(super) struct Turns {
    clock: u64,
    principals: HashMap<PrincipalKey, u64>,
    streams: HashMap<StreamKey, u64>,
    /// Live asks served in a row while an offline one could have been.
    live_in_a_row: u32,
}

fn keys(ask: &Ask) -> (PrincipalKey, StreamKey) {
    let (principal, stream) = (Arc::clone(&ask.principal), Arc::clone(&ask.stream));
    ((ask.class, Arc::clone(&principal)), (ask.class, principal, stream))
}

impl Turns {
    /// An ask begins to wait.
    pub(super) fn joined(&mut self, ask: &Ask) {
        self.clock += 1;
        let (principal, stream) = keys(ask);
        self.principals.entry(principal).or_insert(self.clock);
        self.streams.entry(stream).or_insert(self.clock);
    }

    /// An ask waits no longer, for whatever reason; `left` are those that still do.
    pub(super) fn left<'a>(&mut self, ask: &Ask, left: impl Iterator<Item = &'a Ask>) {
        let (mut principal_waits, mut stream_waits) = (false, false);
        for other in
            left.filter(|other| (other.class, &other.principal) == (ask.class, &ask.principal))
        {
            principal_waits = true;
            stream_waits |= other.stream == ask.stream;
        }
        let (principal, stream) = keys(ask);
        if !principal_waits {
            self.principals.remove(&principal);
        }
        if !stream_waits {
            self.streams.remove(&stream);
        }
    }

    /// An ask that has left goes to a model.
    pub(super) fn served(&mut self, ask: &Ask, passed_over: PassedOver) {
        self.clock += 1;
        let (principal, stream) = keys(ask);
        if let Some(turn) = self.principals.get_mut(&principal) {
            *turn = self.clock;
        }
        if let Some(turn) = self.streams.get_mut(&stream) {
            *turn = self.clock;
        }
        self.live_in_a_row = match (ask.class, passed_over) {
            (Class::Offline, _) | (_, PassedOver::None) => 0,
            (Class::Live, PassedOver::One) => self.live_in_a_row + 1,
            (Class::Live, PassedOver::NotNow) => self.live_in_a_row,
        };
    }

    /// Offline work was passed over often enough.
    pub(super) fn is_offlines(&self) -> bool {
        self.live_in_a_row >= LIVE_TURNS
    }

    /// Position of a waiting request within its class.
    pub(super) fn place(&self, ask: &Ask) -> (u64, u64) {
        let (principal, stream) = keys(ask);
        let turn = |turn: Option<&u64>| turn.copied().unwrap_or(u64::MAX);
        (turn(self.principals.get(&principal)), turn(self.streams.get(&stream)))
    }
}
