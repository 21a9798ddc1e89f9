//! The one writer of recordings: rows in the open column, stills beside the log, then the events that name both.
//!
//! In this order, each part durable before the next, so that no event speaks of a frame that the column lacks. Every
//! byte is charged to the owner of the run. Waits for the disk: call it where that holds nobody up. Long
//! because what begins a recording, what grows it and what closes it share its order.

use std::{iter, sync::Arc, time::Duration};

use gate::GateConfig;
use media::{ErrorKind, JobId, Label, RunId, SessionId, Signal};
use prometheus::Histogram;
use timeline::{
    AnalysisGenerated, AnalysisKey, AppendResult, BlobStore, Event, FindingKind, FindingPayload,
    FramesDecoded, IngestReceived, OpenColumn, OpenColumns, PinGuard, Signals, TimelineError,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::recorder::{Batch, Kept};
use crate::{
    base::{
        disk_reserve::{DiskLow, DiskReserve},
        quota::{QuotaError, QuotaReservation},
        retry_while_full::retry_while_full,
    },
    runs::registry::{Growing, Part, RecordingGuard, Run, RunError, RunRegistry},
};

/// Events appended at a time, about 2 MiB; a recording that has no more is closed by one append.
const BATCH: usize = 4096;
/// Frames of a window of metadata and its span in ms, where nobody says otherwise.
pub const WINDOWING_DEFAULT: (u64, u64) = (16, 250);
/// Reason of an end that was told later than it came.
const NO_ROOM: &str = "there was no room to record its end";
/// Reason that a recording lacks rows which were written.
const DAMAGED: &str = "it was damaged on the disk";
/// Model that an analysis names where nobody named one.
const BY_GATE: &str = "gate";
/// Longest wait of a job's events for room in the log.
pub const LOG_WAIT: Duration = Duration::from_secs(30);

/// Reason that a part of a recording is not written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The run takes no more events, or the log none of them.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The disk does not take it.
    #[error(transparent)]
    Store(#[from] TimelineError),
    /// Its owner has used up a quota.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// It would take the disk's reserve.
    #[error("{0}")]
    DiskLow(DiskLow),
}

impl RecordError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            RecordError::Run(error) => error.kind(),
            RecordError::Store(error) => error.kind(),
            RecordError::Quota(error) => error.kind(),
            RecordError::DiskLow(_) => ErrorKind::Exhausted,
        }
    }
}

/// Log of one run, appended to from threads that may wait.
#[derive(Clone)]
pub struct RunLog {
    /// Every run.
    pub registry: Arc<RunRegistry>,
    /// The run.
    pub run: Arc<Run>,
    /// Runtime of the service.
    pub runtime: Handle,
    /// Longest wait of events for room in the log.
    pub patience: Duration,
}

impl RunLog {
    /// Appends to a run that is active.
    pub fn commit(&self, events: Vec<Event>) -> Result<(), RunError> {
        self.runtime.block_on(self.registry.commit(&self.run, events))?;
        Ok(())
    }

    /// Appends what was recorded, and `last` where the run is active; a full log is waited for. Returns what is there.
    fn append(
        &self,
        part: Part,
        events: Vec<Event>,
        last: Option<Event>,
    ) -> Result<Vec<AppendResult>, RunError> {
        let is_full = |error: &RunError| error.kind() == ErrorKind::Exhausted;
        let never = CancellationToken::new();
        let attempt = |_| self.registry.wind_up(&self.run, part, events.clone(), last.clone());
        self.runtime.block_on(retry_while_full(self.patience, &never, is_full, attempt))
    }

    /// Appends `events` in batches and `last` with the last of them; returns true if `last` is there, where it was
    /// given.
    pub fn append_all(
        &self,
        part: Part,
        events: impl Iterator<Item = Event>,
        mut last: Option<Event>,
    ) -> Result<bool, RunError> {
        let mut events = events.peekable();
        let mut is_whole = true;
        while events.peek().is_some() || last.is_some() {
            let batch: Vec<Event> = events.by_ref().take(BATCH).collect();
            let last = last.take_if(|_| events.peek().is_none());
            let count = batch.len() + usize::from(last.is_some());
            is_whole = self.append(part, batch, last)?.len() == count;
        }
        Ok(is_whole)
    }
}

/// Places of recordings on disk.
#[derive(Clone)]
pub struct JobStorage {
    /// Store of stills.
    pub blobs: BlobStore,
    /// Columns of recordings in progress.
    pub columns: OpenColumns,
    /// Room that they leave on disk.
    pub reserve: Arc<DiskReserve>,
    /// Time that stills take to be stored.
    pub still_seconds: Histogram,
}

/// Events that close a recording as they are known when it begins: readers need them, and the start after a crash.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Of the source, where an ingest asked for it.
    pub received: Option<IngestReceived>,
    /// Of its frames.
    pub decoded: FramesDecoded,
    /// Of the analysis that its own markers are, where they are told as it grows.
    pub analysis: Option<AnalysisGenerated>,
    /// Index of its loops.
    pub index_name: Option<Label>,
}

impl Head {
    /// Head of the events of an open column; `None` where they are not whole.
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

    /// Events of an open column, from which it is read again.
    fn written(self) -> impl Iterator<Item = Event> {
        let index_name = self.index_name.clone();
        let found = index_name.map(|name| {
            let finding = FindingPayload { index_name: Some(name), ..FindingPayload::default() };
            Event::Found(FindingKind::LoopDetected, finding)
        });
        self.events(0, 0).chain(found)
    }

