//! Journal being written: appends a batch, syncs it, marks it; begins and seals files.
//!
//! Files grow in zero-filled steps, so that most syncs change no metadata. After a failure with an unknown
//! effect on the disk, which is `Poisoned`, nothing more is written: the caller poisons the log.

use std::{io, path::PathBuf, sync::Arc, time::Instant};

use media::{Seq, WallTime};

use crate::{
    Result, SyncObserver, TimelineError, batch,
    index::EVENTS_MAX,
    record::{checksum, put_checksum, u32_at, u64_at},
    storage::{Storage, StorageFile},
};

/// Magic, version, checksum, first seq, base time.
pub(crate) const HEADER_BYTES: usize = 8 + 4 + 4 + 8 + 8;
/// As [`HEADER_BYTES`], then the seq after the last and the count of events.
pub(crate) const COMPACTED_HEADER_BYTES: usize = HEADER_BYTES + 8 + 8;
const MAGIC: [u8; 8] = *b"SLJOURN\xff";
/// Offset of the checksum, after magic and version.
const CHECKSUM_AT: usize = 12;
/// Version of files with an event for every number, as the writer makes them.
const VERSION: u32 = 1;
/// Version of files made by a compaction.
const COMPACTED_VERSION: u32 = 2;
/// Largest base time in milliseconds from 1970, so that the times of the file's events fit too.
const BASE_MS_MAX: u64 = 1 << 60;
const SUFFIX: &str = ".journal";
const TEMPORARY_SUFFIX: &str = ".journal.tmp";

/// Returns the name of the file whose first event is `first`.
pub(crate) fn file_name(first: Seq) -> String {
    format!("{:020}{SUFFIX}", first.0)
}

/// Returns the first event of the file called `name`; `None` if it is not a journal file.
pub(crate) fn parse_file_name(name: &str) -> Option<Seq> {
    let digits = name.strip_suffix(SUFFIX)?;
    let ours = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    // Twenty digits may exceed a u64; such a name is not a journal file's either.
    ours.then(|| digits.parse().ok().map(Seq)).flatten()
}

/// Returns the name of the file of `first` until it is complete.
pub(crate) fn temporary_name(first: Seq) -> String {
    format!("{:020}{TEMPORARY_SUFFIX}", first.0)
}

/// Returns true if `name` is a file whose creation was not finished.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.ends_with(TEMPORARY_SUFFIX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalHeader {
    pub(crate) first: Seq,
    /// Time that no event of the file precedes.
    pub(crate) base: WallTime,
    /// Covered numbers, in a compacted file only.
    pub(crate) span: Option<SeqRange>,
}

/// Numbers that a compacted file covers: all up to `next`, `count` of which have an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeqRange {
    pub(crate) next: Seq,
    pub(crate) count: u64,
}

impl JournalHeader {
    /// Returns the header of a file to be written.
    pub(crate) fn new(first: Seq, base: WallTime) -> JournalHeader {
        JournalHeader { first, base, span: None }
    }

    /// Returns the size of the header, which is the offset of the first batch.
    pub(crate) fn len(&self) -> usize {
        if self.span.is_some() { COMPACTED_HEADER_BYTES } else { HEADER_BYTES }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let version = if self.span.is_some() { COMPACTED_VERSION } else { VERSION };
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.first.0.to_le_bytes());
        bytes.extend_from_slice(&self.base.epoch_ms.to_le_bytes());
        if let Some(SeqRange { next, count }) = self.span {
            bytes.extend_from_slice(&next.0.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        put_checksum(&mut bytes, CHECKSUM_AT);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8], file: PathBuf) -> Result<JournalHeader> {
        let damaged = |what| TimelineError::Damaged { file: file.clone(), offset: 0, what };
        let cut_short = || damaged("the file ends inside its header");
        let short = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(cut_short)?;
        let version = u32_at(short, 8);
        let compacted = short[..8] == MAGIC && version == COMPACTED_VERSION;
        let size = if compacted { COMPACTED_HEADER_BYTES } else { HEADER_BYTES };
        let bytes = bytes.get(..size).ok_or_else(cut_short)?;
        if bytes[..8] != MAGIC || u32_at(bytes, CHECKSUM_AT) != checksum(bytes, CHECKSUM_AT) {
            return Err(damaged("no journal file header"));
        }
        if version != VERSION && !compacted {
            return Err(TimelineError::UnknownFormat { file, version });
        }
        let base = WallTime { epoch_ms: u64_at(bytes, 24) as i64 };
        let span =
            compacted.then(|| SeqRange { next: Seq(u64_at(bytes, 32)), count: u64_at(bytes, 40) });
        let header = JournalHeader { first: Seq(u64_at(bytes, 16)), base, span };
        let what = "the header has an impossible number or time";
        if header.is_possible() { Ok(header) } else { Err(damaged(what)) }
    }

