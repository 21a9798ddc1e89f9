//! The one writer of recordings: rows to the column, stills to their store, then the events that name both.
//!
//! Each part is durable before the next, so that no event names a frame that the column lacks. Charges every
//! byte to the run's owner. Blocks on the disk: must run off the runtime's threads. Long because beginning,
//! growing and closing a recording share this order.

use std::{iter, sync::Arc, time::Duration};

use gate::GateConfig;
use media::{ErrorKind, JobId, Label, RequestId, RunId, SessionId, Signal};
use prometheus::Histogram;
use timeline::{
    AnalysisGenerated, AnalysisKey, BlobStore, Event, EventMeta, FindingKind, FindingPayload,
    FramesDecoded, IngestReceived, MarkerConfig, MarkerDeriver, OpenColumn, OpenColumns, PinGuard,
    RunFailed, Signals, TimelineError,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::recorder::{Batch, Kept, Recorder, RecorderSpec};
use crate::{
    base::{
        disk_reserve::{DiskRefusal, DiskReserve},
        labels::TenantLabels,
        quota::{QuotaError, QuotaReservation},
        retry_while_full::retry_while_full,
    },
    runs::registry::{Growing, Part, RecordingGuard, Run, RunError, RunRegistry},
};

/// Events in one append, about 2 MiB; a recording with fewer is closed by one append.
const BATCH: usize = 4096;
/// Default frames in a metadata window, and its default span in ms.
pub const WINDOWING_DEFAULT: (u64, u64) = (16, 250);
/// Reason of an end that the log had no room for at first.
const NO_ROOM: &str = "there was no room to record its end";
/// Reason of a recording that lost written rows.
pub const DAMAGED: &str = "it was damaged on the disk";
/// Model that an analysis names if the request named none.
const BY_GATE: &str = "gate";
/// Longest wait of a job's events for room in the log.
const LOG_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The run takes no more events, or the log failed.
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Store(#[from] TimelineError),
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The write would use the reserved disk space, or the data directory was moved.
    #[error("{0}")]
    Disk(DiskRefusal),
}

impl RecordError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            RecordError::Run(error) => error.kind(),
            RecordError::Store(error) => error.kind(),
            RecordError::Quota(error) => error.kind(),
            RecordError::Disk(_) => ErrorKind::Exhausted,
        }
    }

    /// Returns the message for the run's owner, which names no file of the server.
    pub fn told(&self) -> String {
        let (RecordError::Store(error) | RecordError::Run(RunError::Log(error))) = self else {
            return self.to_string();
        };
        match error {
            TimelineError::DiskFull { .. } => "no space is left on the server's disk".to_owned(),
            TimelineError::QueueFull { .. }
            | TimelineError::LogFull { .. }
            | TimelineError::TooLarge { .. } => error.to_string(),
            _ => "the server cannot store it now".to_owned(),
        }
    }
}

/// Log of one run; its methods are for threads that may block.
#[derive(Clone)]
pub struct RunLog {
    pub registry: Arc<RunRegistry>,
    pub run: Arc<Run>,
    pub runtime: Handle,
    /// Longest wait of events for room in the log.
    pub patience: Duration,
}

impl RunLog {
    /// Creates the log of `run` for the current runtime.
    pub fn new(registry: &Arc<RunRegistry>, run: &Arc<Run>) -> RunLog {
        let (registry, run) = (Arc::clone(registry), Arc::clone(run));
        RunLog { registry, run, runtime: Handle::current(), patience: LOG_WAIT }
    }

    pub fn commit(&self, events: Vec<Event>) -> Result<(), RunError> {
        self.runtime.block_on(self.registry.commit(&self.run, events))?;
        Ok(())
    }

    /// Appends `events`, and `last` if the run is active; waits while the log is full, until `cancel`.
    /// Returns the results.
    pub async fn wind_up(
        &self,
        part: Part,
        events: Vec<Event>,
        last: Option<Event>,
        cancel: &CancellationToken,
    ) -> Result<Vec<EventMeta>, RunError> {
        let is_full = |error: &RunError| error.kind() == ErrorKind::Exhausted;
        let attempt = |_| self.registry.wind_up(&self.run, part, events.clone(), last.clone());
        retry_while_full(self.patience, cancel, is_full, attempt).await
    }

