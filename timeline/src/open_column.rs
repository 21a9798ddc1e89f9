//! Open columns: the signals of recordings in progress, each with the events that will close it.
//!
//! A file each, appended in checked blocks and read beside its writer as far as it is whole. A process that is killed
//! loses what was not written, a power cut what was not flushed. Sealing is a copy into a content-addressed column:
//! an open column stays until an event names the copy.

use std::{
    fs::{self, File},
    io::{BufReader, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use media::{JobId, RunId, Seq, Signal, WallTime};

use crate::{
    Result, TimelineError,
    column::{BLOCK_ROWS, ROW_BYTES, put_row, row},
    disk::{open_dir_durably, sync_dir},
    entry::{Draft, HEADER_BYTES, PAYLOAD_BYTES_MAX, Record, u32_at},
    error::unread,
    event::{Event, NewEvent},
    held::{FileError, HeldDir, Links},
};

const SIGNALS: u8 = 1;
const EVENT: u8 = 2;
/// Kind of a block, its rows and their checksum.
const BLOCK_HEADER_BYTES: usize = 1 + 4 + 4;
const BLOCK_BYTES_MAX: usize = BLOCK_HEADER_BYTES + BLOCK_ROWS * ROW_BYTES;

/// The open columns, in one directory.
#[derive(Clone, Debug)]
pub struct OpenColumns(Arc<HeldDir>);

impl OpenColumns {
    /// Those in `dir`, which is created when there is none.
    pub fn open(dir: &Path) -> Result<OpenColumns> {
        let io = TimelineError::io("create the directory of open columns", dir);
        open_dir_durably(dir).map_err(io)?;
        let held = HeldDir::open(dir);
        Ok(OpenColumns(Arc::new(held.map_err(TimelineError::io("open a directory", dir))?)))
    }

    /// Begins the column of a job of `run`, which `head` is to close.
    pub fn begin(
        &self,
        run: RunId,
        job: JobId,
        head: impl IntoIterator<Item = Event>,
    ) -> Result<OpenColumn> {
        let path = self.0.path().join(name(run, job));
        let mut bytes = Vec::new();
        for event in head {
            bytes.push(EVENT);
            Draft::of(NewEvent { run, event })?.put(&mut bytes, Seq(0), WallTime { epoch_ms: 0 });
        }
        let created = File::options().write(true).create_new(true).open(&path).and_then(|file| {
            (&file).write_all(&bytes)?;
            sync_dir(self.0.path())?;
            Ok(file)
        });
        let file = created.map_err(TimelineError::io("create an open column", &path))?;
        let mut block = Vec::with_capacity(BLOCK_BYTES_MAX);
        block.resize(BLOCK_HEADER_BYTES, 0);
        Ok(OpenColumn { path, file, bytes: bytes.len() as u64, block, is_synced: false })
    }

    /// Run and job of each, in no order.
    pub fn all(&self) -> Result<Vec<(RunId, JobId)>> {
        let dir = self.0.path();
        let io = TimelineError::io("list the open columns", dir);
        let entries = fs::read_dir(dir).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let names = entries.map_err(io)?.into_iter().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| parsed(name.to_str()?)).collect())
    }

    /// Reads one as far as it is whole; `None` where there is none.
    pub fn read(&self, run: RunId, job: JobId) -> Result<Option<OpenRows>> {
        let name = name(run, job);
        match self.0.file(Path::new(&name), Links::Never) {
            Err(FileError::NotFound) => Ok(None),
            opened => {
                let file =
                    opened.map_err(unread("read an open column", self.0.path().join(name)))?;
                let mut rows = OpenRows {
                    file: BufReader::new(file),
                    head: Vec::new(),
                    block: Vec::new(),
                    at: 0,
                    is_over: false,
                };
                while rows.block.is_empty() && !rows.is_over {
                    rows.is_over = rows.take_part().is_none();
                }
                Ok(Some(rows))
            }
        }
    }

    /// Removes one: events name its rows, or never will.
    pub fn remove(&self, run: RunId, job: JobId) -> Result<()> {
        let path = self.0.path().join(name(run, job));
        fs::remove_file(&path).map_err(TimelineError::io("remove an open column", &path))
    }
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
    /// Bytes in the file.
    bytes: u64,
    /// The next block, behind room for its header.
    block: Vec<u8>,
    is_synced: bool,
}

impl OpenColumn {
    /// Its size with the rows that are not written yet.
    pub fn bytes(&self) -> u64 {
        let pending = self.block.len() - BLOCK_HEADER_BYTES;
        self.bytes + if pending > 0 { self.block.len() as u64 } else { 0 }
    }

    /// Takes the next row.
    pub fn push(&mut self, signal: &Signal) -> Result<()> {
        put_row(&mut self.block, signal);
        if self.block.len() == BLOCK_BYTES_MAX { self.write() } else { Ok(()) }
    }

    /// Shows readers every row so far.
    pub fn write(&mut self) -> Result<()> {
        let rows = (self.block.len() - BLOCK_HEADER_BYTES) / ROW_BYTES;
        if rows == 0 {
            return Ok(());
        }
        let checksum = crc32c::crc32c(&self.block[BLOCK_HEADER_BYTES..]);
        self.block[0] = SIGNALS;
        self.block[1..5].copy_from_slice(&(rows as u32).to_le_bytes());
        self.block[5..9].copy_from_slice(&checksum.to_le_bytes());
        let written = self.file.write_all(&self.block);
        written.map_err(TimelineError::io("write an open column", &self.path))?;
        self.bytes += self.block.len() as u64;
        self.block.truncate(BLOCK_HEADER_BYTES);
        self.is_synced = false;
        Ok(())
    }

