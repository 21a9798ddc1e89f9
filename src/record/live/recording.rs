//! Recording of one live session: begins with the first frame, ends with the session.

use std::sync::Arc;

use media::{Dimensions, JobId, Label, SessionId, StreamId};
use timeline::{AnalysisKey, Event, FramesDecoded, SamplingPolicy};

use super::{
    PublisherIdentity, SessionOptions, session::EndReason, session_events::SessionProgress,
};
use crate::{
    base::{
        blocking::{TaskPanicked, blocking},
        clock::wall_now,
    },
    record::{
        recorder::Recorder,
        recording::{self, Head, JobStorage, RecordError, Recording, RunLog},
    },
    runs::registry::{Part, RunError},
};

const STREAM: &str = "main";

/// Recording of a session; exists before the first frame.
pub struct LiveRecording {
    log: RunLog,
    stores: JobStorage,
    job: JobId,
    /// Events that close the recording, as far as they are known.
    head: Head,
    has_begun: bool,
    /// Recording in progress; `None` before its first frame, and if it is left for the next start.
    recording: Option<Recording>,
}

impl LiveRecording {
    /// Creates a recording without frames, and the recorder of its frames, whose markers are the
    /// first analysis of the run.
    pub fn new(
        log: RunLog,
        stores: JobStorage,
        session: SessionId,
        who: &PublisherIdentity,
        wishes: &SessionOptions,
    ) -> (LiveRecording, Recorder) {
        let stream_id: StreamId = STREAM.parse().expect("a valid stream id");
        let key = AnalysisKey { run: log.run.id(), stream: stream_id.clone(), ordinal: 0 };
        let (uri, policy) = (format!("whip:{session}"), SamplingPolicy::SourceFpsAdaptive);
        let decoded = FramesDecoded {
            gate: Some(wishes.gate),
            zones: wishes.zones.clone(),
            ..FramesDecoded::new(who.request_id, uri, stream_id, policy)
        };
        let analysis = Some(recording::analysis(&key, &decoded, &log.run));
        let index_name = wishes.index_name.clone();
        let head = Head { received: None, decoded, analysis, index_name };
        let recorder = head.recorder(wishes.gate, who.words.clone(), Some(key), Some(session));
        let job = JobId::from_bytes(*session.as_bytes());
        (LiveRecording { log, stores, job, head, has_begun: false, recording: None }, recorder)
    }

    pub fn index_name(&self) -> Option<&Label> {
        self.head.index_name.as_ref()
    }

    pub fn stream_id(&self) -> &StreamId {
        &self.head.decoded.stream_id
    }

    pub fn decoded_by(&mut self, decoder: String) {
        self.head.decoded.decoder = Some(decoder).filter(|decoder| !decoder.is_empty());
    }

    /// Closes the open segment; returns the numbers of frames and markers.
    pub fn end(&self, shared: &SessionProgress) -> (u64, u64) {
        shared.recorder().map_or((0, 0), |mut recorder| {
            recorder.end();
            (recorder.frames(), recorder.markers())
        })
    }

    /// Writes the pending decisions; fails with a reason if the session must end. Not cancel safe: a
    /// dropped call loses the recording, which the write holds meanwhile.
    pub async fn write(&mut self, shared: &SessionProgress) -> Result<(), EndReason> {
        let batch = shared.recorder().map(|mut recorder| recorder.take());
        let Some(batch) = batch.filter(|batch| !batch.is_empty()) else { return Ok(()) };
        let mut recording = match self.recording.take() {
            Some(recording) => recording,
            // An earlier write failed: the recording is left for the next start.
            None if self.has_begun => return Ok(()),
            None => self.begin(shared).await?,
        };
        let written = blocking(move || {
            let outcome = recording.write(batch);
            (recording, outcome)
        });
        let (recording, outcome) = written.await.map_err(unrecorded)?;
        // Recovery writes the events that the log did not take, from the rows of the recording.
        let is_left =
            matches!(outcome, Err(RecordError::Run(RunError::Log(_) | RunError::Unfinished)));
        self.recording = (!is_left).then_some(recording);
        outcome.map_err(refused)
    }

    /// Begins the recording, at its first frame.
    async fn begin(&mut self, shared: &SessionProgress) -> Result<Recording, EndReason> {
        if let Some(Dimensions { width, height }) = shared.extent() {
            (self.head.decoded.width, self.head.decoded.height) = (width, height);
        }
        self.head.decoded.wall_start_ms = Some(Some(wall_now()));
        let (log, stores) = (self.log.clone(), self.stores.clone());
        let (job, head) = (self.job, self.head.clone());
        let begun = blocking(move || Recording::begin(log, stores, job, head));
        let begun = begun.await.map_err(unrecorded)?.map_err(refused)?;
        self.has_begun = true;
        Ok(begun)
    }

    /// Writes the rest, closes the recording with the reason `cut`, and ends the run with `last`.
    pub async fn close(
        &mut self,
        shared: &SessionProgress,
        cut: Option<&str>,
        last: Option<Event>,
    ) {
        let run = Arc::clone(&self.log.run);
        let (_, markers) = self.end(shared);
        // The session is ending already: a reason to end it is only logged.
        if let Err(EndReason::Failed(reason)) = self.write(shared).await {
            tracing::warn!(run = %run.id(), %reason, "the end of a live session is not recorded in full");
        }
        let (log, has_begun, mut head) = (self.log.clone(), self.has_begun, self.head.clone());
        let recording = self.recording.take();
        if let Some(Some(start)) = &mut head.decoded.wall_start_ms {
            *start = shared.wall_start(*start);
        }
        head.decoded.truncated = cut.is_some();
        head.decoded.reason = cut.map(str::to_owned);
        let closed = blocking(move || {
            if !has_begun {
                return log
                    .append_all(Part::End, std::iter::empty(), last)
                    .map_err(RecordError::Run);
            }
            // A recording that is left ends the run itself, at the next start.
            let Some(recording) = recording else { return Ok(false) };
            let sealed = recording.seal()?;
            let events = sealed.events(head, markers);
            Ok(sealed.close(events, last)?)
        });
        match closed.await {
            Ok(Ok(_) | Err(RecordError::Run(RunError::NotFound))) => {}
            Ok(Err(error)) => {
                tracing::error!(run = %run.id(), %error, "the end of a live session is not recorded");
            }
            Err(died) => {
                tracing::error!(run = %run.id(), error = %died, "recording a session died")
            }
        }
    }
}

fn unrecorded(_: TaskPanicked) -> EndReason {
    EndReason::Failed("its frames cannot be recorded".to_owned())
}

fn refused(error: RecordError) -> EndReason {
    match error {
        RecordError::Run(RunError::Terminal(_) | RunError::NotFound) => EndReason::RunOver,
        RecordError::Quota(_) | RecordError::Disk(_) => {
            EndReason::Failed(format!("stills cannot be kept: {error}"))
        }
        RecordError::Run(_) => {
            tracing::error!(%error, "events of a live session are lost");
            EndReason::Failed("events cannot be stored".to_owned())
        }
        RecordError::Store(_) => {
            tracing::error!(%error, "frames of a live session cannot be stored");
            EndReason::Failed("stills cannot be kept: they cannot be written".to_owned())
        }
    }
}
