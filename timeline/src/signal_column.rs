//! Signal arrays too large for an event: a content-addressed binary file each.
//!
//! Written and read in blocks with their own checksums, so that neither needs the whole array in memory. A
//! column is durable before the event that refers to it is appended.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use media::{Activity, BlobHash, CellBox, Score, Signal};
use sha2::{Digest, Sha256};

use crate::{
    Result, TimelineError,
    error::unread,
    event::Signals,
    files::{Backing, Files, Layout},
    held::{FileError, check_size},
    pins::PinGuard,
    record::{ColumnRef, put_signal, u32_at, u64_at},
    storage::Temporary,
};

/// Bytes of JSON text above which an array is stored in a column.
pub const INLINE_JSON_BYTES_MAX: usize = 64 << 10;
pub(crate) const MAGIC_BYTES: usize = 8;
const MAGIC: [u8; MAGIC_BYTES] = *b"SLSIGNL\x03";
/// Version of columns without activity.
const MAGIC_PLAIN: [u8; MAGIC_BYTES] = *b"SLSIGNL\x01";
/// Bytes of a row without activity: two indices, the time, the hash, five scores.
pub(crate) const PLAIN_ROW_BYTES: usize = 4 * 8 + 5 * 4;
/// Bytes of a row with activity: additionally its score, box and zones, and two zero bytes.
pub(crate) const ROW_BYTES: usize = PLAIN_ROW_BYTES + 4 + 4 + 2 + 2;
/// Rows under one checksum.
pub(crate) const BLOCK_ROWS: usize = 1024;
pub(crate) const CHECKSUM_BYTES: usize = 4;
/// Values of an absent index or score, which no present one has.
const NONE_INDEX: u64 = u64::MAX;
const NONE_SCORE: u32 = u32::MAX;

#[derive(Clone)]
pub(crate) struct ColumnDir(Arc<Files>);

impl ColumnDir {
    /// Returns the columns in `dir`, which need not exist yet, without an object store.
    pub(crate) fn at(dir: &Path) -> ColumnDir {
        ColumnDir(Arc::new(Files::at(dir, Layout::Flat)))
    }

    /// Opens the columns in `dir`, creating it if needed; `backing` is its object store.
    pub(crate) fn open(dir: &Path, backing: Option<Backing>) -> Result<ColumnDir> {
        Ok(ColumnDir(Arc::new(Files::open(dir, Layout::Flat, backing)?)))
    }

    pub(crate) fn files(&self) -> &Files {
        &self.0
    }

    pub(crate) fn path(&self, hash: &BlobHash) -> PathBuf {
        self.0.path(hash)
    }

    pub(crate) fn writer(&self) -> ColumnWriter {
        ColumnWriter {
            files: Arc::clone(&self.0),
            lease: self.0.lease(),
            count: 0,
            inline: Vec::new(),
            json_bytes: 0,
            spilled: None,
        }
    }

    /// Returns the signals of a column; each block is checked before its first signal.
    pub(crate) fn read(&self, column: &ColumnRef) -> Result<ColumnReader> {
        let path = self.path(&column.hash);
        let damaged = |what| TimelineError::Damaged { file: path.clone(), offset: 0, what };
        let size_max = file_bytes(column.count);
        let size_max = size_max.ok_or(damaged("no column has so many signals"))?;
        let file = match self.0.open_file(&column.hash, size_max)? {
            Err(FileError::NotFound) => return Err(damaged("the column file is missing")),
            opened => opened.map_err(unread("open a column", &path))?,
        };
        let mut file = BufReader::new(file);
        let texts = ["read a column", "not a column file"];
        let row_bytes = read_magic(&mut file, &path, [MAGIC, MAGIC_PLAIN], texts)?;
        let size = bytes_of(column.count, row_bytes);
        let size = size.ok_or(damaged("no column has so many signals"))?;
        check_size(file.get_ref(), size).map_err(unread("measure a column", &path))?;
        Ok(ColumnReader {
            file,
            path,
            left: column.count,
            row_bytes,
            offset: MAGIC.len() as u64,
            block: Vec::new(),
            at: 0,
        })
    }

    /// Checks every byte of a column against its hash.
    pub(crate) fn verify(&self, column: &ColumnRef) -> Result<()> {
        let mut rows = self.read(column)?;
        let size = bytes_of(column.count, rows.row_bytes).unwrap_or_default();
        rows.try_for_each(|signal| signal.map(drop))?;
        let what = "the column file is missing";
        let missing = || TimelineError::Damaged { file: self.path(&column.hash), offset: 0, what };
        self.0.read(&column.hash, size)?.map(drop).ok_or_else(missing)
    }
}

