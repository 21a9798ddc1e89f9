//! Recordings whose server ended without a word, closed at the next start: of every source in the same way.

use std::sync::Arc;

use media::{AnalysisId, JobId, Marker, RequestId, RunId, Seq};
use timeline::{
    AnalysisGenerated, AnalysisKey, Event, EventKind, Finding, FramesDecoded, MarkerConfig,
    MarkerDeriver, RunFailed, Timeline, TimelineError,
};
use tokio::runtime::Handle;

use super::{IngestError, Runner, under_way::INTERRUPTED};
use crate::{
    base::labels::{LabelMaps, Words},
    record::{
        recorder::{Recorder, RecorderSpec},
        recording::{Head, RunLog, Sealed},
    },
    runs::registry::Run,
};

/// Events read at a time.
const PAGE: usize = 1000;

impl Runner {
    /// Closes the recording of `job`, which a server began that ended; returns how many frames it has.
    pub(super) fn recover(
        &self,
        (id, job): (RunId, JobId),
        labels: &Arc<LabelMaps>,
    ) -> Result<u64, IngestError> {
        let (registry, stores) = (&self.parts.registry, &self.parts.stores);
        let run = registry.run(id).filter(|run| run.lifecycle().is_visible());
        let Some(mut rows) = stores.columns.read(id, job)? else { return Ok(0) };
        let head = Head::read(rows.head());
        let frames = rows.by_ref().count() as u64;
        // A disk that does not give the rest removes nothing.
        let cut = rows.end()?;
        if cut.is_damaged {
            let (bytes, most) = (cut.bytes, cut.rows_max());
            tracing::error!(run = %id, %job, bytes, rows = most, "the end of a recording is damaged");
        }
        if run.is_some() && head.is_none() && cut.bytes > 0 {
            tracing::error!(run = %id, %job, "a recording does not say what it is of: it stays");
            return Ok(0);
        }
        let (Some(run), Some(head), 1..) = (run, head, frames) else {
            stores.remove(id, job);
            return Ok(0);
        };
        let told = registry.timeline().latest_frames(id, Some(&head.decoded.stream_id))?;
        if told.is_some_and(|(_, told)| told.request_id == head.decoded.request_id) {
            stores.remove(id, job);
            return Ok(0);
        }
        let last = interrupted(head.decoded.request_id);
        let (markers, count) = match &head.analysis {
            Some(analysis) => self.markers_left(&run, job, analysis, labels)?,
            None => (Vec::new(), 0),
        };
        let hold = registry.quota().hold(&run.origin().principal);
        let log = RunLog { registry: Arc::clone(registry), run, runtime: Handle::current() };
        let sealed = Sealed::copy(log, stores.clone(), job, hold)?;
        let decoded = FramesDecoded {
            truncated: true,
            reason: Some(INTERRUPTED.to_owned()),
            signals: sealed.signals().clone(),
            ..head.decoded
        };
        let closing = Head { decoded, ..head }.events(frames, count);
        sealed.close(markers.into_iter().map(Event::MarkerEmitted).chain(closing), Some(last))?;
        Ok(frames)
    }

    /// Markers of a recording that the log has not got, and how many there are in all: they are a function of its
    /// rows, and those that were told are the first of them.
    fn markers_left(
        &self,
        run: &Run,
        job: JobId,
        analysis: &AnalysisGenerated,
        labels: &Arc<LabelMaps>,
    ) -> Result<(Vec<Marker>, u64), TimelineError> {
        let timeline = self.parts.registry.timeline();
        let Some(id) = analysis.analysis_id else { return Ok((Vec::new(), 0)) };
        let next = run.next_analysis(timeline, &analysis.stream_id)?;
        let keys = (0..=next.ordinal).map(|ordinal| AnalysisKey { ordinal, ..next.clone() });
        let Some(key) = keys.into_iter().find(|key| key.id() == id) else {
            return Ok((Vec::new(), 0));
        };
        let tenant = run.origin().tenant.clone();
        let mut recorder = Recorder::new(RecorderSpec {
            gate: analysis.gate.unwrap_or(self.parts.gate),
            words: Words { maps: Arc::clone(labels), tenant },
            markers: Some(MarkerDeriver::new(key, MarkerConfig::default())),
            finding: Finding::default(),
        });
        let told = told(timeline, run.id(), id)?;
        let mut left = Vec::new();
        let mut keep = |recorder: &mut Recorder| {
            let events = recorder.take().events.into_iter();
            left.extend(events.filter_map(|(_, event)| match event {
                Event::MarkerEmitted(marker) => Some(marker),
                _ => None,
            }));
        };
        if let Some(mut rows) = self.parts.stores.columns.read(run.id(), job)? {
            for row in rows.by_ref() {
                recorder.frame(row);
                keep(&mut recorder);
            }
            rows.end()?;
        }
        recorder.end();
        keep(&mut recorder);
        let count = left.len() as u64;
        left.drain(..told.min(left.len()));
        Ok((left, count))
    }
}

/// Number of the markers of an analysis that the log has.
fn told(timeline: &Timeline, run: RunId, analysis: AnalysisId) -> Result<usize, TimelineError> {
    let (mut from, mut count) = (Seq(0), 0);
    loop {
        let page = timeline.read_parts(run, from, PAGE, Some(EventKind::MarkerEmitted))?;
        let Some(last) = page.last() else { return Ok(count) };
        from = Seq(last.head.seq.0 + 1);
        for parts in page {
            if let Event::MarkerEmitted(marker) = parts.decode()? {
                count += usize::from(marker.analysis_id == Some(analysis));
            }
        }
    }
}

/// Event that a job of a run was cut off.
pub(super) fn interrupted(request_id: RequestId) -> Event {
    let reason = INTERRUPTED.to_owned();
    Event::RunFailed(RunFailed { request_id: Some(request_id), reason })
}