    /// Appends `events` in batches, and `last` with the last batch; returns false if `last` was
    /// left out because the run had ended.
    pub fn append_all(
        &self,
        part: Part,
        events: impl Iterator<Item = Event>,
        mut last: Option<Event>,
    ) -> Result<bool, RunError> {
        let (mut events, never) = (events.peekable(), CancellationToken::new());
        let mut is_whole = true;
        while events.peek().is_some() || last.is_some() {
            let batch: Vec<Event> = events.by_ref().take(BATCH).collect();
            let last = last.take_if(|_| events.peek().is_none());
            let count = batch.len() + usize::from(last.is_some());
            let appended = self.runtime.block_on(self.wind_up(part, batch, last, &never))?;
            is_whole = appended.len() == count;
        }
        Ok(is_whole)
    }
}

#[derive(Clone)]
pub struct JobStorage {
    pub blobs: BlobStore,
    pub columns: OpenColumns,
    /// Disk space that recordings must leave free.
    pub reserve: Arc<DiskReserve>,
    pub still_seconds: Histogram,
}

/// Events that close a recording, as known when it begins: readers and crash recovery need them.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Event of the source, if an ingest asked for it.
    pub received: Option<IngestReceived>,
    pub decoded: FramesDecoded,
    /// Event of the recording's own analysis, if its markers are emitted as it grows.
    pub analysis: Option<AnalysisGenerated>,
    /// Index name of the loop findings.
    pub index_name: Option<Label>,
}

impl Head {
    /// Reads the head of an open column; `None` if its events are incomplete.
    pub fn read(events: Vec<Event>) -> Option<Head> {
        let (mut received, mut decoded, mut analysis, mut index_name) = (None, None, None, None);
        for event in events {
            match event {
                Event::Found(_, finding) => index_name = finding.index_name,
                Event::IngestReceived(event) => received = Some(event),
                Event::FramesDecoded(event) => decoded = Some(event),
                Event::AnalysisGenerated(event) => analysis = Some(event),
                _ => {}
            }
        }
        Some(Head { received, decoded: decoded?, analysis, index_name })
    }

    /// Events that an open column stores as its head.
    fn written(self) -> impl Iterator<Item = Event> {
        let index_name = self.index_name.clone();
        let found = index_name.map(|name| {
            let finding = FindingPayload { index_name: Some(name), ..FindingPayload::default() };
            Event::Found(FindingKind::LoopDetected, finding)
        });
        self.events(0, 0).chain(found)
    }

    pub fn session(&self) -> Option<SessionId> {
        // A file path may begin like the URI of a session.
        self.decoded.source_uri.strip_prefix("whip:").and_then(|id| id.parse().ok())
    }

    /// Creates the recorder of the frames, which emits the markers of the analysis `key` if there is one.
    pub fn recorder(
        &self,
        gate: GateConfig,
        words: TenantLabels,
        key: Option<AnalysisKey>,
        session_id: Option<SessionId>,
    ) -> Recorder {
        let FramesDecoded { request_id, stream_id, zones, .. } = &self.decoded;
        Recorder::new(RecorderSpec {
            gate,
            words,
            markers: key.map(|key| MarkerDeriver::new(key, MarkerConfig::default())),
            request_id: *request_id,
            stream_id: stream_id.clone(),
            zones: zones.names(),
            session_id,
            index_name: self.index_name.clone(),
        })
    }

    /// Returns the events of a recording with so many frames and markers, in order.
    fn events(self, frames: u64, markers: u64) -> impl Iterator<Item = Event> {
        let received = self.received.map(|received| {
            Event::IngestReceived(IngestReceived { decoded_frames: Some(frames), ..received })
        });
        let decoded = FramesDecoded { decoded_frames: frames, ..self.decoded };
        let analysis = self.analysis.map(|analysis| {
            Event::AnalysisGenerated(AnalysisGenerated { frames, markers, ..analysis })
        });
        received.into_iter().chain([Event::FramesDecoded(decoded)]).chain(analysis)
    }
}

/// A recording in progress; if dropped, it stays on disk and is closed later.
pub struct Recording {
    log: RunLog,
    stores: JobStorage,
    job: JobId,
    shown: RecordingGuard,
    column: OpenColumn,
    hold: QuotaReservation,
    /// True once a batch was written completely, or an event may be in the log.
    has_written: bool,
    /// True of a job, which is undone if its first still is refused; a live session keeps its frames.
    is_taken_back: bool,
}