    fn is_possible(&self) -> bool {
        let first = self.first.0;
        let spanned = self.span.is_none_or(|SeqRange { next, count }| {
            next.0 <= EVENTS_MAX + 1 && first.checked_add(count).is_some_and(|end| end <= next.0)
        });
        (1..=EVENTS_MAX + 1).contains(&first)
            && self.base.epoch_ms.unsigned_abs() <= BASE_MS_MAX
            && spanned
    }

    /// Returns true if an event of this file may have the time `at`.
    pub(crate) fn spans(&self, at: WallTime) -> bool {
        at.epoch_ms.checked_sub(self.base.epoch_ms).is_some_and(|ms| u32::try_from(ms).is_ok())
    }
}

/// Returns a function for `map_err`: the reason that the log must take nothing more, because part of a batch or
/// a file may be in it.
fn fatal(what: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> TimelineError {
    move |source| TimelineError::Poisoned {
        reason: format!("cannot {what}: {source}: {}", path.display()),
    }
}

/// Returns true if `error` means that the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalSizes {
    /// Size above which a file with events is sealed.
    pub(crate) file: u64,
    /// Step by which files grow.
    pub(crate) grow: u64,
    /// Space kept allocated after the written part.
    pub(crate) spare: u64,
}

/// Last file of the journal.
pub(crate) struct Journal {
    disk: Arc<dyn Storage>,
    sizes: JournalSizes,
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    /// Offset of the next batch.
    position: u64,
    /// Offset up to which the file is zero-filled.
    allocated: u64,
    next: Seq,
}

impl Journal {
    /// Begins the file of event `first`.
    pub(crate) fn create(
        disk: Arc<dyn Storage>,
        sizes: JournalSizes,
        header: JournalHeader,
    ) -> Result<Journal> {
        let name = file_name(header.first);
        let temporary = temporary_name(header.first);
        let path = disk.path(&name);
        let allocated = sizes.grow.max(HEADER_BYTES as u64 + sizes.spare);
        let make = || -> io::Result<Arc<dyn StorageFile>> {
            let file = disk.create(&temporary)?;
            let header = header.bytes();
            let mut bytes = vec![0; allocated as usize];
            bytes[..header.len()].copy_from_slice(&header);
            file.write_all_at(&bytes, 0)?;
            file.sync()?;
            // The name comes last: a named file has its header.
            disk.rename(&temporary, &name)?;
            Ok(file)
        };
        let file = make().map_err(TimelineError::io("begin a journal file", path.clone()))?;
        // From here on the name may or may not survive a crash: on a failure the log must not continue.
        disk.sync_names().map_err(fatal("sync the journal's directory", path.clone()))?;
        let position = HEADER_BYTES as u64;
        Ok(Journal { disk, sizes, file, path, position, allocated, next: header.first })
    }

    /// Continues after the last batch of a recovered file; cuts the bytes after it.
    pub(crate) fn resume(
        disk: Arc<dyn Storage>,
        sizes: JournalSizes,
        name: &str,
        position: u64,
        torn: bool,
        next: Seq,
    ) -> Result<Journal> {
        let path = disk.path(name);
        let io = |what| TimelineError::io(what, path.clone());
        let file = disk.open(name).map_err(io("open a journal file"))?;
        if torn {
            file.set_size(position).map_err(io("cut a torn tail"))?;
        }
        // The last batch may have been read from the page cache and never have reached the disk.
        file.sync().map_err(io("sync a journal file"))?;
        let allocated = file.size().map_err(io("measure a journal file"))?;
        let mut journal = Journal { disk, sizes, file, path, position, allocated, next };
        journal.mark()?;
        Ok(journal)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.position == HEADER_BYTES as u64
    }

