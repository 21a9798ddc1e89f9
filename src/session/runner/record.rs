//! Result of a job's decoding, and its events.

use std::{iter::once, sync::Arc};

use decode::{FileReport, StreamInfo};
use gate::Reason;
use media::{BlobHash, EventType, JobId, Rate, RunId, WallTime};
use timeline::{
    Event, FramesDecoded, IngestReceived, IngestStarted, KeyframeStored, Lease, Recording, Signals,
    TimelineError,
};
use tokio::runtime::Handle;

use super::{Ingest, IngestError, Ingested, Registry, Run, stores::Stores};
use crate::quota::Hold;

/// Events appended at a time, about 2 MiB; a job that has no more is appended as one.
const BATCH: usize = 4096;

/// A durable still whose event is not written yet.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Its presentation time.
    pub pts_ms: i64,
    /// Event type by the gate.
    pub event_type: EventType,
    /// Reason of the gate's decision.
    pub reason: Reason,
    /// Size of the JPEG.
    pub bytes: u64,
    /// SHA-256 of the JPEG.
    pub hash: BlobHash,
}

impl Stored {
    /// The event that names it.
    pub fn event(self, run: RunId) -> Event {
        Event::KeyframeStored(KeyframeStored {
            frame_index: self.frame_index,
            pts_ms: self.pts_ms,
            event_type: self.event_type,
            reason: Some(self.reason.as_str().to_owned()),
            description: String::new(),
            image_ref: format!("/v1/runs/{run}/keyframes/{}", self.hash),
            image_bytes: self.bytes,
            image_sha256: self.hash,
        })
    }
}

/// A recording for the start after a crash, and what its owner pays for it meanwhile.
pub(super) struct Charged {
    pub recording: Recording,
    pub hold: Hold,
}

impl Charged {
    /// Makes `write` add to the recording.
    pub fn note(
        &mut self,
        write: impl FnOnce(&mut Recording) -> Result<(), TimelineError>,
    ) -> Result<(), IngestError> {
        let before = self.recording.bytes();
        write(&mut self.recording)?;
        Ok(self.hold.grow(self.recording.bytes() - before)?)
    }
}

/// A decoded source, all of it durable, and no event that names it.
pub(super) struct Decoded {
    pub ingest: Ingest,
    pub log: RunLog,
    pub stream: StreamInfo,
    pub report: FileReport,
    pub signals: Signals,
    pub stills: Vec<Stored>,
    pub stored: Stores,
    /// Reason that no more of the source was decoded, where something cut it off.
    pub reason: Option<String>,
    /// Error that cut it off, where that is more than the end of its time.
    pub cut: Option<IngestError>,
    pub _column: Lease,
    /// Until its events are on the log.
    pub _recording: Option<Charged>,
}

/// A job that came to nothing, before what it stored is taken back.
pub(super) struct Undone {
    pub error: IngestError,
    pub stored: Stores,
    pub run: Arc<Run>,
    /// Its source was media that is served.
    pub is_opened: bool,
}

impl Undone {
    /// Takes back what no event names.
    pub fn take_back(self) -> IngestError {
        self.stored.take_back(&self.run);
        self.error
    }
}

impl Ingest {
    /// Event with the number of its frames.
    pub(super) fn received(&self, decoded_frames: u64, sample_fps: Option<Rate>) -> Event {
        Event::IngestReceived(IngestReceived {
            request_id: self.request_id,
            ingest: self.echo.clone(),
            decoded_frames: Some(decoded_frames),
            source_uri: Some(self.source_uri.clone()),
            sampling_policy: Some(self.policy),
            sample_fps,
        })
    }

    /// Fields of its decoding that are known once `stream` is opened.
    pub(super) fn opened(&self, stream: &StreamInfo) -> FramesDecoded {
        FramesDecoded {
            request_id: self.request_id,
            source_uri: self.source_uri.clone(),
            stream_id: self.stream_id.clone(),
            sampling_policy: self.policy,
            source_fps: stream.source_rate,
            sample_fps: self.rate.or_else(|| stream.source_rate.map(clamped)),
            decoded_frames: 0,
            width: stream.extent.width,
            height: stream.extent.height,
            pixel_format: stream.pixel_format.clone(),
            decoder: None,
            decoder_fallback: None,
            truncated: false,
            reason: None,
            gate: self.gate,
            wall_start_ms: Some(stream.wall_start.filter(is_dated)),
            signals: Signals::Inline(Vec::new()),
        }
    }

    /// Records on the run's timeline that it was accepted, before anything is decoded.
    pub(super) fn accept(&self, job: Option<JobId>, log: &RunLog) -> Result<(), IngestError> {
        let (request_id, ingest) = (self.request_id, self.echo.clone());
        let job_id = job.ok_or(IngestError::Lost)?;
        let started = IngestStarted { request_id, job_id, ingest };
        log.commit(vec![Event::IngestStarted(started)])?;
        log.run.set_source(Some(&self.source_uri));
        log.run.set_model(self.model.as_ref());
        Ok(())
    }
}

/// Events after those of a decoding.
#[derive(Default)]
pub(super) struct Tail {
    pub events: Vec<Event>,
    /// Event that ends the run, if that was not ended before.
    pub last: Option<Event>,
}

