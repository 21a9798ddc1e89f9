//! History of descriptions that a worker keeps from one answer to the next.

use std::collections::VecDeque;

use media::Seq;
use timeline::FindingPayload;

/// Descriptions that are remembered.
const REMEMBERED: usize = 8;

/// The last answers, and how far the worker has come.
#[derive(Default)]
pub struct DescriptionHistory {
    /// The first frame that was not asked about.
    pub next_frame: u64,
    /// The class of the failure that was recorded and has not passed.
    pub failing: Option<&'static str>,
    /// The last descriptions and their events, the newest last.
    told: VecDeque<(Seq, FindingPayload)>,
}

impl DescriptionHistory {
    /// The event that said what `found` says.
    pub fn repeated(&self, found: &FindingPayload) -> Option<(Seq, FindingPayload)> {
        self.told.iter().find(|(_, told)| told.description == found.description).cloned()
    }

    /// The last description.
    pub fn last(&self) -> Option<&FindingPayload> {
        self.told.back().map(|(_, finding)| finding)
    }

    /// The event `seq` says `finding`.
    pub fn remember(&mut self, seq: Seq, finding: FindingPayload) {
        if self.told.len() == REMEMBERED {
            self.told.pop_front();
        }
        self.told.push_back((seq, finding));
    }

    /// The question changed: what was answered before is of no account.
    pub fn forget(&mut self) {
        self.failing = None;
        self.told.clear();
    }
}
