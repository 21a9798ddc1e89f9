//! Recovery: closes recordings that were left open, of every kind of source alike.

use std::{sync::Arc, time::Duration};

use media::{JobId, RunId, Seq};
use timeline::{
    AnalysisKey, Event, EventKind, FindingKind, FramesDecoded, INTERRUPTED, Timeline, TimelineError,
};

use super::{IngestError, JobRunner};
use crate::{
    base::labels::TenantLabels,
    record::{
        recorder::Recorder,
        recording::{DAMAGED, Head, RunLog, Sealed, failed},
    },
    runs::registry::{Growing, Run, each_of_kind},
};

impl JobRunner {
    /// Closes the recording of `job`, which has no writer; returns its number of frames. Fails the run if the
    /// job was cut off, or is a live session. If there is no room, the recording stays as it is.
    pub(super) fn recover(
        &self,
        (id, job): (RunId, JobId),
        is_cut_off: bool,
    ) -> Result<u64, IngestError> {
        let (registry, stores) = (&self.parts.registry, &self.parts.stores);
        let Some(mut rows) = stores.columns.read(id, job)? else { return Ok(0) };
        let Some(run) = registry.run(id) else {
            tracing::error!(run = %id, %job, "the log lacks the run of a recording, which stays");
            return Ok(0);
        };
        let run = Some(run).filter(|run| run.lifecycle().is_visible());
        let head = Head::read(rows.head());
        let frames = rows.by_ref().count() as u64;
        // A read error must not count as the end of the rows, which would then be removed.
        let cut = rows.end()?;
        if cut.is_damaged {
            let (bytes, rows) = (cut.bytes, cut.rows_max);
            tracing::error!(run = %id, %job, bytes, rows, "the end of a recording is damaged");
            stores.columns.keep_damaged(id, job)?;
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
        let reason = self.show(&run, job, &head)?;
        let last = (is_cut_off || head.session().is_some())
            .then(|| failed(Some(head.decoded.request_id), reason));
        let (left, count) = self.left(&run, job, &head)?;
        let hold = registry.quota.hold(&run.origin().principal);
        // No waiting for room: the next periodic retry tries again.
        let log = RunLog { patience: Duration::ZERO, ..RunLog::new(registry, &run) };
        let (sealed, _) = Sealed::copy(log, stores.clone(), job, hold)?;
        let decoded = FramesDecoded {
            truncated: true,
            reason: Some(match cut.is_damaged {
                true => format!("{reason}, and {DAMAGED}"),
                false => reason.to_owned(),
            }),
            ..head.decoded
        };
        let closing = sealed.events(Head { decoded, ..head }, count);
        sealed.close(left.into_iter().chain(closing), last)?;
        Ok(frames)
    }

    /// Shows the recording of an earlier server to readers until it is closed; returns the reason of its end.
    fn show(&self, run: &Run, job: JobId, head: &Head) -> Result<&'static str, TimelineError> {
        if let Some(growing) = run.growing().filter(|growing| growing.job == job) {
            return Ok(growing.reason);
        }
        let (id, reason) = (run.id(), INTERRUPTED);
        let since = began(self.parts.registry.timeline(), id, job)?;
        // Rows that a power cut may lose are not shown.
        match self.parts.stores.columns.sync(id, job) {
            Ok(()) => {
                let Head { decoded, analysis, .. } = head.clone();
                let synced = Arc::new(u64::MAX.into());
                run.show_recording(Growing { job, synced, since, reason, decoded, analysis });
            }
            Err(error) => {
                tracing::warn!(run = %id, %job, %error, "a recording is not shown before it is closed");
            }
        }
        Ok(reason)
    }

    /// Returns the markers, loops and episodes that the log lacks, and the number of all markers. They
    /// follow from the rows alone, and the log has the first ones of each kind.
    fn left(&self, run: &Run, job: JobId, head: &Head) -> Result<(Vec<Event>, u64), TimelineError> {
        let timeline = self.parts.registry.timeline();
        let mut recorder = self.replay(run, head)?;
        let (mut events, mut markers) = (Vec::new(), 0);
        let mut told = told(timeline, (run.id(), job), head)?;
        let mut keep = |recorder: &mut Recorder| {
            for (_, event) in recorder.take().events {
                let kind = event.kind();
                let Some(at) = REPLAYED.iter().position(|replayed| *replayed == kind) else {
                    continue;
                };
                markers += u64::from(kind == EventKind::MarkerEmitted);
                match &mut told[at] {
                    0 => events.push(event),
                    left => *left -= 1,
                }
            }
        };
        if let Some(mut rows) = self.parts.stores.columns.read(run.id(), job)? {
            for row in rows.by_ref() {
                recorder.decide(row);
                keep(&mut recorder);
            }
            rows.end()?;
        }
        recorder.end();
        keep(&mut recorder);
        Ok((events, markers))
    }

