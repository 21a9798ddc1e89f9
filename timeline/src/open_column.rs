//! Open columns: signals of recordings in progress, each with the events that will close it.
//!
//! One file each, appended in checksummed blocks and read beside its writer up to the durable end. A killed
//! process loses unwritten rows, a power cut unflushed ones. Sealing copies a column into a content-addressed
//! one; the open one stays until an event names the copy. Long because writer and reader share the format.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use media::{JobId, RunId, Seq, Signal, WallTime};

use crate::{
    Result, TimelineError,
    error::unread,
    event::{Event, NewEvent},
    held::{FileError, HeldDir, Links},
    record::{HEADER_BYTES, JournalRecord, PAYLOAD_BYTES_MAX, RecordBuilder, u32_at},
    signal_column::{
        BLOCK_ROWS, Block, CHECKSUM_BYTES, MAGIC_BYTES, ROW_BYTES, is_intact, read_magic, row,
    },
    storage::{Temporary, open_dir},
};

/// The last byte is the version and differs from that of content-addressed columns.
const MAGIC: [u8; MAGIC_BYTES] = *b"SLSIGNL\x04";
/// Version with rows without activity.
const MAGIC_PLAIN: [u8; MAGIC_BYTES] = *b"SLSIGNL\x02";
const SIGNALS: u8 = 1;
const EVENT: u8 = 2;
/// Kind of a block and number of its rows; the checksum covers them.
const BLOCK_HEADER_BYTES: usize = 1 + 2;

/// Open columns of one directory.
#[derive(Clone, Debug)]
pub struct OpenColumns(Arc<HeldDir>);

impl OpenColumns {
    /// Opens the columns in `dir`, creating it if needed, and removes unfinished ones. Refuses a column of an
    /// unknown format: its recording would appear to be empty.
    pub fn open(dir: &Path) -> Result<OpenColumns> {
        let columns = OpenColumns(Arc::new(open_dir(dir)?.0));
        for (run, job) in columns.all()? {
            if let Err(error @ TimelineError::UnknownFormat { .. }) = columns.read(run, job) {
                return Err(error);
            }
        }
        Ok(columns)
    }

    /// Begins the column of a job of `run`, which the events `head` will close; durable on return.
    pub fn begin(
        &self,
        run: RunId,
        job: JobId,
        head: impl IntoIterator<Item = Event>,
    ) -> Result<OpenColumn> {
        let path = self.path(run, job);
        if self.0.file(Path::new(&name(run, job)), Links::Never).is_ok() {
            let exists = io::ErrorKind::AlreadyExists.into();
            return Err(TimelineError::io("create an open column", path)(exists));
        }
        let mut bytes = MAGIC.to_vec();
        for event in head {
            bytes.push(EVENT);
            RecordBuilder::of(NewEvent { run, event })?.put(
                &mut bytes,
                Seq(0),
                WallTime { epoch_ms: 0 },
            );
        }
        // Named only with its complete head: without it nothing could close the column.
        let (temporary, mut file) = Temporary::create(self.0.path())?;
        file.write_all(&bytes).map_err(TimelineError::io("write an open column", &path))?;
        temporary.publish(&file, &path)?;
        let block = Block::new(&[SIGNALS, 0, 0]);
        let (bytes, state) = (bytes.len() as u64, State::default());
        Ok(OpenColumn { path, file, bytes, synced: Arc::new(bytes.into()), block, state })
    }