    /// The live session that it is of, where it is of one.
    pub fn session(&self) -> Option<SessionId> {
        // A path may look like one and is none.
        self.decoded.source_uri.strip_prefix("whip:").and_then(|id| id.parse().ok())
    }

    /// The events of a recording of so many frames and markers, in their order.
    pub fn events(self, frames: u64, markers: u64) -> impl Iterator<Item = Event> {
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

/// A recording in progress; where it is dropped, it is left to be closed later.
pub struct Recording {
    log: RunLog,
    stores: JobStorage,
    job: JobId,
    shown: RecordingGuard,
    column: OpenColumn,
    /// Charge for the column.
    hold: QuotaReservation,
    /// Something of it was written whole, or is on the timeline.
    has_written: bool,
    /// It is of a job, which takes it back where its first still is refused; what a live session has shown stays.
    is_taken_back: bool,
}

impl Recording {
    /// Begins the recording of `job`.
    pub fn begin(
        log: RunLog,
        stores: JobStorage,
        job: JobId,
        head: Head,
    ) -> Result<Recording, RecordError> {
        let timeline = log.registry.timeline();
        let mut hold = log.registry.quota().hold(&log.run.origin().principal);
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

    /// Returns true if something of it is told: of a job's whose first picture is refused nothing is.
    pub fn has_written(&self) -> bool {
        self.has_written
    }

    /// Makes `batch` durable: what a quota or the disk refuses of it is left out, the rest is there all the same.
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
        for still in stills {
            let timer = self.stores.still_seconds.start_timer();
            let put = self.charge(&mut hold, &still).and_then(|()| Ok(lease.put(&still.jpeg)?));
            drop(timer);
            match put {
                Ok(hash) => {
                    stored.push((still.frame_index, still.stored(self.log.run.id(), hash)));
                }
                Err(error) => {
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
                Ok(_) => {
                    self.has_written = true;
                    self.log.run.keep(hold, 0);
                }
                Err(error) if error.may_be_written() => {
                    self.has_written = true;
                    self.log.run.keep(hold, 0);
                    return Err(error.into());
                }
                Err(error) => {
                    if let Err(error) = lease.discard() {
                        tracing::warn!(%error, "stills without events stay until the next sweep");
                    }
                    return Err(error.into());
                }
            }
        }
        self.has_written |= refused.is_none();
        refused.map_or(Ok(()), Err)
    }

    /// Adds rows, which a kill leaves and the next write shows to readers; past a quota they are there all the same.
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
        // A disk that cannot be examined is for the write to refuse.
        if let Ok(Some(low)) = self.stores.reserve.check() {
            return Err(RecordError::DiskLow(low));
        }
        Ok(hold.grow(still.jpeg.len() as u64)?)
    }

    /// Copies its rows to where an event can name them; what remains is to append those events.
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

    /// Takes it back: it has no frame, and no event tells of it.
    pub fn discard(self) {
        self.shown.end();
        self.stores.remove(self.log.run.id(), self.job);
    }
}

impl JobStorage {
    /// Removes an open column.
    pub fn remove(&self, run: RunId, job: JobId) {
        if let Err(error) = self.columns.remove(run, job) {
            tracing::warn!(%run, %job, %error, "an open column stays until the next start");
        }
    }
}

/// A recording whose rows are where an event can name them.
pub struct Sealed {
    log: RunLog,
    stores: JobStorage,
    job: JobId,
    hold: QuotaReservation,
    signals: Signals,
    frames: u64,
    column_bytes: u64,
    /// Rows that were written are not there any more.
    is_damaged: bool,
    /// Until an event names the column.
    _lease: PinGuard,
    /// Of its writer.
    shown: Option<RecordingGuard>,
}

impl Sealed {
    /// Copies the rows of the open column of `job`, for which `hold` is charged; returns the bytes behind the last too.
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
        let (is_damaged, shown) = (false, None);
        let sealed = Sealed {
            log,
            stores,
            job,
            hold,
            signals,
            frames,
            column_bytes,
            is_damaged,
            _lease,
            shown,
        };
        Ok((sealed, rest))
    }

    /// Log of its run.
    pub fn log(&self) -> &RunLog {
        &self.log
    }

    /// Number of its rows.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns true if rows that were written are not there any more.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Its rows, as an event names them.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Appends `events`, which name the rows, and `last` with them; returns true if `last` is there, where it was
    /// given. Where the log fails, it is left.
    pub fn close(
        mut self,
        events: impl Iterator<Item = Event>,
        last: Option<Event>,
    ) -> Result<bool, RunError> {
        let (run, is_damaged) = (&self.log.run, self.is_damaged);
        let events = events.map(|event| match event {
            Event::FramesDecoded(decoded) if is_damaged => {
                let reason = Some(DAMAGED.to_owned());
                Event::FramesDecoded(FramesDecoded { truncated: true, reason, ..decoded })
            }
            event => event,
        });
        let appended = self.log.append_all(Part::End, events, last);
        match &appended {
            Ok(_) => {
                self.hold.shrink_to(0);
                self.hold.record(self.column_bytes);
                run.keep(self.hold, self.column_bytes);
            }
            // Nobody will read it.
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

/// The events of stills and of what was found, by their frames.
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

/// Event of the analysis that the markers of a recording of `decoded` are; it says no number yet.
pub fn analysis(
    key: &AnalysisKey,
    decoded: &FramesDecoded,
    gate: GateConfig,
    run: &Run,
) -> AnalysisGenerated {
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
        gate: Some(gate),
        zones: None,
    }
}
