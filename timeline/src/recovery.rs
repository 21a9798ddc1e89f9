//! Opening of a log: checks every file, loads or rebuilds the index, finds the torn tail.
//!
//! Only the batch that was being written at a power cut may be incomplete, and only at the very end.
//! Everything else that is not intact is damage and refused by file and offset, never skipped. A file whose
//! numbers an earlier compacted file covers was about to be removed and is ignored. Long because one place
//! decides what is damage.

use std::{io, ops::Range, path::PathBuf, sync::Arc};

use media::{Seq, WallTime};

use crate::{
    EventMeta, Result, TimelineError,
    batch::{self, JournalBatch},
    footer::{self, Footer},
    index::{EVENTS_MAX, LogIndex},
    journal::{self, JournalHeader, SeqRange},
    record::JournalRecord,
    storage::{Storage, StorageFile},
};

/// Findings of opening a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Number of events in the log.
    pub events: u64,
    /// Number of journal files.
    pub files: u64,
    /// Incomplete batch of a writer that died; none of it was acknowledged.
    pub torn: Option<TornTail>,
    /// Number of sealed files whose missing or damaged footer is rebuilt from their events.
    pub footers_rebuilt: u64,
    /// Number of files removed by opening: unfinished, or replaced by a compaction.
    pub leftovers: u64,
}

/// Remains of a batch that never became durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The last journal file.
    pub file: PathBuf,
    /// Offset of the remains.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Log as it was found.
pub(crate) struct RecoveredLog {
    pub(crate) index: LogIndex,
    pub(crate) recovery: RecoveryReport,
    /// Positions in the index of sealed files without an intact footer.
    pub(crate) unsealed: Vec<usize>,
    /// Name of the last file and offset of its next batch; `None` in an empty log.
    pub(crate) tail: Option<(String, u64)>,
}

/// Contents of the journal's directory.
pub(crate) struct JournalListing {
    /// Files of the log, by their first number.
    pub(crate) files: Vec<Seq>,
    /// Names of unfinished files, and of files that a compacted one covers.
    pub(crate) leftovers: Vec<String>,
}

pub(crate) fn list(disk: &dyn Storage) -> Result<JournalListing> {
    let names = disk.list().map_err(TimelineError::io("list the journal", disk.path("")))?;
    let mut firsts: Vec<Seq> =
        names.iter().filter_map(|name| journal::parse_file_name(name)).collect();
    firsts.sort_unstable();
    let mut leftovers: Vec<String> =
        names.into_iter().filter(|name| journal::is_temporary(name)).collect();
    let (mut files, mut covered) = (Vec::new(), Seq(0));
    for first in firsts {
        if first < covered {
            leftovers.push(journal::file_name(first));
            continue;
        }
        files.push(first);
        // Readers of the file report a damaged header; a failed read is reported here.
        let span = match read_header(disk, first) {
            Ok(header) => header.span,
            Err(error @ (TimelineError::Io { .. } | TimelineError::DiskFull { .. })) => {
                return Err(error);
            }
            Err(_) => None,
        };
        covered = span.map_or(Seq(0), |span| span.next);
    }
    Ok(JournalListing { files, leftovers })
}

pub(crate) fn recover(disk: &dyn Storage) -> Result<RecoveredLog> {
    let JournalListing { files, .. } = list(disk)?;
    let mut found = RecoveredLog {
        index: LogIndex::default(),
        recovery: RecoveryReport { files: files.len() as u64, ..RecoveryReport::default() },
        unsealed: Vec::new(),
        tail: None,
    };
    for (position, first) in files.iter().enumerate() {
        check_continues(disk, *first, found.index.head())?;
        match files.get(position + 1) {
            Some(successor) => load_sealed(disk, *first, *successor, &mut found)?,
            None => load_last(disk, *first, &mut found)?,
        }
    }
    found.index.shrink();
    found.recovery.events = found.index.len();
    Ok(found)
}

/// Returns an error if a file does not continue where the one before ends.
pub(crate) fn check_continues(disk: &dyn Storage, first: Seq, head: Seq) -> Result<()> {
    if first.0 == head.0 + 1 {
        return Ok(());
    }
    let what = "events are missing before this file";
    Err(TimelineError::Damaged { file: disk.path(&journal::file_name(first)), offset: 0, what })
}

