//! What opening does: check every file, load or rebuild the index, find the torn tail.
//!
//! Only the batch that was being written when the power went may be incomplete, and only at
//! the very end. Whatever else is not intact is damage and refused by file and offset, never
//! skipped. Changes nothing on disk.

use std::{io, path::PathBuf};

use media::{Seq, WallTime};

use crate::{
    Result, TimelineError,
    batch::{self, Batch},
    disk::Disk,
    entry::Record,
    footer::{self, Footer},
    index::Index,
    journal::{self, Header},
};

/// What opening a log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Events in the log.
    pub events: u64,
    /// Journal files.
    pub files: u64,
    /// The batch that was being written when the writer died; none of it was acknowledged.
    pub torn: Option<TornTail>,
    /// Sealed files whose footer was missing or damaged and is made again from their events.
    pub footers_rebuilt: u64,
}

/// The remains of a batch that never became durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The last journal file.
    pub file: PathBuf,
    /// Where the remains start.
    pub offset: u64,
    /// How many bytes they span.
    pub bytes: u64,
}

/// A log as it was found.
pub(crate) struct Found {
    pub(crate) index: Index,
    pub(crate) recovery: Recovery,
    /// Files without an intact footer that should have one, by their place in the index.
    pub(crate) unsealed: Vec<usize>,
    /// Where the next batch goes; `None` in an empty log.
    pub(crate) tail: Option<Tail>,
}

/// The end of the last file.
pub(crate) struct Tail {
    pub(crate) name: String,
    pub(crate) position: u64,
    pub(crate) torn: bool,
}

/// The journal files of `disk` by their first event, and those never finished.
pub(crate) fn list(disk: &dyn Disk) -> Result<(Vec<Seq>, Vec<String>)> {
    let names = disk.list().map_err(TimelineError::io("list the journal", disk.path("")))?;
    let mut files: Vec<Seq> =
        names.iter().filter_map(|name| journal::parse_file_name(name)).collect();
    files.sort_unstable();
    let temporary = names.into_iter().filter(|name| journal::is_temporary(name)).collect();
    Ok((files, temporary))
}