    /// Returns run and job of each column, in no order.
    pub fn all(&self) -> Result<Vec<(RunId, JobId)>> {
        let dir = self.0.path();
        let io = TimelineError::io("list the open columns", dir);
        let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let names = entries.map_err(io)?.into_iter().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| parsed(name.to_str()?)).collect())
    }

    /// Reads a column up to its last whole block, durable or not; `None` if there is none. It must have no
    /// writer, or be read by its writer.
    pub fn read(&self, run: RunId, job: JobId) -> Result<Option<OpenRows>> {
        let Some((file, path)) = self.file(run, job)? else { return Ok(None) };
        let metadata = file.metadata().map_err(TimelineError::io("read an open column", &path))?;
        OpenRows::new(Part { file: Arc::new(file), at: 0, end: metadata.len() }, path).map(Some)
    }

    /// Returns the present state of a column beside its writer, as far as it is `synced`; `None` without one.
    pub fn snapshot(
        &self,
        run: RunId,
        job: JobId,
        synced: &AtomicU64,
    ) -> Result<Option<OpenSnapshot>> {
        let Some((file, path)) = self.file(run, job)? else { return Ok(None) };
        let end = synced.load(Ordering::Acquire);
        Ok(Some(OpenSnapshot { part: Part { file: Arc::new(file), at: 0, end }, path }))
    }

    /// Makes everything durable that the column's writer has written.
    pub fn sync(&self, run: RunId, job: JobId) -> Result<()> {
        let Some((file, path)) = self.file(run, job)? else { return Ok(()) };
        file.sync_data().map_err(TimelineError::io("sync an open column", &path))
    }

    fn file(&self, run: RunId, job: JobId) -> Result<Option<(File, PathBuf)>> {
        let path = self.path(run, job);
        match self.0.file(Path::new(&name(run, job)), Links::Never) {
            Err(FileError::NotFound) => Ok(None),
            opened => Ok(Some((opened.map_err(unread("read an open column", &path))?, path))),
        }
    }

    /// Keeps the file of a damaged column beside it, under a separate name.
    pub fn keep_damaged(&self, run: RunId, job: JobId) -> Result<()> {
        let path = self.path(run, job);
        match fs::hard_link(&path, path.with_added_extension("damaged")) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked.map_err(TimelineError::io("keep a damaged open column", &path)),
        }
    }

    /// Removes a column, once events name its rows or never will.
    pub fn remove(&self, run: RunId, job: JobId) -> Result<()> {
        let path = self.path(run, job);
        fs::remove_file(&path).map_err(TimelineError::io("remove an open column", &path))
    }

    fn path(&self, run: RunId, job: JobId) -> PathBuf {
        self.0.path().join(name(run, job))
    }
}

/// Checks the open column at `path`; false if the file is none. A block that is being written is no damage.
pub fn check_open_column(path: &Path) -> Result<bool> {
    if path.file_name().and_then(|name| name.to_str()).and_then(parsed).is_none() {
        return Ok(false);
    }
    let failed = TimelineError::io("read an open column", path);
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (end, file) = opened.map_err(failed)?;
    let mut rows = OpenRows::new(Part { file: Arc::new(file), at: 0, end }, path.to_owned())?;
    rows.by_ref().for_each(drop);
    let (offset, file) = (rows.offset, Arc::clone(&rows.file.get_ref().file));
    // Of a block that is being written, the file has its kind or nothing.
    let mut kind = [0];
    file.read_at(&mut kind, offset).map_err(TimelineError::io("read an open column", path))?;
    if rows.end()?.is_damaged || ![0, SIGNALS].contains(&kind[0]) {
        let what = "an open column's block does not match its checksum";
        return Err(TimelineError::Damaged { file: path.to_owned(), offset, what });
    }
    Ok(true)
}

fn name(run: RunId, job: JobId) -> String {
    format!("{run}.{job}")
}

fn parsed(name: &str) -> Option<(RunId, JobId)> {
    let (run, job) = name.split_once('.')?;
    Some((run.parse().ok()?, job.parse().ok()?))
}

/// Writer of an open column.
#[derive(Debug)]
pub struct OpenColumn {
    path: PathBuf,
    file: File,
    /// Bytes in the file, all of whole blocks.
    bytes: u64,
    /// Number of durable bytes.
    synced: Arc<AtomicU64>,
    block: Block,
    state: State,
}

#[derive(Debug, Default)]
struct State {
    /// True if written bytes are not synced yet.
    is_unsynced: bool,
    /// True if a row was lost: the next one would take its place.
    has_gap: bool,
    /// True after a failed sync: the kernel may have dropped data, and the next sync would not tell.
    is_unsure: bool,
}

impl OpenColumn {
    /// Returns the size including the rows that are not written yet.
    pub fn bytes(&self) -> u64 {
        let pending = (BLOCK_HEADER_BYTES + CHECKSUM_BYTES + self.block.rows() * ROW_BYTES) as u64;
        self.bytes + if self.block.rows() > 0 { pending } else { 0 }
    }