fn load_sealed(
    disk: &dyn Storage,
    first: Seq,
    successor: Seq,
    found: &mut RecoveredLog,
) -> Result<()> {
    if let Some((start, bytes)) = read_footer(disk, first)? {
        let header = read_header(disk, first)?;
        let footer = Footer::parse(&bytes);
        if let Some(footer) = footer.filter(|footer| footer.describes(&header, start, successor)) {
            found.index.begin_file(first, header.base, header.len() as u32);
            footer.load(&mut found.index);
            return Ok(());
        }
    }
    let file = read_file(disk, first)?;
    scan_into(&file, &mut found.index).continued_by(&file, successor)?;
    found.unsealed.push(found.index.file_count() - 1);
    found.recovery.footers_rebuilt += 1;
    Ok(())
}

fn load_last(disk: &dyn Storage, first: Seq, found: &mut RecoveredLog) -> Result<()> {
    let file = read_file(disk, first)?;
    check_not_sealed(disk, &file)?;
    let end = scan_into(&file, &mut found.index).sound()?;
    found.recovery.torn = file.torn(end.position);
    found.tail = Some((journal::file_name(first), end.position as u64));
    Ok(())
}

/// Returns an error if the last file is sealed: sealing comes after the naming of the next file.
pub(crate) fn check_not_sealed(disk: &dyn Storage, last: &FileBytes) -> Result<()> {
    let footer = read_footer(disk, last.header.first)?;
    if let Some(footer) = footer.as_ref().and_then(|(_, bytes)| Footer::parse(bytes)) {
        let what = "the file after this sealed one is missing";
        return Err(last.damaged(footer.end as usize, what));
    }
    match last.header.span {
        Some(_) => Err(last.damaged(0, "the file after this compacted one is missing")),
        None => Ok(()),
    }
}

/// Completes recovery before the log is written to: writes footers, removes unfinished files.
pub(crate) fn finish_recovery(disk: &dyn Storage, found: &mut RecoveredLog) -> Result<()> {
    // A killed process may have named a file without a sync; later seals and appends depend on that name.
    disk.sync_names().map_err(TimelineError::io("sync the journal's directory", disk.path("")))?;
    for number in &found.unsealed {
        let file = found.index.file(*number);
        let name = journal::file_name(file.first);
        let footer = footer::build(&found.index, *number);
        let sealed =
            disk.open(&name).and_then(|open| journal::seal(&*open, u64::from(file.end), &footer));
        match sealed {
            // The log works without this footer: the next opening writes it.
            Err(error) if journal::is_full(&error) => {}
            sealed => sealed.map_err(TimelineError::io("seal a journal file", disk.path(&name)))?,
        }
    }
    let leftovers = list(disk)?.leftovers;
    if leftovers.is_empty() {
        return Ok(());
    }
    found.recovery.leftovers += leftovers.len() as u64;
    for name in leftovers {
        disk.remove(&name).map_err(TimelineError::io("remove a leftover", disk.path(&name)))?;
    }
    Ok(())
}

/// Returns offset and bytes of the footer by the file's last bytes; `None` if these name no footer.
pub(crate) fn read_footer(disk: &dyn Storage, first: Seq) -> Result<Option<(u64, Vec<u8>)>> {
    let (file, path, size) = open(disk, first)?;
    let mut trailer = [0; footer::TRAILER_BYTES];
    let Some(start) = size.checked_sub(trailer.len() as u64) else { return Ok(None) };
    file.read_exact_at(&mut trailer, start).map_err(changed(path.clone()))?;
    let Some(footer_bytes) = footer::size(&trailer) else { return Ok(None) };
    let Some(start) = size.checked_sub(footer_bytes as u64) else { return Ok(None) };
    let mut bytes = vec![0; footer_bytes];
    file.read_exact_at(&mut bytes, start).map_err(changed(path))?;
    Ok(Some((start, bytes)))
}

/// Converts a failed read of a journal file. Beside a writer, a file may be shortened by its sealing or
/// removed by a compaction after it was listed or measured, once.
fn changed(path: PathBuf) -> impl FnOnce(io::Error) -> TimelineError {
    move |error| {
        let what = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the file is shorter than it was a moment ago",
            io::ErrorKind::NotFound => "the file was there a moment ago",
            _ => return TimelineError::io("read a journal file", path)(error),
        };
        TimelineError::Damaged { file: path, offset: 0, what }
    }
}