    /// Creates the recorder of a recording, before its first row.
    fn replay(&self, run: &Run, head: &Head) -> Result<Recorder, TimelineError> {
        let FramesDecoded { stream_id, gate, .. } = &head.decoded;
        let key = match head.analysis.as_ref().and_then(|analysis| analysis.analysis_id) {
            None => None,
            Some(id) => {
                let next = run.next_analysis(self.parts.registry.timeline(), stream_id)?;
                let keys =
                    (0..=next.ordinal).map(|ordinal| AnalysisKey { ordinal, ..next.clone() });
                keys.into_iter().find(|key| key.id() == id)
            }
        };
        let analysed = head.analysis.as_ref().and_then(|analysis| analysis.gate);
        let gate = analysed.or(*gate).unwrap_or(self.parts.gate);
        let tenant = run.origin().tenant.clone();
        let words = TenantLabels { maps: self.parts.labels.get(), tenant };
        Ok(head.recorder(gate, words, key, head.session()))
    }
}

/// Event kinds that follow from the rows of a recording.
const REPLAYED: [EventKind; 4] = [
    EventKind::MarkerEmitted,
    EventKind::LoopDetected,
    EventKind::ActivityStarted,
    EventKind::ActivityEnded,
];

/// Counts the events of each of these kinds that the log has of a job's recording.
fn told(
    timeline: &Timeline,
    (run, job): (RunId, JobId),
    head: &Head,
) -> Result<[u64; REPLAYED.len()], TimelineError> {
    let analysis = head.analysis.as_ref().and_then(|analysis| analysis.analysis_id);
    let is_own = |event: &Event| match event {
        Event::MarkerEmitted(marker) => marker.analysis_id == analysis,
        // No other job of the run records loops at the same time.
        Event::Found(FindingKind::LoopDetected, _) => true,
        Event::ActivityStarted(episode) | Event::ActivityEnded(episode) => {
            episode.request_id == head.decoded.request_id
        }
        _ => false,
    };
    let started = began(timeline, run, job)?;
    let mut counts = [0; REPLAYED.len()];
    for (kind, count) in REPLAYED.into_iter().zip(&mut counts) {
        // Since then hardly any other job has told of these: a damaged event counts as the recording's.
        let mut next = started;
        each_of_kind(timeline, run, kind, &mut next, |_, event| {
            *count += u64::from(event.is_none_or(|event| is_own(&event)));
        })?;
    }
    Ok(counts)
}

/// Event that began the recording of `job`; 0 for that of a live session, the first of its run. No ingest
/// follows one that is left, so that a damaged last event is its own.
fn began(timeline: &Timeline, run: RunId, job: JobId) -> Result<Seq, TimelineError> {
    let mut started = Seq(0);
    each_of_kind(timeline, run, EventKind::IngestStarted, &mut Seq(0), |seq, event| {
        if event.is_none_or(|event| matches!(event, Event::IngestStarted(of) if of.job_id == job)) {
            started = seq;
        }
    })?;
    Ok(started)
}

#[cfg(test)]
mod tests {
    use media::RequestId;
    use timeline::{IngestStarted, JsonText, NewEvent, TimelineOptions};

    use super::*;
    use crate::runs::registry::tests::samples::damage;

    #[test]
    fn a_recording_that_is_left_began_with_the_last_start_of_its_run_even_if_that_is_damaged() {
        let dir = tempfile::tempdir().expect("a directory");
        let (log, _) = Timeline::open(dir.path(), TimelineOptions::default()).expect("opened");
        let run = RunId::from_bytes([1; 16]);
        let jobs = [1, 2].map(|at| JobId::from_bytes([at; 16]));
        for job_id in jobs {
            let request_id = RequestId::from_bytes([1; 8]);
            let ingest = JsonText::parse(r#"{"source_uri":"a.mp4"}"#).expect("JSON");
            let event = Event::IngestStarted(IngestStarted { request_id, job_id, ingest });
            log.append_wait(vec![NewEvent { run, event }]).expect("durable");
        }
        let found = || began(&log, run, jobs[1]).expect("readable");
        assert_eq!(found(), Seq(2));
        for job in jobs {
            damage(dir.path(), &job.to_string());
            assert_eq!(found(), Seq(2), "{job} is damaged");
        }
    }
}