impl Decoded {
    /// Frames a second of the source.
    fn source_fps(&self) -> Option<Rate> {
        self.report.source_rate.or(self.stream.source_rate)
    }

    /// Analysed frames a second.
    pub fn sample_fps(&self) -> Option<Rate> {
        self.ingest.rate.or_else(|| self.source_fps().map(clamped))
    }

    /// Appends the events of the decoding, and `tail` after them; tells whether all of it is there: of a
    /// run that was ended before, the last is not.
    pub fn record(self, mut tail: Tail) -> Result<(Ingested, bool), IngestError> {
        let (source_fps, sample_fps) = (self.source_fps(), self.sample_fps());
        let Decoded { ingest, log, stream, report, signals, stills, stored, .. } = self;
        let extent = report.first_extent.unwrap_or(stream.extent);
        let received = ingest.received(report.frames, sample_fps);
        let decoded = FramesDecoded {
            source_fps,
            sample_fps,
            decoded_frames: report.frames,
            width: extent.width,
            height: extent.height,
            decoder: Some(report.decoder.clone()).filter(|decoder| !decoder.is_empty()),
            decoder_fallback: report.fallback,
            truncated: report.truncated,
            reason: self.reason,
            signals,
            ..ingest.opened(&stream)
        };
        let run = log.run.id();
        let stills = stills.into_iter().map(|still| still.event(run));
        let events = once(received)
            .chain(stills)
            .chain(once(Event::FramesDecoded(decoded)))
            .chain(tail.events);
        let is_whole = match append_all(&log, events, tail.last.take()) {
            Ok(is_whole) => is_whole,
            Err((error, true)) => {
                stored.take_back(&log.run);
                return Err(error);
            }
            // Some of what is stored is named by events by now, or may be.
            Err((error, false)) => {
                stored.keep(&log.run);
                return Err(error);
            }
        };
        stored.keep(&log.run);
        let rotation = stream.rotation;
        let ingested = Ingested {
            decoded_frames: report.frames,
            source_fps,
            sample_fps,
            width: extent.width,
            height: extent.height,
            rotation,
            decoder: report.decoder,
            truncated: report.truncated,
            more_frames: report.more_frames,
        };
        Ok((ingested, is_whole))
    }
}

/// Appends `events` in batches and `last` with the last of them; tells whether `last` is there, where it was
/// given. An error comes with word that nothing was appended.
pub(super) fn append_all(
    log: &RunLog,
    events: impl Iterator<Item = Event>,
    mut last: Option<Event>,
) -> Result<bool, (IngestError, bool)> {
    let mut events = events.peekable();
    let (mut first, mut is_whole) = (true, true);
    while events.peek().is_some() {
        let batch = events.by_ref().take(BATCH).collect();
        let last = last.take_if(|_| events.peek().is_none());
        match log.append(batch, last) {
            Ok(whole) => (first, is_whole) = (false, whole),
            Err(error) => {
                let is_nothing = first && !error.may_be_written();
                return Err((error, is_nothing));
            }
        }
    }
    Ok(is_whole)
}

/// Appends to the run's timeline from a thread outside the runtime.
pub(super) struct RunLog {
    pub registry: Arc<Registry>,
    pub run: Arc<Run>,
    pub runtime: Handle,
}

impl RunLog {
    /// Appends what a job came to, also one that was stopped; tells whether `last` is there where it was given.
    fn append(&self, events: Vec<Event>, last: Option<Event>) -> Result<bool, IngestError> {
        let count = events.len() + usize::from(last.is_some());
        let appended = self.runtime.block_on(self.registry.wind_up(&self.run, events, last))?;
        Ok(appended.len() == count)
    }

    /// Appends to a run that is active.
    pub fn commit(&self, events: Vec<Event>) -> Result<(), IngestError> {
        self.runtime.block_on(self.registry.commit(&self.run, events))?;
        Ok(())
    }
}

/// Containers without a clock say the first of all times; a worker that was fooled, anything.
fn is_dated(at: &WallTime) -> bool {
    const YEAR_10000: i64 = 253_402_300_800_000;
    (1..YEAR_10000).contains(&at.epoch_ms)
}

/// The nearest rate that the contract can express.
fn clamped(rate: Rate) -> Rate {
    let below = |a: Rate, b: Rate| {
        u64::from(a.num()) * u64::from(b.den()) < u64::from(b.num()) * u64::from(a.den())
    };
    if below(rate, Rate::SLOWEST) {
        Rate::SLOWEST
    } else if below(Rate::FASTEST, rate) {
        Rate::FASTEST
    } else {
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reported_rate_stays_within_the_contract() {
        let cases = [
            ((1, 10), (1, 5)),
            ((1, 5), (1, 5)),
            ((30_000, 1001), (30_000, 1001)),
            ((240, 1), (120, 1)),
        ];
        for ((num, den), (to_num, to_den)) in cases {
            let found = clamped(Rate::new(num, den).expect("positive"));
            assert_eq!((found.num(), found.den()), (to_num, to_den), "{num}/{den}");
        }
    }
}
