//! Recording of one live session: begins with the first frame, ends with the session.

use std::sync::Arc;

use gate::GateConfig;
use media::{Dimensions, JobId, Label, RequestId, SessionId, Zones};
use timeline::{AnalysisKey, Event, FramesDecoded, SamplingPolicy, Signals};

use super::{session::EndReason, session_events::SessionProgress};
use crate::{
    base::{
        blocking::{TaskPanicked, blocking},
        clock::wall_now,
        labels::TenantLabels,
    },
    record::{
        recorder::Recorder,
        recording::{self, Head, JobStorage, RecordError, Recording, RunLog},
    },
    runs::registry::{Part, RunError},
};

/// Stream id of live video.
const STREAM: &str = "main";

/// Settings of a recording.
pub struct LiveRecordingSpec {
    /// Log of the run.
    pub log: RunLog,
    /// Stores that the recording is written to.
    pub stores: JobStorage,
    /// Id of the session.
    pub session: SessionId,
    /// Request that began the session.
    pub request_id: RequestId,
    /// Thresholds of the gate.
    pub gate: GateConfig,
    /// Zones of the picture that are watched.
    pub zones: Zones,
    /// Index name of the session's events.
    pub index_name: Option<Label>,
    /// Labels of the tenant.
    pub words: TenantLabels,
}

/// Recording of a session; exists before the first frame.
pub struct LiveRecording {
    spec: LiveRecordingSpec,
    recording: Option<Recording>,
    head: Option<Head>,
    decoder: Option<String>,
}

impl LiveRecordingSpec {
    /// Creates the recorder of the session's frames; its markers are the first analysis of the run.
    pub fn recorder(&self) -> Recorder {
        let (words, session) = (self.words.clone(), Some(self.session));
        self.head(None).recorder(self.gate, words, Some(self.analysis()), session)
    }

    fn analysis(&self) -> AnalysisKey {
        let stream = STREAM.parse().expect("a valid stream id");
        AnalysisKey { run: self.log.run.id(), stream, ordinal: 0 }
    }

    /// Returns the events that close the recording, as known at the first frame.
    fn head(&self, extent: Option<Dimensions>) -> Head {
        let key = self.analysis();
        let decoded = FramesDecoded {
            request_id: self.request_id,
            source_uri: format!("whip:{}", self.session),
            stream_id: key.stream.clone(),
            sampling_policy: SamplingPolicy::SourceFpsAdaptive,
            source_fps: None,
            sample_fps: None,
            decoded_frames: 0,
            width: extent.map_or(0, |extent| extent.width),
            height: extent.map_or(0, |extent| extent.height),
            pixel_format: "unknown".to_owned(),
            decoder: None,
            decoder_fallback: None,
            truncated: false,
            reason: None,
            gate: Some(self.gate),
            zones: self.zones.clone(),
            wall_start_ms: Some(Some(wall_now())),
            signals: Signals::Inline(Vec::new()),
        };
        let analysis = recording::analysis(&key, &decoded, self.gate, &self.log.run);
        let index_name = self.index_name.clone();
        Head { received: None, decoded, analysis: Some(analysis), index_name }
    }
}

impl LiveRecording {
    /// Creates a recording without frames.
    pub fn new(spec: LiveRecordingSpec) -> LiveRecording {
        LiveRecording { spec, recording: None, head: None, decoder: None }
    }

    /// Index name of the session's events.
    pub fn index_name(&self) -> Option<&Label> {
        self.spec.index_name.as_ref()
    }

    /// Sets the decoder that was really used.
    pub fn decoded_by(&mut self, decoder: String) {
        self.decoder = Some(decoder).filter(|decoder| !decoder.is_empty());
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
            None if self.head.is_some() => return Ok(()),
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

    /// Begins the recording.
    async fn begin(&mut self, shared: &SessionProgress) -> Result<Recording, EndReason> {
        let head = self.spec.head(shared.extent());
        let written = head.clone();
        let (log, stores) = (self.spec.log.clone(), self.spec.stores.clone());
        let job = JobId::from_bytes(*self.spec.session.as_bytes());
        let begun = blocking(move || Recording::begin(log, stores, job, written));
        let begun = begun.await.map_err(unrecorded)?.map_err(refused)?;
        self.head = Some(head);
        Ok(begun)
    }

    /// Writes the rest, closes the recording with the reason `cut`, and ends the run with `last`.
    pub async fn close(
        &mut self,
        shared: &SessionProgress,
        cut: Option<&str>,
        last: Option<Event>,
    ) {
        let run = Arc::clone(&self.spec.log.run);
        let (_, markers) = self.end(shared);
        // The session is ending already: a reason to end it is only logged.
        if let Err(EndReason::Failed(reason)) = self.write(shared).await {
            tracing::warn!(run = %run.id(), %reason, "the end of a live session is not recorded in full");
        }
        let (log, mut head) = (self.spec.log.clone(), self.head.take());
        let (recording, decoder) = (self.recording.take(), self.decoder.take());
        let reason = cut.map(str::to_owned);
        if let Some(head) = &mut head
            && let Some(Some(start)) = &mut head.decoded.wall_start_ms
        {
            *start = shared.wall_start(*start);
        }
        let closed = blocking(move || {
            let Some(mut head) = head else {
                return log
                    .append_all(Part::End, std::iter::empty(), last)
                    .map_err(RecordError::Run);
            };
            // A recording that is left ends the run itself, at the next start.
            let Some(recording) = recording else { return Ok(false) };
            let sealed = recording.seal()?;
            head.decoded.decoder = decoder;
            head.decoded.truncated = reason.is_some();
            head.decoded.reason = reason;
            head.decoded.signals = sealed.signals.clone();
            let frames = sealed.frames;
            Ok(sealed.close(head.events(frames, markers), last)?)
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