pub(crate) struct FileBytes {
    pub(crate) path: PathBuf,
    pub(crate) header: JournalHeader,
    pub(crate) bytes: Vec<u8>,
}

/// Opens the file of event `first`; returns it with its path and size.
fn open(disk: &dyn Storage, first: Seq) -> Result<(Arc<dyn StorageFile>, PathBuf, u64)> {
    let name = journal::file_name(first);
    let opened = disk.open(&name).and_then(|file| Ok((file.size()?, file)));
    let (size, file) = opened.map_err(changed(disk.path(&name)))?;
    Ok((file, disk.path(&name), size))
}

pub(crate) fn read_header(disk: &dyn Storage, first: Seq) -> Result<JournalHeader> {
    let (file, path, size) = open(disk, first)?;
    let mut bytes = vec![0; (size as usize).min(journal::COMPACTED_HEADER_BYTES)];
    file.read_exact_at(&mut bytes, 0).map_err(changed(path.clone()))?;
    JournalHeader::parse(&bytes, path)
}

/// Reads the file of event `first` and checks its header.
pub(crate) fn read_file(disk: &dyn Storage, first: Seq) -> Result<FileBytes> {
    let (file, path, size) = open(disk, first)?;
    if size > u64::from(u32::MAX) {
        let what = "the file is longer than a journal file may be";
        return Err(TimelineError::Damaged { file: path, offset: u64::from(u32::MAX), what });
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 0).map_err(changed(path.clone()))?;
    let header = JournalHeader::parse(&bytes, path.clone())?;
    let file = FileBytes { path, header, bytes };
    if header.first != first {
        return Err(file.damaged(0, "the header names another event than the file name"));
    }
    Ok(file)
}

impl FileBytes {
    pub(crate) fn damaged(&self, offset: usize, what: &'static str) -> TimelineError {
        TimelineError::Damaged { file: self.path.clone(), offset: offset as u64, what }
    }

    /// Returns the bytes after the intact batches that end at `end`, without zeros and the mark.
    pub(crate) fn torn(&self, end: usize) -> Option<TornTail> {
        let marked = JournalBatch::parse(&self.bytes[end..]).is_some();
        let from = if marked { end + batch::HEADER_BYTES } else { end };
        let last = self.bytes[from..].iter().rposition(|byte| *byte != 0)?;
        let (offset, bytes) = (end as u64, (from + last + 1 - end) as u64);
        Some(TornTail { file: self.path.clone(), offset, bytes })
    }
}

/// End of the intact batches of a file, and its reason.
#[derive(Debug)]
pub(crate) struct ScanEnd {
    pub(crate) position: usize,
    pub(crate) next: Seq,
    /// Damage at the end, if more events followed.
    pub(crate) damage: Option<TimelineError>,
}

impl ScanEnd {
    /// Returns this end, or the damage.
    pub(crate) fn sound(mut self) -> Result<ScanEnd> {
        self.damage.take().map_or(Ok(self), Err)
    }

    /// Returns this end if `successor` continues it, or an error.
    pub(crate) fn continued_by(self, file: &FileBytes, successor: Seq) -> Result<ScanEnd> {
        let end = self.sound()?;
        if end.next == successor {
            return Ok(end);
        }
        Err(file.damaged(end.position, "events are missing at the end of this file"))
    }
}