    /// Makes every row so far durable.
    pub fn flush(&mut self) -> Result<()> {
        self.write()?;
        if !self.is_synced {
            let synced = self.file.sync_data();
            synced.map_err(TimelineError::io("sync an open column", &self.path))?;
            self.is_synced = true;
        }
        Ok(())
    }
}

/// Rows of an open column in order, up to the first that is not whole.
#[derive(Debug)]
pub struct OpenRows {
    file: BufReader<File>,
    head: Vec<Event>,
    /// Rows of the current block.
    block: Vec<u8>,
    at: usize,
    /// Nothing follows that can be read.
    is_over: bool,
}

impl OpenRows {
    /// The events that were to close it, without any row.
    pub fn head(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.head)
    }

    /// Reads an event of the head, or the next block; `None` at the end and where it is damaged.
    fn take_part(&mut self) -> Option<()> {
        (self.at, self.block) = (0, Vec::new());
        match take(&mut self.file, 1)?[0] {
            SIGNALS => {
                let header = take(&mut self.file, BLOCK_HEADER_BYTES - 1)?;
                let rows = u32_at(&header, 0) as usize;
                let rows = Some(rows).filter(|rows| (1..=BLOCK_ROWS).contains(rows))?;
                let block = take(&mut self.file, rows * ROW_BYTES)?;
                self.block = Some(block).filter(|it| crc32c::crc32c(it) == u32_at(&header, 4))?;
            }
            EVENT => {
                let mut record = take(&mut self.file, HEADER_BYTES)?;
                let body = u32_at(&record, 0) as usize;
                let body = Some(body).filter(|body| *body <= PAYLOAD_BYTES_MAX)?;
                record.extend(take(&mut self.file, body)?);
                self.head.push(Record::parse(&record).ok()?.decode().ok()?);
            }
            _ => return None,
        }
        Some(())
    }
}

impl Iterator for OpenRows {
    type Item = Signal;

    fn next(&mut self) -> Option<Signal> {
        if self.at == self.block.len() && !self.is_over {
            self.is_over = self.take_part().is_none();
        }
        let bytes = self.block.get(self.at..self.at + ROW_BYTES)?;
        self.at += ROW_BYTES;
        Some(row(bytes))
    }
}

fn take(file: &mut BufReader<File>, bytes: usize) -> Option<Vec<u8>> {
    let mut taken = vec![0; bytes];
    // An entry that cannot be read was lost with all that follow it.
    file.read_exact(&mut taken).ok().map(|()| taken)
}

#[cfg(test)]
mod tests {
    use media::Score;

    use super::*;
    use crate::RunFailed;

    const JOB: JobId = JobId::from_bytes([1; 16]);
    const RUN: RunId = RunId::from_bytes([2; 16]);

    fn signal(frame_index: u64) -> Signal {
        Signal {
            frame_index,
            source_frame_index: None,
            pts_ms: frame_index as i64 * 40,
            perceptual_hash: frame_index,
            luma_mean: Score::ONE,
            flicker_score: Score::ONE,
            ghosting_score: Score::ONE,
            noise_variance_score: Score::ONE,
            scene_score: None,
        }
    }

    fn event() -> Event {
        Event::RunFailed(RunFailed { request_id: None, reason: "no".to_owned() })
    }

    /// Number of rows and of events of the head.
    fn read(columns: &OpenColumns) -> (usize, usize) {
        let mut rows = columns.read(RUN, JOB).expect("readable").expect("there");
        let head = rows.head();
        assert!(head.iter().all(|told| *told == event()));
        let count = rows.zip(0..).inspect(|(row, index)| assert_eq!(*row, signal(*index))).count();
        (count, head.len())
    }

    #[test]
    fn an_open_column_reads_as_far_as_it_is_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let columns = OpenColumns::open(dir.path()).expect("opened");
        assert!(columns.read(RUN, JOB).expect("readable").is_none());
        let mut column = columns.begin(RUN, JOB, [event(), event()]).expect("begun");
        assert_eq!(read(&columns), (0, 2), "and its writer goes on");
        (0..1100).for_each(|at| column.push(&signal(at)).expect("taken"));
        assert_eq!(read(&columns), (1024, 2), "a whole block is there at once");
        column.write().expect("written");
        assert_eq!(read(&columns), (1100, 2));
        (1100..1500).for_each(|at| column.push(&signal(at)).expect("taken"));
        let bytes = column.bytes();
        column.flush().expect("durable");
        assert_eq!(columns.all().expect("listed"), [(RUN, JOB)]);
        let path = dir.path().join(name(RUN, JOB));
        let whole = fs::read(&path).expect("there");
        assert_eq!((whole.len() as u64, column.bytes()), (bytes, bytes));
        let mut steps = vec![];
        // Every length that a crash may leave, and damage anywhere: what comes is a beginning.
        for cut in (0..whole.len()).step_by(7).chain([whole.len()]) {
            fs::write(&path, &whole[..cut]).expect("written");
            steps.push(read(&columns));
            let mut damaged = whole.clone();
            damaged[cut.min(whole.len() - 1)] ^= 1;
            fs::write(&path, &damaged).expect("written");
            read(&columns);
        }
        steps.dedup();
        assert_eq!(steps, [(0, 0), (0, 1), (0, 2), (1024, 2), (1100, 2), (1500, 2)]);
        columns.remove(RUN, JOB).expect("removed");
        assert!(columns.all().expect("listed").is_empty());
    }
}
