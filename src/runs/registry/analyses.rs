//! Analyses of a run, by its events: the newest of each stream, and the lock to add another.

use std::{collections::HashMap, sync::Arc};

use gate::GateConfig;
use media::{AnalysisId, Seq, StreamId, Zones};
use timeline::{AnalysisGenerated, AnalysisKey, Event, EventKind, Timeline, TimelineError};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{each_of_kind, readable, run::Run};

/// Analyses in the events before `next`, and the lock to add another.
#[derive(Default)]
pub(super) struct Analyses {
    next: Seq,
    made: Vec<Made>,
    /// Number of events of analyses that cannot be read.
    damaged: u64,
    turn: Arc<Mutex<()>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    seq: Seq,
    stream: StreamId,
    /// Id of the analysis; `None` if it is older than ids of analyses.
    pub id: Option<AnalysisId>,
    /// Thresholds of the analysis; `None` likewise.
    pub gate: Option<GateConfig>,
}

impl Made {
    fn of(seq: Seq, generated: &AnalysisGenerated) -> Made {
        let AnalysisGenerated { stream_id, analysis_id, gate, .. } = generated;
        Made { seq, stream: stream_id.clone(), id: *analysis_id, gate: *gate }
    }

    /// Returns the zones that replaced those of the recording; blocks on the disk.
    pub fn zones(&self, timeline: &Timeline) -> Result<Option<Zones>, TimelineError> {
        let event = timeline.get_parts(self.seq)?.and_then(|stored| readable(&stored));
        Ok(match event {
            // For the analysis of an open recording, the event at `seq` is an unrelated one.
            Some(Event::AnalysisGenerated(made)) if made.analysis_id == self.id => made.zones,
            _ => None,
        })
    }
}

impl Run {
    /// Locks the choice of the next analysis's ordinal and its recording; others wait until the
    /// guard is dropped.
    pub async fn analysis_turn(&self) -> OwnedMutexGuard<()> {
        let turn = Arc::clone(&self.analyses.lock().turn);
        turn.lock_owned().await
    }

    /// Returns the key of the next analysis of `stream`; blocks on the disk.
    pub fn next_analysis(
        &self,
        timeline: &Timeline,
        stream: &StreamId,
    ) -> Result<AnalysisKey, TimelineError> {
        let growing = self.growing();
        self.with_analyses(timeline, |made| {
            // The analysis of an open recording has taken its ordinal, but has no event before its end.
            let growing = growing.filter(|growing| growing.decoded.stream_id == *stream);
            let growing = growing.and_then(|growing| growing.analysis.as_ref()?.analysis_id);
            let taken = growing.is_some_and(|id| made.iter().all(|made| made.id != Some(id)));
            let ended = made.iter().filter(|made| made.stream == *stream).count();
            let ordinal = ended as u64 + u64::from(taken);
            AnalysisKey { run: self.id(), stream: stream.clone(), ordinal }
        })
    }

    /// Returns the newest analysis of each stream in the events up to `until`; blocks on the disk.
    pub fn newest_analyses(
        &self,
        timeline: &Timeline,
        until: Seq,
    ) -> Result<HashMap<StreamId, Made>, TimelineError> {
        let growing = self.growing();
        self.with_analyses(timeline, |made| {
            let made = made.iter().take_while(|made| made.seq <= until);
            let mut newest: HashMap<_, _> =
                made.map(|made| (made.stream.clone(), made.clone())).collect();
            if let Some(growing) = growing
                && let Some(analysis) = &growing.analysis
                && newest.get(&analysis.stream_id).is_none_or(|made| made.seq <= growing.since)
            {
                newest.insert(analysis.stream_id.clone(), Made::of(growing.since, analysis));
            }
            newest
        })
    }

    /// Returns the number of analyses that cannot be read, by the events read so far.
    pub fn damaged_analyses(&self) -> u64 {
        self.analyses.lock().damaged
    }

    /// Calls `take` with all analyses, after reading the new events.
    fn with_analyses<T>(
        &self,
        timeline: &Timeline,
        take: impl FnOnce(&[Made]) -> T,
    ) -> Result<T, TimelineError> {
        let mut analyses = self.analyses.lock();
        let Analyses { next, made, damaged, .. } = &mut *analyses;
        let kind = EventKind::AnalysisGenerated;
        each_of_kind(timeline, self.id(), kind, next, |seq, event| match event {
            Some(Event::AnalysisGenerated(generated)) => made.push(Made::of(seq, &generated)),
            Some(_) => {}
            None => *damaged += 1,
        })?;
        Ok(take(&analyses.made))
    }
}