impl Recording {
    pub fn begin(
        log: RunLog,
        stores: JobStorage,
        job: JobId,
        head: Head,
    ) -> Result<Recording, RecordError> {
        let timeline = log.registry.timeline();
        let mut hold = log.registry.quota.hold(&log.run.origin().principal);
        let since = timeline.head();
        let is_taken_back = head.session().is_none();
        let Head { decoded, analysis, .. } = head.clone();
        let column = stores.columns.begin(log.run.id(), job, head.written())?;
        hold.record(column.bytes());
        let synced = column.synced();
        let growing = Growing { job, synced, since, reason: NO_ROOM, decoded, analysis };
        let shown = log.run.begin_recording(growing);
        Ok(Recording { log, stores, job, shown, column, hold, has_written: false, is_taken_back })
    }

    /// Returns true if a part of the recording was written; false of a job whose first still was refused.
    pub fn has_written(&self) -> bool {
        self.has_written
    }

    /// Makes `batch` durable, without the stills from the first one that a quota or the disk refuses.
    pub fn write(&mut self, batch: Batch) -> Result<(), RecordError> {
        let tells = batch.tells();
        let Batch { signals, stills, events } = batch;
        let mut refused = match self.push(signals) {
            Err(error @ RecordError::Quota(_)) => Some(error),
            pushed => pushed.map(|()| None)?,
        };
        self.column.flush()?;
        let mut lease = self.stores.blobs.lease();
        let mut hold = self.hold.beside();
        let mut stored = Vec::with_capacity(stills.len());
        let mut stored_bytes = 0;
        for still in stills {
            let timer = self.stores.still_seconds.start_timer();
            let put = self.charge(&mut hold, &still).and_then(|()| Ok(lease.put(&still.jpeg)?));
            drop(timer);
            match put {
                Ok(hash) => {
                    stored_bytes += still.jpeg.len() as u64;
                    stored.push((still.frame_index, still.stored(self.log.run.id(), hash)));
                }
                Err(error) => {
                    // The still may be charged already.
                    hold.shrink_to(stored_bytes);
                    refused.get_or_insert(error);
                    break;
                }
            }
        }
        let is_first = self.is_taken_back && !self.has_written;
        if let Some(error) = refused.take_if(|_| is_first && stored.is_empty()) {
            return Err(error);
        }
        lease.send();
        if tells {
            match self.log.append_all(Part::Middle, in_order(stored, events), None) {
                Err(error) if !error.may_be_written() => {
                    if let Err(error) = lease.discard() {
                        tracing::warn!(%error, "stills without events stay until the next sweep");
                    }
                    return Err(error.into());
                }
                appended => {
                    self.has_written = true;
                    self.log.run.keep(hold, 0);
                    appended?;
                }
            }
        }
        self.has_written |= refused.is_none();
        refused.map_or(Ok(()), Err)
    }

    /// Writes rows, beyond a quota too; they survive a kill, and the next `write` shows them to readers.
    pub fn push(&mut self, signals: Vec<Signal>) -> Result<(), RecordError> {
        let before = self.column.bytes();
        signals.iter().try_for_each(|signal| self.column.push(signal))?;
        self.column.write()?;
        let bytes = self.column.bytes() - before;
        self.hold.grow(bytes).map_err(|error| {
            self.hold.record(bytes);
            error.into()
        })
    }

    fn charge(&self, hold: &mut QuotaReservation, still: &Kept) -> Result<(), RecordError> {
        // If the disk cannot be checked, the write itself may fail.
        if let Ok(Some(refusal)) = self.stores.reserve.check() {
            return Err(RecordError::Disk(refusal));
        }
        Ok(hold.grow(still.jpeg.len() as u64)?)
    }

    /// Copies the rows into the sealed column that events can name; the events remain to be appended.
    pub fn seal(mut self) -> Result<Sealed, RecordError> {
        self.column.flush()?;
        let (sealed, bytes) = Sealed::copy(self.log, self.stores, self.job, self.hold)?;
        let is_damaged = bytes > 0;
        if is_damaged {
            let (run, job) = (sealed.log.run.id(), sealed.job);
            tracing::error!(%run, %job, bytes, "a recording was damaged on the disk: what follows is left out and kept aside");
            if let Err(error) = sealed.stores.columns.keep_damaged(run, job) {
                tracing::error!(%run, %job, %error, "a damaged recording is not kept aside");
            }
        }
        Ok(Sealed { shown: Some(self.shown), is_damaged, ..sealed })
    }

    /// Removes a recording that no event names.
    pub fn discard(self) {
        self.shown.end();
        self.stores.remove(self.log.run.id(), self.job);
    }
}

impl JobStorage {
    pub fn remove(&self, run: RunId, job: JobId) {
        if let Err(error) = self.columns.remove(run, job) {
            tracing::warn!(%run, %job, %error, "an open column stays until the next start");
        }
    }
}