/// Reads the log on `disk`.
pub(crate) fn recover(disk: &dyn Disk) -> Result<Found> {
    let (files, _) = list(disk)?;
    let mut found = Found {
        index: Index::default(),
        recovery: Recovery { files: files.len() as u64, ..Recovery::default() },
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
    found.recovery.events = found.index.head().0;
    Ok(found)
}

/// Refuses a file that does not go on where the one before ends.
pub(crate) fn check_continues(disk: &dyn Disk, first: Seq, head: Seq) -> Result<()> {
    if first.0 == head.0 + 1 {
        return Ok(());
    }
    let what = "events are missing before this file";
    Err(TimelineError::Damaged { file: disk.path(&journal::file_name(first)), offset: 0, what })
}

fn load_sealed(disk: &dyn Disk, first: Seq, successor: Seq, found: &mut Found) -> Result<()> {
    if let Some(bytes) = read_footer(disk, first)? {
        let header = read_header(disk, first)?;
        let footer = Footer::parse(&bytes).filter(|footer| {
            let described = Header { first: footer.first, base: footer.base };
            described == header && first.0 + footer.count() == successor.0
        });
        if let Some(footer) = footer {
            found.index.begin_file(first, footer.base, journal::HEADER_BYTES as u32);
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

fn load_last(disk: &dyn Disk, first: Seq, found: &mut Found) -> Result<()> {
    check_not_sealed(disk, first)?;
    let file = read_file(disk, first)?;
    let end = scan_into(&file, &mut found.index).sound()?;
    found.recovery.torn = file.torn(end.position);
    let torn = found.recovery.torn.is_some();
    found.tail =
        Some(Tail { name: journal::file_name(first), position: end.position as u64, torn });
    Ok(())
}

/// Refuses a last file that is sealed: sealing comes after the next file has its name.
pub(crate) fn check_not_sealed(disk: &dyn Disk, last: Seq) -> Result<()> {
    let bytes = read_footer(disk, last)?.unwrap_or_default();
    let Some(footer) = Footer::parse(&bytes) else { return Ok(()) };
    let (file, offset) = (disk.path(&journal::file_name(last)), u64::from(footer.end));
    let what = "the file after this sealed one is missing";
    Err(TimelineError::Damaged { file, offset, what })
}

/// Does what recovery left to do before the log is written to: footers, unfinished files.
pub(crate) fn settle(disk: &dyn Disk, found: &Found) -> Result<()> {
    for number in &found.unsealed {
        let file = found.index.file(*number);
        let name = journal::file_name(file.first);
        let footer = footer::build(&found.index, *number);
        let sealed =
            disk.open(&name).and_then(|open| journal::seal(&*open, u64::from(file.end), &footer));
        match sealed {
            // The log is as good without this footer: the next opening makes it.
            Err(error) if journal::is_full(&error) => {}
            sealed => sealed.map_err(TimelineError::io("seal a journal file", disk.path(&name)))?,
        }
    }
    let (_, temporary) = list(disk)?;
    for name in temporary {
        disk.remove(&name)
            .map_err(TimelineError::io("remove an unfinished file", disk.path(&name)))?;
    }
    Ok(())
}

/// The bytes that the end of a file says are its footer; `None` when it says nothing of it.
pub(crate) fn read_footer(disk: &dyn Disk, first: Seq) -> Result<Option<Vec<u8>>> {
    let name = journal::file_name(first);
    let io = |what| TimelineError::io(what, disk.path(&name));
    let file = disk.open(&name).map_err(io("open a journal file"))?;
    let size = file.size().map_err(io("measure a journal file"))?;
    let mut trailer = [0; footer::TRAILER_BYTES];
    let Some(start) = size.checked_sub(trailer.len() as u64) else { return Ok(None) };
    file.read_exact_at(&mut trailer, start).map_err(cut_short(disk.path(&name)))?;
    let footer_bytes = footer::size(&trailer).filter(|bytes| *bytes as u64 <= size);
    let Some(footer_bytes) = footer_bytes else { return Ok(None) };
    let mut bytes = vec![0; footer_bytes];
    file.read_exact_at(&mut bytes, size - footer_bytes as u64)
        .map_err(cut_short(disk.path(&name)))?;
    Ok(Some(bytes))
}

/// What a failed read of a journal file means. Sealing cuts the zeros off a file: beside a writer
/// it may be shorter than it was when it was measured, once.
fn cut_short(path: PathBuf) -> impl FnOnce(io::Error) -> TimelineError {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let what = "the file is shorter than it was a moment ago";
            TimelineError::Damaged { file: path, offset: 0, what }
        }
        _ => TimelineError::io("read a journal file", path)(error),
    }
}

/// A journal file in memory.
pub(crate) struct FileBytes {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    pub(crate) bytes: Vec<u8>,
}

fn read_header(disk: &dyn Disk, first: Seq) -> Result<Header> {
    let name = journal::file_name(first);
    let path = disk.path(&name);
    let mut bytes = [0; journal::HEADER_BYTES];
    disk.open(&name)
        .and_then(|file| file.read_exact_at(&mut bytes, 0))
        .map_err(TimelineError::io("read a journal file", &path))?;
    Header::parse(&bytes, path)
}

/// Reads the file of event `first` and checks its header.
pub(crate) fn read_file(disk: &dyn Disk, first: Seq) -> Result<FileBytes> {
    let name = journal::file_name(first);
    let path = disk.path(&name);
    let io = |what| TimelineError::io(what, path.clone());
    let file = disk.open(&name).map_err(io("open a journal file"))?;
    let size = file.size().map_err(io("measure a journal file"))?;
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 0).map_err(cut_short(path.clone()))?;
    let header = Header::parse(&bytes, path.clone())?;
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

    /// What follows the intact batches that end at `end`, but for zeros and the mark.
    pub(crate) fn torn(&self, end: usize) -> Option<TornTail> {
        let marked = Batch::parse(&self.bytes[end..]).is_some();
        let from = if marked { end + batch::HEADER_BYTES } else { end };
        let last = self.bytes[from..].iter().rposition(|byte| *byte != 0)?;
        let (offset, bytes) = (end as u64, (from + last + 1 - end) as u64);
        Some(TornTail { file: self.path.clone(), offset, bytes })
    }
}

/// Where the intact batches of a file end, and why there.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) position: usize,
    pub(crate) next: Seq,
    /// The events do not end here: these bytes were more.
    pub(crate) damage: Option<TimelineError>,
}

