//! The analyses of a run, told from its events: which is the newest of a stream, and the turn to
//! add another.

use std::{collections::HashMap, sync::Arc};

use gate::GateConfig;
use media::{AnalysisId, Seq, StreamId, Zones};
use timeline::{AnalysisGenerated, AnalysisKey, Event, EventKind, Timeline, TimelineError};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{readable, run::Run};

/// Events read at a time.
const PAGE: usize = 1000;

/// The analyses in the events before `next`, and whose turn it is to add one.
#[derive(Default)]
pub(super) struct Analyses {
    next: Seq,
    made: Vec<Made>,
    turn: Arc<Mutex<()>>,
}

/// An analysis on the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    seq: Seq,
    stream: StreamId,
    /// Its name; `None` where that was before analyses had names.
    pub id: Option<AnalysisId>,
    /// Thresholds that it used; `None` likewise.
    pub gate: Option<GateConfig>,
}

impl Made {
    fn of(seq: Seq, generated: &AnalysisGenerated) -> Made {
        let AnalysisGenerated { stream_id, analysis_id, gate, .. } = generated;
        Made { seq, stream: stream_id.clone(), id: *analysis_id, gate: *gate }
    }

    /// Zones that it used in place of those of the recording; waits for the disk.
    pub fn zones(&self, timeline: &Timeline) -> Result<Option<Zones>, TimelineError> {
        let event = timeline.get_parts(self.seq)?.and_then(|stored| readable(&stored));
        Ok(match event {
            // Of one that grows it is another event that is there.
            Some(Event::AnalysisGenerated(made)) if made.analysis_id == self.id => made.zones,
            _ => None,
        })
    }
}

impl Run {
    /// The turn to choose the ordinal of an analysis and to record it: whoever else wants it waits
    /// until this is dropped.
    pub async fn analysis_turn(&self) -> OwnedMutexGuard<()> {
        let turn = Arc::clone(&self.analyses.lock().turn);
        turn.lock_owned().await
    }

    /// Key of the next analysis of `stream`; waits for the disk.
    pub fn next_analysis(
        &self,
        timeline: &Timeline,
        stream: &StreamId,
    ) -> Result<AnalysisKey, TimelineError> {
        let growing = self.growing();
        self.with_analyses(timeline, |made| {
            // The one that grows has taken its ordinal, and is told of at its end.
            let growing = growing.filter(|growing| growing.decoded.stream_id == *stream);
            let growing = growing.and_then(|growing| growing.analysis_id());
            let taken = growing.is_some_and(|id| made.iter().all(|made| made.id != Some(id)));
            let ended = made.iter().filter(|made| made.stream == *stream).count();
            let ordinal = ended as u64 + u64::from(taken);
            AnalysisKey { run: self.id(), stream: stream.clone(), ordinal }
        })
    }

    /// The newest analysis of each stream among the events up to `until`; waits for the disk.
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

    /// Reads only events that are new to it.
    fn with_analyses<T>(
        &self,
        timeline: &Timeline,
        take: impl FnOnce(&[Made]) -> T,
    ) -> Result<T, TimelineError> {
        let mut analyses = self.analyses.lock();
        loop {
            let kind = Some(EventKind::AnalysisGenerated);
            let page = timeline.read_parts(self.id(), analyses.next, PAGE, kind)?;
            let Some(last) = page.last() else { return Ok(take(&analyses.made)) };
            let next = Seq(last.head.seq.0 + 1);
            for stored in page {
                if let Some(Event::AnalysisGenerated(generated)) = readable(&stored) {
                    analyses.made.push(Made::of(stored.head.seq, &generated));
                }
            }
            analyses.next = next;
        }
    }
}
