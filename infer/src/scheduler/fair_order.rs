//! Fair order: round-robin over principals within a priority, and over streams within a principal.
//!
//! A turn is a number; the lowest goes first, and a served or new entry gets the highest. So no entry is
//! served twice while another of its kind could be. A principal at its limit is skipped; its next slot
//! belongs to the priority that was skipped.

use std::{collections::HashMap, sync::Arc};

use super::{AdmissionRequest, LIVE_BEFORE_OFFLINE, Priority};

type PrincipalKey = (Priority, Arc<str>);
type StreamKey = (Priority, Arc<str>, Arc<str>);

/// Turns of all waiting principals and streams.
#[derive(Debug, Default)]
pub(super) struct FairOrder {
    clock: u64,
    principals: HashMap<PrincipalKey, u64>,
    streams: HashMap<StreamKey, u64>,
    /// Highest turn served per priority; a waiting principal with a lower turn was skipped.
    served: HashMap<Priority, u64>,
    /// Live requests served in a row while an offline one could have been served.
    live_in_a_row: u32,
}

fn keys(request: &AdmissionRequest) -> (PrincipalKey, StreamKey) {
    let (principal, stream) = (Arc::clone(&request.principal), Arc::clone(&request.stream));
    ((request.priority, Arc::clone(&principal)), (request.priority, principal, stream))
}

impl FairOrder {
    /// Records that a request begins to wait.
    pub(super) fn joined(&mut self, request: &AdmissionRequest) {
        self.clock += 1;
        let (principal, stream) = keys(request);
        self.principals.entry(principal).or_insert(self.clock);
        self.streams.entry(stream).or_insert(self.clock);
    }

    /// Records that a request left the queue; `left` are the requests that still wait.
    pub(super) fn left<'a>(
        &mut self,
        request: &AdmissionRequest,
        left: impl Iterator<Item = &'a AdmissionRequest>,
    ) {
        let of_principal = |other: &&AdmissionRequest| {
            (other.priority, &other.principal) == (request.priority, &request.principal)
        };
        let mut same = left.filter(of_principal).peekable();
        let (principal, stream) = keys(request);
        if same.peek().is_none() {
            self.principals.remove(&principal);
        }
        if !same.any(|other| other.stream == request.stream) {
            self.streams.remove(&stream);
        }
    }

    /// Records that a waiting request is admitted; with `offline_waits` an offline one waits as well, which
    /// could be served if there is an `offline_slot`.
    pub(super) fn served(
        &mut self,
        request: &AdmissionRequest,
        offline_waits: bool,
        offline_slot: bool,
    ) {
        self.clock += 1;
        let (principal, stream) = keys(request);
        if let Some(turn) = self.principals.get_mut(&principal) {
            let served = self.served.entry(request.priority).or_default();
            *served = (*turn).max(*served);
            *turn = self.clock;
        }
        if let Some(turn) = self.streams.get_mut(&stream) {
            *turn = self.clock;
        }
        self.live_in_a_row = match request.priority {
            Priority::Live if offline_waits => self.live_in_a_row + u32::from(offline_slot),
            Priority::Live | Priority::Offline => 0,
        };
    }

    /// Returns true if offline work was skipped often enough.
    pub(super) fn is_offline_due(&self) -> bool {
        self.live_in_a_row >= LIVE_BEFORE_OFFLINE
    }

    /// Returns true if the principal's next slot belongs to `priority`: its requests of that priority were
    /// skipped, and for longer than those of the other one.
    pub(super) fn is_owed(&self, priority: Priority, principal: &Arc<str>) -> bool {
        let passed = |priority| {
            let turn = self.principals.get(&(priority, Arc::clone(principal)))?;
            Some(*turn).filter(|turn| Some(turn) < self.served.get(&priority))
        };
        let other = passed(priority.other());
        passed(priority).is_some_and(|turn| other.is_none_or(|other| turn < other))
    }

    /// Returns the position of a waiting request within its priority.
    pub(super) fn position(&self, request: &AdmissionRequest) -> (u64, u64) {
        let (principal, stream) = keys(request);
        let turn = |turn: Option<&u64>| turn.copied().unwrap_or(u64::MAX);
        (turn(self.principals.get(&principal)), turn(self.streams.get(&stream)))
    }
}