/// A recording whose rows are in a sealed column that events can name.
pub struct Sealed {
    pub log: RunLog,
    pub signals: Signals,
    pub frames: u64,
    /// True if rows that were written are lost.
    pub is_damaged: bool,
    stores: JobStorage,
    job: JobId,
    hold: QuotaReservation,
    column_bytes: u64,
    /// Keeps the sealed column until an event names it.
    _lease: PinGuard,
    /// Guard of the run's recording, unless recovery closes it.
    shown: Option<RecordingGuard>,
}

impl Sealed {
    /// Copies the rows of the open column, for which `hold` is charged; also returns the bytes left over.
    pub fn copy(
        log: RunLog,
        stores: JobStorage,
        job: JobId,
        hold: QuotaReservation,
    ) -> Result<(Sealed, u64), TimelineError> {
        let mut column = log.registry.timeline().column_writer();
        let mut rest = 0;
        if let Some(mut rows) = stores.columns.read(log.run.id(), job)? {
            rows.by_ref().try_for_each(|row| column.push(&row))?;
            rest = rows.end()?.bytes;
        }
        let (frames, column_bytes) = (column.count(), column.column_bytes());
        let (signals, _lease) = column.finish()?;
        let sealed = Sealed {
            log,
            stores,
            job,
            hold,
            signals,
            frames,
            column_bytes,
            is_damaged: false,
            _lease,
            shown: None,
        };
        Ok((sealed, rest))
    }

    /// Returns the events that close the recording of `head`, with so many markers, in order.
    pub fn events(&self, head: Head, markers: u64) -> impl Iterator<Item = Event> + use<> {
        let mut decoded = FramesDecoded { signals: self.signals.clone(), ..head.decoded };
        if self.is_damaged {
            (decoded.truncated, decoded.reason) = (true, Some(DAMAGED.to_owned()));
        }
        Head { decoded, ..head }.events(self.frames, markers)
    }

    /// Appends `events`, which name the rows, and `last` with them; returns false if `last` was left out
    /// because the run had ended. If the log fails, the recording stays to be closed later.
    pub fn close(
        mut self,
        events: impl Iterator<Item = Event>,
        last: Option<Event>,
    ) -> Result<bool, RunError> {
        let run = &self.log.run;
        let appended = self.log.append_all(Part::End, events, last);
        match &appended {
            Ok(_) => {
                self.hold.shrink_to(0);
                self.hold.record(self.column_bytes);
                run.keep(self.hold, self.column_bytes);
            }
            // The run is deleted: its recording is removed.
            Err(RunError::NotFound) => {}
            Err(_) => return appended,
        }
        if let Some(shown) = self.shown {
            shown.end();
        }
        self.stores.remove(run.id(), self.job);
        appended
    }
}

/// Merges the events of stills and of findings in frame order.
fn in_order(stills: Vec<(u64, Event)>, found: Vec<(u64, Event)>) -> impl Iterator<Item = Event> {
    let (mut stills, mut found) = (stills.into_iter().peekable(), found.into_iter().peekable());
    iter::from_fn(move || {
        let still_is_next = match (stills.peek(), found.peek()) {
            (Some((still, _)), Some((event, _))) => still <= event,
            (still, _) => still.is_some(),
        };
        let next = if still_is_next { stills.next() } else { found.next() };
        next.map(|(_, event)| event)
    })
}

/// Returns the event that fails a run, for the job of `request_id` if it names one.
pub fn failed(request_id: Option<RequestId>, reason: &str) -> Event {
    Event::RunFailed(RunFailed { request_id, reason: reason.to_owned() })
}

/// Returns the event of a recording's own analysis; its counts are filled in when the recording closes.
pub fn analysis(key: &AnalysisKey, decoded: &FramesDecoded, run: &Run) -> AnalysisGenerated {
    let model = run.snapshot().model;
    AnalysisGenerated {
        request_id: decoded.request_id,
        stream_id: key.stream.clone(),
        frames: 0,
        window_size: WINDOWING_DEFAULT.0 as u32,
        segment_ms: WINDOWING_DEFAULT.1 as u32,
        sampling_policy: decoded.sampling_policy,
        sample_fps: decoded.sample_fps,
        mode: Some(run.origin().mode.clone()),
        model: model.unwrap_or_else(|| BY_GATE.to_owned()),
        markers: 0,
        analysis_id: Some(key.id()),
        gate: decoded.gate,
        zones: None,
    }
}

#[cfg(test)]
mod tests;
