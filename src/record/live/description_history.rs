//! History of descriptions that a worker keeps from one answer to the next.

use std::collections::VecDeque;

use media::Seq;
use timeline::FindingPayload;

/// Maximum number of descriptions kept.
const REMEMBERED: usize = 8;

/// Last answers of one description worker.
#[derive(Default)]
pub struct DescriptionHistory {
    /// Class of the last recorded failure; `None` since the last answer.
    pub failing: Option<&'static str>,
    /// Last descriptions and the sequence numbers of their events, newest last.
    told: VecDeque<(Seq, FindingPayload)>,
}

impl DescriptionHistory {
    /// Returns the kept event whose description equals that of `found`.
    pub fn repeated(&self, found: &FindingPayload) -> Option<(Seq, FindingPayload)> {
        self.told.iter().find(|(_, told)| told.description == found.description).cloned()
    }

    pub fn last(&self) -> Option<&FindingPayload> {
        self.told.back().map(|(_, finding)| finding)
    }

    /// Keeps `finding`, which the event `seq` recorded; drops the oldest one over the limit.
    pub fn remember(&mut self, seq: Seq, finding: FindingPayload) {
        if self.told.len() == REMEMBERED {
            self.told.pop_front();
        }
        self.told.push_back((seq, finding));
    }
}