/// Reads the first bytes of a column's file; returns the bytes of its rows, with activity or `plain`. The texts
/// name the operation, and the fault of a file that is no column.
pub(crate) fn read_magic(
    file: &mut impl Read,
    path: &Path,
    [magic, plain]: [[u8; MAGIC_BYTES]; 2],
    [reading, what]: [&'static str; 2],
) -> Result<usize> {
    let mut found = [0; MAGIC_BYTES];
    let damaged = || TimelineError::Damaged { file: path.to_owned(), offset: 0, what };
    file.read_exact(&mut found).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(),
        _ => TimelineError::io(reading, path)(error),
    })?;
    match found {
        _ if found == magic => Ok(ROW_BYTES),
        _ if found == plain => Ok(PLAIN_ROW_BYTES),
        [name @ .., version] if name == magic[..MAGIC_BYTES - 1] => {
            Err(TimelineError::UnknownFormat { file: path.to_owned(), version: version.into() })
        }
        _ => Err(damaged()),
    }
}

/// Returns the size of a column's file; `None` if no file can be that large.
pub(crate) fn file_bytes(count: u64) -> Option<u64> {
    bytes_of(count, ROW_BYTES)
}

fn bytes_of(count: u64, row_bytes: usize) -> Option<u64> {
    let blocks = count.div_ceil(BLOCK_ROWS as u64) * CHECKSUM_BYTES as u64;
    count.checked_mul(row_bytes as u64)?.checked_add(blocks + MAGIC.len() as u64)
}

/// Collects the signals of a decode pass: few stay in memory, many go to a column file.
pub struct ColumnWriter {
    files: Arc<Files>,
    lease: PinGuard,
    count: u64,
    inline: Vec<Signal>,
    json_bytes: usize,
    spilled: Option<Spilled>,
}

struct Spilled {
    file: BufWriter<File>,
    temporary: Temporary,
    digest: Sha256,
    block: Block,
}

impl ColumnWriter {
    /// Takes the next signal.
    pub fn push(&mut self, signal: &Signal) -> Result<()> {
        self.count += 1;
        if let Some(spilled) = &mut self.spilled {
            return spilled.push(signal);
        }
        let mut json = Vec::new();
        put_signal(&mut json, signal, self.inline.is_empty());
        self.json_bytes += json.len();
        self.inline.push(*signal);
        if self.json_bytes + "[]".len() > INLINE_JSON_BYTES_MAX {
            let mut spilled = Spilled::create(self.files.dir().path())?;
            std::mem::take(&mut self.inline).iter().try_for_each(|signal| spilled.push(signal))?;
            self.spilled = Some(spilled);
        }
        Ok(())
    }

    /// Returns the number of signals taken.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the bytes of the column of the signals so far; 0 while they stay in the event.
    pub fn column_bytes(&self) -> u64 {
        let bytes = self.spilled.as_ref().and_then(|_| file_bytes(self.count));
        bytes.unwrap_or_default()
    }

    /// Returns the signals for the event. A column is durable from here on and stays as long as the lease,
    /// which must outlive the append of the event. Waits a limited time for an object store to take it.
    pub fn finish(mut self) -> Result<(Signals, PinGuard)> {
        let signals = match self.spilled {
            None => Signals::Inline(self.inline),
            Some(spilled) => {
                let hash = spilled.finish(&self.files, &mut self.lease)?;
                self.files.send(&self.lease, &[hash]);
                Signals::Column { hash, count: self.count }
            }
        };
        Ok((signals, self.lease))
    }
}

impl Spilled {
    fn create(dir: &Path) -> Result<Spilled> {
        let (temporary, file) = Temporary::create(dir)?;
        let mut file = BufWriter::new(file);
        file.write_all(&MAGIC).map_err(TimelineError::io("write a column", temporary.path()))?;
        let (digest, block) = (Sha256::new_with_prefix(MAGIC), Block::new(&[]));
        Ok(Spilled { file, temporary, digest, block })
    }

    fn push(&mut self, signal: &Signal) -> Result<()> {
        self.block.push(signal);
        if self.block.is_full() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let Spilled { file, temporary, digest, block } = self;
        block.write(|bytes| {
            digest.update(bytes);
            file.write_all(bytes).map_err(TimelineError::io("write a column", temporary.path()))
        })
    }

    fn finish(mut self, files: &Files, lease: &mut PinGuard) -> Result<BlobHash> {
        self.flush()?;
        let hash = BlobHash::from_bytes(self.digest.finalize().into());
        lease.pin(hash);
        let written = self.file.into_inner().map_err(io::IntoInnerError::into_error);
        let file = written.map_err(TimelineError::io("write a column", self.temporary.path()))?;
        let size = file
            .metadata()
            .map_err(TimelineError::io("measure a column", self.temporary.path()))?;
        files.publish(self.temporary, &file, &hash, size.len())?;
        Ok(hash)
    }
}

/// Rows not written yet, after the bytes that begin their block; a checksum follows them.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    /// Bytes before the rows; the last two hold the number of rows.
    head: usize,
}

impl Block {
    pub(crate) fn new(head: &[u8]) -> Block {
        Block { bytes: head.to_vec(), head: head.len() }
    }

    pub(crate) fn push(&mut self, signal: &Signal) {
        put_row(&mut self.bytes, signal);
    }