    /// Returns the live number of durable bytes; readers see no more.
    pub fn synced(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.synced)
    }

    /// Takes the next row; fails from the first lost row on.
    pub fn push(&mut self, signal: &Signal) -> Result<()> {
        if self.state.has_gap {
            return Err(self.failed_before());
        }
        if self.block.is_full() {
            let written = self.write();
            self.state.has_gap = written.is_err();
            written?;
        }
        self.block.push(signal);
        Ok(())
    }

    /// Writes every row so far, so that they survive a kill. After a failure, a later call may succeed.
    pub fn write(&mut self) -> Result<()> {
        let OpenColumn { path, file, bytes, block, state, .. } = self;
        block.write(|block| {
            // Overwrites the remains of a failed attempt.
            let written = file.write_all_at(block, *bytes);
            written.map_err(TimelineError::io("write an open column", path.as_path()))?;
            *bytes += block.len() as u64;
            state.is_unsynced = true;
            Ok(())
        })
    }

    /// Makes every row so far durable and visible to readers; always fails after a failed sync.
    pub fn flush(&mut self) -> Result<()> {
        if self.state.is_unsure {
            return Err(self.failed_before());
        }
        self.write()?;
        if self.state.is_unsynced {
            let synced = self.file.sync_data();
            self.state.is_unsure = synced.is_err();
            synced.map_err(TimelineError::io("sync an open column", &self.path))?;
            self.state.is_unsynced = false;
            self.synced.store(self.bytes, Ordering::Release);
        }
        Ok(())
    }

    fn failed_before(&self) -> TimelineError {
        let source = io::Error::other("the disk failed before");
        TimelineError::Io { what: "write an open column", path: self.path.clone(), source }
    }
}

/// Bytes after the last whole row of an open column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Number of the bytes.
    pub bytes: u64,
    /// Most rows that may be lost with the bytes.
    pub rows_max: u64,
    /// True if more than an unfinished block is lost: whole blocks follow, or the bytes exceed a block.
    pub is_damaged: bool,
}

/// Snapshot of an open column, valid after the column has grown or was removed.
#[derive(Clone, Debug)]
pub struct OpenSnapshot {
    part: Part,
    path: PathBuf,
}

impl OpenSnapshot {
    /// Returns the rows, the same on each call.
    pub fn rows(&self) -> Result<OpenRows> {
        OpenRows::new(self.part.clone(), self.path.clone())
    }
}