impl End {
    /// This end, unless it is due to damage.
    pub(crate) fn sound(mut self) -> Result<End> {
        self.damage.take().map_or(Ok(self), Err)
    }

    /// This end, when it is where `successor` goes on.
    pub(crate) fn continued_by(self, file: &FileBytes, successor: Seq) -> Result<End> {
        let end = self.sound()?;
        if end.next == successor {
            return Ok(end);
        }
        Err(file.damaged(end.position, "events are missing at the end of this file"))
    }
}

/// Calls `visit` for every record of `file` with its offset, up to the last intact batch.
pub(crate) fn scan(file: &FileBytes, mut visit: impl FnMut(usize, &Record<'_>)) -> End {
    let mut end = End { position: journal::HEADER_BYTES, next: file.header.first, damage: None };
    while let Some(batch) = Batch::parse(&file.bytes[end.position..]) {
        if batch.first != end.next {
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
        end.next = Seq(end.next.0 + u64::from(batch.count));
    }
    // Only the last batch can be incomplete, so an intact one behind it tells of damage.
    if batch::find(&file.bytes, end.position + 1, end.next).is_some() {
        end.damage = Some(file.damaged(end.position, "a batch is not intact"));
    }
    end
}

fn visit_batch(
    file: &FileBytes,
    batch: &Batch<'_>,
    start: &End,
    visit: &mut impl FnMut(usize, &Record<'_>),
) -> Result<()> {
    let end = start.position + batch.batch_bytes();
    let mut offset = start.position + batch::HEADER_BYTES;
    for seq in (start.next.0..).take(batch.count as usize).map(Seq) {
        let record =
            Record::parse(&file.bytes[offset..end]).map_err(|what| file.damaged(offset, what))?;
        if record.head.seq != seq {
            return Err(file.damaged(offset, "a record is not the next in order"));
        }
        visit(offset, &record);
        offset += record.record_bytes();
    }
    if offset == end {
        return Ok(());
    }
    Err(file.damaged(offset, "a batch holds more than its records"))
}

/// Adds the events of `file` to `index` as a file of its own.
pub(crate) fn scan_into(file: &FileBytes, index: &mut Index) -> End {
    index.begin_file(file.header.first, file.header.base, journal::HEADER_BYTES as u32);
    scan(file, |offset, record| {
        let run = index.number(record.head.run);
        let end = (offset + record.record_bytes()) as u32;
        index.push(run, record.head.kind, record.head.at, offset as u32, end);
    })
}

/// Runs `read` until it finds no damage or the same twice.
///
/// Beside a live writer a read may see a batch without the one before it; never twice so.
pub(crate) fn beside_a_writer<T>(mut read: impl FnMut() -> Result<T>) -> Result<T> {
    let mut before = None;
    loop {
        match read() {
            Err(TimelineError::Damaged { file, offset, what }) => {
                let here = Some((file.clone(), offset));
                if before == here {
                    return Err(TimelineError::Damaged { file, offset, what });
                }
                before = here;
            }
            other => return other,
        }
    }
}

/// The time that the next event must not precede.
pub(crate) fn last_time(index: &Index) -> WallTime {
    let last = index.locate(index.head()).map(|hit| hit.head.at);
    let base = index.last_file().map(|file| file.base);
    last.max(base).unwrap_or(WallTime { epoch_ms: i64::MIN })
}