/// Calls `visit` for every record of `file` with its offset, up to the last intact batch.
pub(crate) fn scan(file: &FileBytes, visit: impl FnMut(usize, &JournalRecord<'_>)) -> ScanEnd {
    let start = ScanEnd { position: file.header.len(), next: file.header.first, damage: None };
    scan_from(file, start, visit)
}

/// Continues a scan that ended at damage with the next intact batch, and with the intact records before it; `None`
/// if there is no such batch.
pub(crate) fn scan_on(
    file: &FileBytes,
    damaged: &ScanEnd,
    mut visit: impl FnMut(usize, &JournalRecord<'_>),
) -> Option<ScanEnd> {
    let rest = file.bytes.get(damaged.position..)?;
    let position = damaged.position + batch::find(rest, Seq(damaged.next.0.checked_add(1)?))?;
    let next = JournalBatch::parse(&file.bytes[position..])?.first;
    visit_intact(file, damaged.position..position, damaged.next..next, &mut visit);
    Some(scan_from(file, ScanEnd { position, next, damage: None }, visit))
}

/// Visits the records among `bytes` of damaged batches that match their own checksums, and have `numbers`.
fn visit_intact(
    file: &FileBytes,
    bytes: Range<usize>,
    mut numbers: Range<Seq>,
    visit: &mut impl FnMut(usize, &JournalRecord<'_>),
) {
    let mut offset = bytes.start;
    while offset < bytes.end {
        match JournalRecord::parse(&file.bytes[offset..bytes.end]) {
            Ok(record) if numbers.contains(&record.head.seq) => {
                numbers.start = Seq(record.head.seq.0 + 1);
                visit(offset, &record);
                offset += record.record_bytes();
            }
            _ => offset += 1,
        }
    }
}

fn scan_from(
    file: &FileBytes,
    mut end: ScanEnd,
    mut visit: impl FnMut(usize, &JournalRecord<'_>),
) -> ScanEnd {
    let header = &file.header;
    while let Some(batch) = JournalBatch::parse(&file.bytes[end.position..]) {
        if batch.first != end.next || batch.next.0 > EVENTS_MAX + 1 {
            end.damage = Some(file.damaged(end.position, "a batch is not the next in order"));
            return end;
        }
        if batch.is_mark() {
            break;
        }
        if let Err(damage) = visit_batch(file, &batch, &end, &mut visit) {
            end.damage = Some(damage);
            return end;
        }
        end.position += batch.batch_bytes();
        end.next = batch.next;
    }
    if let Some(SeqRange { next, count: 0 }) = header.span {
        end.next = next;
    }
    // Only the last batch can be incomplete, so an intact one after it proves damage. A batch of the same
    // number proves nothing: it may be an old content of a block before the file grew.
    let rest = file.bytes.get(end.position + 1..).unwrap_or_default();
    if batch::find(rest, Seq(end.next.0 + 1)).is_some() {
        end.damage = Some(file.damaged(end.position, "a batch is not intact"));
    }
    end
}

fn visit_batch(
    file: &FileBytes,
    batch: &JournalBatch<'_>,
    start: &ScanEnd,
    visit: &mut impl FnMut(usize, &JournalRecord<'_>),
) -> Result<()> {
    let end = start.position + batch.batch_bytes();
    let mut offset = start.position + batch::HEADER_BYTES;
    let mut next = batch.first;
    for _ in 0..batch.count {
        let record = JournalRecord::parse(&file.bytes[offset..end])
            .map_err(|what| file.damaged(offset, what))?;
        let EventMeta { seq, at, .. } = record.head;
        if !(next..batch.next).contains(&seq) || !file.header.spans(at) {
            return Err(file.damaged(offset, "a record is not the next in order"));
        }
        next = Seq(seq.0 + 1);
        visit(offset, &record);
        offset += record.record_bytes();
    }
    if offset == end {
        return Ok(());
    }
    Err(file.damaged(offset, "a batch holds more than its records"))
}

/// Adds the events of `file` to `index` as a separate file.
pub(crate) fn scan_into(file: &FileBytes, index: &mut LogIndex) -> ScanEnd {
    index.begin_file(file.header.first, file.header.base, file.header.len() as u32);
    let end = scan(file, |offset, record| {
        let end = (offset + record.record_bytes()) as u32;
        index.push(record.head, offset as u32..end);
    });
    index.end_file(end.next);
    end
}

/// Runs `read` until it finds no damage, or the same damage twice.
///
/// Beside a live writer, a read may see a batch without the one before it, but not twice.
pub(crate) fn tolerate_live_writer<T>(mut read: impl FnMut() -> Result<T>) -> Result<T> {
    let mut before = None;
    loop {
        let found = read();
        let Err(TimelineError::Damaged { file, offset, .. }) = &found else { return found };
        let here = Some((file.clone(), *offset));
        if before == here {
            return found;
        }
        before = here;
    }
}

/// Returns the time that the next event must not precede.
pub(crate) fn last_time(index: &LogIndex) -> WallTime {
    // The last file may be empty; its base is no earlier than any event before it.
    let last = index.last_file().map(|file| file.last_at().unwrap_or(file.base));
    last.unwrap_or(WallTime { epoch_ms: i64::MIN })
}