    pub(crate) fn rows(&self) -> usize {
        (self.bytes.len() - self.head) / ROW_BYTES
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rows() == BLOCK_ROWS
    }

    /// Passes the block to `write` unless it has no rows, and empties it; unchanged after a failure.
    pub(crate) fn write(&mut self, write: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        let (rows, end) = (self.rows() as u16, self.bytes.len());
        if rows == 0 {
            return Ok(());
        }
        if let Some(count) = self.bytes[..self.head].last_chunk_mut() {
            *count = rows.to_le_bytes();
        }
        let checksum = crc32c::crc32c(&self.bytes);
        self.bytes.extend_from_slice(&checksum.to_le_bytes());
        let written = write(&self.bytes);
        self.bytes.truncate(if written.is_ok() { self.head } else { end });
        written
    }
}

/// Returns true if `block` ends with the checksum of all bytes before.
pub(crate) fn is_intact(block: &[u8]) -> bool {
    let end = block.len() - CHECKSUM_BYTES;
    crc32c::crc32c(&block[..end]) == u32_at(block, end)
}

pub(crate) fn put_row(out: &mut Vec<u8>, signal: &Signal) {
    out.extend_from_slice(&signal.frame_index.to_le_bytes());
    out.extend_from_slice(&signal.source_frame_index.unwrap_or(NONE_INDEX).to_le_bytes());
    out.extend_from_slice(&signal.pts_ms.to_le_bytes());
    out.extend_from_slice(&signal.perceptual_hash.to_le_bytes());
    let scores = [
        signal.luma_mean,
        signal.flicker_score,
        signal.ghosting_score,
        signal.noise_variance_score,
    ];
    scores.iter().for_each(|score| out.extend_from_slice(&score.millionths().to_le_bytes()));
    let scene = signal.scene_score.map_or(NONE_SCORE, Score::millionths);
    out.extend_from_slice(&scene.to_le_bytes());
    let score = signal.activity.map_or(NONE_SCORE, |activity| activity.score.millionths());
    let Activity { region, zones, .. } = signal.activity.unwrap_or_default();
    out.extend_from_slice(&score.to_le_bytes());
    out.extend([region.left, region.top, region.right, region.bottom]);
    out.extend_from_slice(&zones.to_le_bytes());
    out.extend([0; 2]);
}

/// Decodes the signal of a row with or without activity.
pub(crate) fn row(bytes: &[u8]) -> Signal {
    let source = u64_at(bytes, 8);
    let score = |at| Score::from_millionths(u32_at(bytes, at));
    Signal {
        frame_index: u64_at(bytes, 0),
        source_frame_index: (source != NONE_INDEX).then_some(source),
        pts_ms: u64_at(bytes, 16) as i64,
        perceptual_hash: u64_at(bytes, 24),
        luma_mean: score(32),
        flicker_score: score(36),
        ghosting_score: score(40),
        noise_variance_score: score(44),
        scene_score: (u32_at(bytes, 48) != NONE_SCORE).then(|| score(48)),
        activity: bytes.get(PLAIN_ROW_BYTES..).and_then(activity),
    }
}

fn activity(bytes: &[u8]) -> Option<Activity> {
    let &[_, _, _, _, left, top, right, bottom, low, high, ..] = bytes else { return None };
    (u32_at(bytes, 0) != NONE_SCORE).then(|| Activity {
        score: Score::from_millionths(u32_at(bytes, 0)),
        region: CellBox { left, top, right, bottom }.within_picture(),
        zones: u16::from_le_bytes([low, high]),
    })
}

/// Signals of a column in order; ends after the first error.
pub(crate) struct ColumnReader {
    file: BufReader<File>,
    path: PathBuf,
    /// Number of signals not yet returned; 0 after an error.
    pub(crate) left: u64,
    row_bytes: usize,
    offset: u64,
    block: Vec<u8>,
    /// Position in the block.
    at: usize,
}

impl ColumnReader {
    fn next_block(&mut self) -> Result<()> {
        let rows = self.left.min(BLOCK_ROWS as u64) as usize;
        self.block.resize(rows * self.row_bytes + CHECKSUM_BYTES, 0);
        self.file
            .read_exact(&mut self.block)
            .map_err(TimelineError::io("read a column", &self.path))?;
        if !is_intact(&self.block) {
            let (file, what) = (self.path.clone(), "a block does not match its checksum");
            return Err(TimelineError::Damaged { file, offset: self.offset, what });
        }
        self.offset += self.block.len() as u64;
        self.block.truncate(rows * self.row_bytes);
        self.at = 0;
        Ok(())
    }
}

impl Iterator for ColumnReader {
    type Item = Result<Signal>;

    fn next(&mut self) -> Option<Result<Signal>> {
        if self.left == 0 {
            return None;
        }
        if self.at == self.block.len()
            && let Err(error) = self.next_block()
        {
            self.left = 0;
            return Some(Err(error));
        }
        let signal = row(&self.block[self.at..][..self.row_bytes]);
        self.at += self.row_bytes;
        self.left -= 1;
        Some(Ok(signal))
    }
}