    /// Replaces this file, which must be empty, by one for events from `base` on.
    pub(crate) fn truncate_to_empty(&mut self, base: WallTime) -> Result<()> {
        let header = JournalHeader::new(self.next, base);
        *self = Journal::create(self.disk.clone(), self.sizes, header)?;
        Ok(())
    }

    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Returns true if the file should be sealed before it takes `bytes` more.
    pub(crate) fn is_full_for(&self, bytes: usize) -> bool {
        !self.is_empty() && self.position + bytes as u64 > self.sizes.file
    }

    /// Returns true if a batch of `bytes` fits into the allocated space.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        self.position + (bytes + batch::HEADER_BYTES) as u64 <= self.allocated
    }

    /// Makes `batch`, which holds `count` records, durable; returns its offset.
    ///
    /// If the file cannot grow, only an `urgent` batch may use the spare space.
    pub(crate) fn append(
        &mut self,
        batch: &[u8],
        count: u64,
        urgent: bool,
        on_sync: &SyncObserver,
    ) -> Result<u64> {
        let start = self.position;
        let end = start + batch.len() as u64;
        let grown = self.grow(end + batch::HEADER_BYTES as u64 + self.sizes.spare);
        if !(urgent && self.has_room_for(batch.len())) {
            grown?;
        }
        if let Err(source) = self.file.write_all_at(batch, start) {
            // Part of the batch may be written. A durable mark in its place invalidates it.
            self.mark()?;
            self.sync()?;
            return Err(TimelineError::io("append to the journal", &self.path)(source));
        }
        let started = Instant::now();
        self.sync()?;
        on_sync(started.elapsed());
        self.position = end;
        self.next = Seq(self.next.0 + count);
        self.mark()?;
        Ok(start)
    }

    /// Returns the path and the file that is being written.
    pub(crate) fn file(&self) -> (PathBuf, Arc<dyn StorageFile>) {
        (self.path.clone(), self.file.clone())
    }

    /// Begins a new file for events from `base` on and seals this one with `footer`.
    pub(crate) fn rotate(&mut self, base: WallTime, footer: &[u8]) -> Result<()> {
        // Allocates first: a disk that fills up later would leave the file half sealed.
        self.grow(self.position + footer.len() as u64)?;
        let refused = || TimelineError::io("begin a journal file", &self.path);
        // A successor in another directory would be missing in the one of this file.
        if !self.file.is_at(&self.path).map_err(refused())? {
            return Err(refused()(io::Error::other("the last one was moved or replaced")));
        }
        let header = JournalHeader::new(self.next, base);
        // A sealed file always has a successor, which reveals a missing last file.
        let successor = Journal::create(self.disk.clone(), self.sizes, header)?;
        let sealed = std::mem::replace(self, successor);
        seal(&*sealed.file, sealed.position, footer)
            .map_err(fatal("seal a journal file", sealed.path))
    }

    fn grow(&mut self, needed: u64) -> Result<()> {
        if needed <= self.allocated {
            return Ok(());
        }
        let steps = (needed - self.allocated).div_ceil(self.sizes.grow.max(1));
        let zeros = vec![0; (steps * self.sizes.grow.max(1)) as usize];
        self.file
            .write_all_at(&zeros, self.allocated)
            .map_err(TimelineError::io("grow the journal", self.path.clone()))?;
        self.allocated += zeros.len() as u64;
        Ok(())
    }

    fn mark(&mut self) -> Result<()> {
        let mark = batch::commit_marker(self.next);
        self.file
            .write_all_at(&mark, self.position)
            .map_err(fatal("mark the journal", self.path.clone()))
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(fatal("sync the journal", self.path.clone()))
    }
}

/// Writes `footer` where the events end and makes it durable.
pub(crate) fn seal(file: &dyn StorageFile, end: u64, footer: &[u8]) -> io::Result<()> {
    file.write_all_at(footer, end)?;
    file.set_size(end + footer.len() as u64)?;
    file.sync()
}