/// Bytes of a file up to an end.
#[derive(Clone, Debug)]
struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let most = out.len().min(left);
        let len = self.file.read_at(&mut out[..most], self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// Rows of an open column in order, up to the first damaged or unfinished block.
#[derive(Debug)]
pub struct OpenRows {
    file: BufReader<Part>,
    path: PathBuf,
    head: Vec<Event>,
    row_bytes: usize,
    /// End of the intact part read so far.
    offset: u64,
    /// Current block, or an event of the head.
    part: Vec<u8>,
    /// Position of the next row in the block, and the end of its rows.
    at: usize,
    rows_end: usize,
    /// True if nothing readable follows.
    is_over: bool,
    /// Read error of the disk, after which more data may follow.
    error: Option<TimelineError>,
}

impl OpenRows {
    fn new(file: Part, path: PathBuf) -> Result<OpenRows> {
        let mut file = BufReader::new(file);
        let texts = ["read an open column", "not an open column"];
        let row_bytes = read_magic(&mut file, &path, [MAGIC, MAGIC_PLAIN], texts)?;
        let (head, part, offset) = (Vec::new(), Vec::new(), MAGIC_BYTES as u64);
        let (at, rows_end, is_over, error) = (0, 0, false, None);
        let mut rows =
            OpenRows { file, path, head, row_bytes, offset, part, at, rows_end, is_over, error };
        while rows.rows_end == 0 && !rows.is_over {
            rows.advance();
        }
        rows.error.take().map_or(Ok(rows), Err)
    }

    /// Returns the events that will close the column, without any row.
    pub fn head(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.head)
    }

    /// Reads the rest; returns the bytes after the last whole row, or the read error of the disk.
    ///
    /// Beside a writer they may be an unfinished block.
    pub fn end(mut self) -> Result<Cut> {
        while self.next().is_some() {}
        if let Some(error) = self.error {
            return Err(error);
        }
        let Part { file, end, .. } = self.file.get_ref();
        let bytes = end.saturating_sub(self.offset);
        let rows_max = bytes / self.row_bytes as u64;
        let block_bytes = |rows| block_bytes(rows, self.row_bytes);
        if bytes > block_bytes(BLOCK_ROWS) as u64 {
            return Ok(Cut { bytes, rows_max, is_damaged: true });
        }
        let mut rest = vec![0; bytes as usize];
        file.read_exact_at(&mut rest, self.offset)
            .map_err(TimelineError::io("read an open column", &self.path))?;
        let mut next = (1..=BLOCK_ROWS).filter_map(|rows| rest.get(block_bytes(rows)..));
        let is_damaged = next.any(|bytes| begins_with_block(bytes, self.row_bytes));
        Ok(Cut { bytes, rows_max, is_damaged })
    }

    fn advance(&mut self) {
        (self.at, self.rows_end) = (0, 0);
        self.part.clear();
        match self.take_part() {
            Ok(Some(())) => self.offset += self.part.len() as u64,
            Ok(None) => self.is_over = true,
            Err(source) => {
                self.error = Some(TimelineError::io("read an open column", &self.path)(source));
                self.is_over = true;
            }
        }
    }

    /// Reads an event of the head, or the next block; `None` if no whole one follows.
    fn take_part(&mut self) -> io::Result<Option<()>> {
        if !self.fill(1)? {
            return Ok(None);
        }
        let kind = self.part[0];
        match kind {
            SIGNALS if self.fill(BLOCK_HEADER_BYTES)? => {
                let Some(rows) = rows_of(&self.part) else { return Ok(None) };
                if !self.fill(block_bytes(rows, self.row_bytes))? || !is_intact(&self.part) {
                    return Ok(None);
                }
                self.at = BLOCK_HEADER_BYTES;
                self.rows_end = self.part.len() - CHECKSUM_BYTES;
            }
            EVENT if self.fill(1 + HEADER_BYTES)? => {
                let body = u32_at(&self.part, 1) as usize;
                if body > PAYLOAD_BYTES_MAX || !self.fill(1 + HEADER_BYTES + body)? {
                    return Ok(None);
                }
                let event =
                    JournalRecord::parse(&self.part[1..]).ok().and_then(|it| it.decode().ok());
                let Some(event) = event else { return Ok(None) };
                self.head.push(event);
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// Reads until the part has `bytes` bytes; false if the file ends before.
    fn fill(&mut self, bytes: usize) -> io::Result<bool> {
        let read = self.part.len();
        self.part.resize(bytes, 0);
        match self.file.read_exact(&mut self.part[read..]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            filled => filled.map(|()| true),
        }
    }
}

const fn block_bytes(rows: usize, row_bytes: usize) -> usize {
    BLOCK_HEADER_BYTES + rows * row_bytes + CHECKSUM_BYTES
}

/// Returns the number of rows of the block that begins with `header`; `None` if it begins no block.
fn rows_of(header: &[u8]) -> Option<usize> {
    let rows = usize::from(u16::from_le_bytes([header[1], header[2]]));
    (header[0] == SIGNALS && (1..=BLOCK_ROWS).contains(&rows)).then_some(rows)
}

/// Returns true if `bytes` begins with a whole block.
fn begins_with_block(bytes: &[u8], row_bytes: usize) -> bool {
    let rows = bytes.get(..BLOCK_HEADER_BYTES).and_then(rows_of);
    rows.and_then(|rows| bytes.get(..block_bytes(rows, row_bytes))).is_some_and(is_intact)
}

impl Iterator for OpenRows {
    type Item = Signal;

    fn next(&mut self) -> Option<Signal> {
        if self.at == self.rows_end && !self.is_over {
            self.advance();
        }
        let bytes = self.part[..self.rows_end].get(self.at..self.at + self.row_bytes)?;
        self.at += self.row_bytes;
        Some(row(bytes))
    }
}

#[cfg(test)]
mod tests;
