//! State shared by readers and the writer: index, open files, columns, health.

use std::{collections::VecDeque, ops::ControlFlow, path::PathBuf, sync::Arc};

use media::{RunId, Seq};

use crate::{
    EventMeta, LogState, Result, StreamedEvent, TimelineError,
    event::EventKind,
    index::{EventLocation, FileId, FileIndex, LogIndex},
    journal::{self, Journal},
    record::JournalRecord,
    signal_column::ColumnDir,
    storage::{Storage, StorageFile},
    sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// Most journal files kept open for reading.
const OPEN_FILES_MAX: usize = 64;

/// Called with events as they become readable.
pub type PublishListener = Box<dyn Fn(&[EventMeta]) + Send + Sync>;

pub(crate) struct SharedLog {
    pub(crate) disk: Arc<dyn Storage>,
    pub(crate) columns: ColumnDir,
    index: RwLock<LogIndex>,
    /// Open files, the least recently opened first.
    files: Mutex<VecDeque<(FileId, Arc<dyn StorageFile>)>>,
    /// Write-locked while files and index disagree.
    replacing: RwLock<()>,
    health: Mutex<LogState>,
    listeners: RwLock<Vec<PublishListener>>,
    /// Path and file that is being written; locked while another takes its place.
    written: Mutex<Option<(PathBuf, Arc<dyn StorageFile>)>>,
}

impl SharedLog {
    pub(crate) fn new(
        disk: Arc<dyn Storage>,
        columns: ColumnDir,
        index: LogIndex,
        health: LogState,
    ) -> SharedLog {
        SharedLog {
            disk,
            columns,
            index: RwLock::new(index),
            files: Mutex::default(),
            replacing: RwLock::default(),
            health: Mutex::new(health),
            listeners: RwLock::default(),
            written: Mutex::default(),
        }
    }

    /// Changes the file that is being written.
    pub(crate) fn change_written<T>(
        &self,
        journal: &mut Journal,
        change: impl FnOnce(&mut Journal) -> T,
    ) -> T {
        let mut written = self.written.lock().expect("no holder of the written file panics");
        let changed = change(journal);
        *written = Some(journal.file());
        changed
    }

    /// Returns true if the file that is being written is still at its path.
    pub(crate) fn is_in_place(&self) -> std::io::Result<bool> {
        // The lock may be held for as long as a sync takes.
        let Ok(written) = self.written.try_lock() else { return Ok(true) };
        written.as_ref().map_or(Ok(true), |(path, file)| file.is_at(path))
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, LogIndex> {
        self.index.read().expect("no holder of the index panics")
    }

    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, LogIndex> {
        self.index.write().expect("no holder of the index panics")
    }

    pub(crate) fn health(&self) -> LogState {
        self.health.lock().expect("no holder of the health panics").clone()
    }

    /// Ends writing for good; the first reason is kept.
    pub(crate) fn poison(&self, reason: &str) {
        let mut health = self.health.lock().expect("no holder of the health panics");
        if *health == LogState::Writable {
            *health = LogState::Poisoned { reason: reason.to_owned() };
        }
    }

    pub(crate) fn listen(&self, listener: PublishListener) {
        self.listeners.write().expect("no listener panics while it is added").push(listener);
    }

    pub(crate) fn notify_listeners(&self, heads: &[EventMeta]) {
        let listeners = self.listeners.read().expect("no listener panics while it is added");
        listeners.iter().for_each(|listener| listener(heads));
    }

    /// Reads the event at `hit`; `None` if it was purged meanwhile. `buffer` is reused memory. Damage of its
    /// record affects this event only.
    pub(crate) fn load(
        &self,
        hit: &EventLocation,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<StreamedEvent>> {
        let loaded = self.with_record(hit, buffer, |record| {
            let payload = record.payload().map_err(|what| self.damaged(hit, what))?;
            Ok(StreamedEvent::new(&self.columns, hit.head, payload))
        });
        match loaded {
            Err(TimelineError::Damaged { file, offset, what }) => {
                Ok(Some(StreamedEvent::damaged(hit.head, file, offset, what)))
            }
            loaded => loaded,
        }
    }

    /// Returns the last event of `run` and `kind` before `before`.
    pub(crate) fn last_of(
        &self,
        run: RunId,
        mut before: Seq,
        kind: EventKind,
    ) -> Option<EventLocation> {
        loop {
            let step = self.index().last_of(run, before, kind);
            match step {
                ControlFlow::Break(found) => return found,
                ControlFlow::Continue(next) => before = next,
            }
        }
    }

    /// Reads the record at `hit`, even if a compaction has moved it meanwhile; `None` if it was purged.
    pub(crate) fn with_record<T>(
        &self,
        hit: &EventLocation,
        buffer: &mut Vec<u8>,
        take: impl Fn(&JournalRecord<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut hit = *hit;
        loop {
            let failed = match self.record(&hit, buffer).and_then(|record| take(&record)) {
                Ok(taken) => return Ok(Some(taken)),
                Err(failed) => failed,
            };
            let settled = self.replacing.read().expect("no compaction panics while it replaces");
            let again = self.index().locate(hit.head.seq);
            drop(settled);
            match again {
                None => return Ok(None),
                Some(again) if again.file == hit.file => return Err(failed),
                Some(again) => hit = again,
            }
        }
    }

    /// Replaces the files covered by `made`, an index, by the file that `rename` names; returns the replaced
    /// ones.
    pub(crate) fn replace(
        &self,
        made: LogIndex,
        rename: impl FnOnce() -> std::io::Result<()>,
    ) -> std::io::Result<Vec<FileIndex>> {
        let _replacing = self.replacing.write().expect("no compaction panics while it replaces");
        rename()?;
        let replaced = self.index_mut().replace(made);
        self.files.lock().expect("no holder of the files panics").clear();
        Ok(replaced)
    }

    pub(crate) fn record<'a>(
        &self,
        hit: &EventLocation,
        buffer: &'a mut Vec<u8>,
    ) -> Result<JournalRecord<'a>> {
        let name = journal::file_name(hit.file.first);
        let io = |what| TimelineError::io(what, self.disk.path(&name));
        let file = self.file(hit.file).map_err(io("open a journal file"))?;
        buffer.resize((hit.end - hit.offset) as usize, 0);
        file.read_exact_at(buffer, u64::from(hit.offset)).map_err(io("read a journal file"))?;
        let record = JournalRecord::parse(buffer).map_err(|what| self.damaged(hit, what))?;
        if record.head != hit.head {
            return Err(self.damaged(hit, "a record is not the one that was written here"));
        }
        Ok(record)
    }

    fn damaged(&self, hit: &EventLocation, what: &'static str) -> TimelineError {
        let file = self.disk.path(&journal::file_name(hit.file.first));
        TimelineError::Damaged { file, offset: u64::from(hit.offset), what }
    }

    fn file(&self, id: FileId) -> std::io::Result<Arc<dyn StorageFile>> {
        let mut files = self.files.lock().expect("no holder of the files panics");
        if let Some((_, file)) = files.iter().rev().find(|(open, _)| *open == id) {
            return Ok(file.clone());
        }
        let file = self.disk.open(&journal::file_name(id.first))?;
        if files.len() == OPEN_FILES_MAX {
            files.pop_front();
        }
        files.push_back((id, file.clone()));
        Ok(file)
    }
}
