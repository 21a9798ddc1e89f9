//! Recordings: what a job has come to before its events are on the log, kept for the start after a crash.
//!
//! A file each, appended as it comes: signals in checked blocks, events as records. It reads as far
//! as it is whole. A process that is killed loses nothing of it, a power cut what was not synced.

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
    disk::open_dir_durably,
    entry::{Draft, HEADER_BYTES, PAYLOAD_BYTES_MAX, Record, u32_at},
    error::unread,
    event::{Event, NewEvent},
    held::{FileError, HeldDir, Links},
};

const SIGNALS: u8 = 1;
const EVENT: u8 = 2;
/// Rows and checksum before a block of signals.
const BLOCK_HEADER_BYTES: usize = 4 + 4;
/// Bytes written from one sync to the next: some 1,200 signals.
const SYNC_BYTES: usize = 64 << 10;

/// The recordings of the jobs under way, in one directory.
#[derive(Clone, Debug)]
pub struct Recordings(Arc<HeldDir>);

impl Recordings {
    /// Those in `dir`, which is created when there is none.
    pub fn open(dir: &Path) -> Result<Recordings> {
        let io = TimelineError::io("create the directory of recordings", dir);
        open_dir_durably(dir).map_err(io)?;
        let held = HeldDir::open(dir);
        Ok(Recordings(Arc::new(held.map_err(TimelineError::io("open a directory", dir))?)))
    }

    /// Begins the recording of a job of `run`.
    pub fn begin(&self, job: JobId, run: RunId) -> Result<Recording> {
        let path = self.0.path().join(job.to_string());
        let file = File::options().write(true).create_new(true).open(&path);
        let file = file.map_err(TimelineError::io("create a recording", &path))?;
        Ok(Recording { run, path, file, bytes: 0, unsynced: 0 })
    }

    /// Reads the recording of a job, as far as it is whole; `None` where there is none.
    pub fn read(&self, job: JobId) -> Result<Option<impl Iterator<Item = Recorded> + use<>>> {
        let name = job.to_string();
        match self.0.file(Path::new(&name), Links::Never) {
            Err(FileError::NotFound) => Ok(None),
            opened => {
                let file = opened.map_err(unread("read a recording", self.0.path().join(name)))?;
                let mut file = BufReader::new(file);
                Ok(Some(std::iter::from_fn(move || next(&mut file))))
            }
        }
    }

    /// Removes every recording: of jobs that are told of.
    pub fn clear(&self) -> Result<()> {
        let dir = self.0.path();
        let removed = fs::read_dir(dir)
            .and_then(|mut entries| entries.try_for_each(|entry| fs::remove_file(entry?.path())));
        removed.map_err(TimelineError::io("remove recordings", dir))
    }
}

/// A part of a recording.
#[derive(Debug, PartialEq)]
pub enum Recorded {
    /// Signals, which follow those before.
    Signals(Vec<Signal>),
    /// An event that was to be appended.
    Event(Box<Event>),
}

/// A recording under way; removed when this is dropped: its events are on the log, or never will be.
#[derive(Debug)]
pub struct Recording {
    run: RunId,
    path: PathBuf,
    file: File,
    bytes: u64,
    unsynced: usize,
}

impl Recording {
    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes signals that follow those before.
    pub fn signals(&mut self, signals: &[Signal]) -> Result<()> {
        for rows in signals.chunks(BLOCK_ROWS) {
            let mut block = vec![SIGNALS];
            block.extend_from_slice(&(rows.len() as u32).to_le_bytes());
            block.extend_from_slice(&[0; 4]);
            rows.iter().for_each(|signal| put_row(&mut block, signal));
            let checksum = crc32c::crc32c(&block[1 + BLOCK_HEADER_BYTES..]);
            block[5..9].copy_from_slice(&checksum.to_le_bytes());
            self.write(&block)?;
        }
        Ok(())
    }

    /// Takes an event that is to be appended.
    pub fn event(&mut self, event: Event) -> Result<()> {
        let mut record = vec![EVENT];
        let draft = Draft::of(NewEvent { run: self.run, event })?;
        draft.put(&mut record, Seq(0), WallTime { epoch_ms: 0 });
        self.write(&record)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let io = TimelineError::io("write a recording", &self.path);
        self.bytes += bytes.len() as u64;
        self.unsynced += bytes.len();
        let written = self.file.write_all(bytes).and_then(|()| {
            if self.unsynced < SYNC_BYTES {
                return Ok(());
            }
            self.unsynced = 0;
            self.file.sync_data()
        });
        written.map_err(io)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Best effort: what stays is removed at the next start.
        drop(fs::remove_file(&self.path));
    }
}

/// The next part of a recording; `None` at its end and where it is damaged.
fn next(file: &mut BufReader<File>) -> Option<Recorded> {
    match take(file, 1)?[0] {
        SIGNALS => {
            let header = take(file, BLOCK_HEADER_BYTES)?;
            let rows = Some(u32_at(&header, 0) as usize).filter(|rows| *rows <= BLOCK_ROWS)?;
            let block = take(file, rows * ROW_BYTES)?;
            let is_whole = crc32c::crc32c(&block) == u32_at(&header, 4);
            is_whole.then(|| Recorded::Signals(block.chunks_exact(ROW_BYTES).map(row).collect()))
        }
        EVENT => {
            let mut record = take(file, HEADER_BYTES)?;
            let body =
                Some(u32_at(&record, 0) as usize).filter(|body| *body <= PAYLOAD_BYTES_MAX)?;
            record.extend(take(file, body)?);
            Record::parse(&record).ok()?.decode().ok().map(Box::new).map(Recorded::Event)
        }
        _ => None,
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

    /// Signals and events of what is read.
    fn read(recordings: &Recordings) -> (usize, usize) {
        let parts = recordings.read(JOB).expect("readable").expect("there");
        parts.fold((0, 0), |(signals, events), part| match part {
            Recorded::Signals(more) => {
                let first = signals as u64;
                assert!(more.iter().zip(first..).all(|(row, index)| *row == signal(index)));
                (signals + more.len(), events)
            }
            Recorded::Event(event) => {
                let said =
                    Event::RunFailed(RunFailed { request_id: None, reason: "no".to_owned() });
                assert_eq!(*event, said);
                (signals, events + 1)
            }
        })
    }

    #[test]
    fn a_recording_reads_as_far_as_it_is_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let recordings = Recordings::open(dir.path()).expect("opened");
        assert!(recordings.read(JOB).expect("readable").is_none());
        let mut recording = recordings.begin(JOB, RUN).expect("begun");
        let signals: Vec<_> = (0..1500).map(signal).collect();
        recording.signals(&signals[..1100]).expect("written");
        let failed = RunFailed { request_id: None, reason: "no".to_owned() };
        recording.event(Event::RunFailed(failed)).expect("written");
        recording.signals(&signals[1100..]).expect("written");
        let path = dir.path().join(JOB.to_string());
        let whole = fs::read(&path).expect("there");
        let mut steps = vec![];
        // Every length that a crash may leave, and damage anywhere: what comes is a beginning.
        for cut in (0..whole.len()).step_by(7).chain([whole.len()]) {
            fs::write(&path, &whole[..cut]).expect("written");
            steps.push(read(&recordings));
            let mut damaged = whole.clone();
            damaged[cut.min(whole.len() - 1)] ^= 1;
            fs::write(&path, &damaged).expect("written");
            read(&recordings);
        }
        steps.dedup();
        assert_eq!(steps, [(0, 0), (1024, 0), (1100, 0), (1100, 1), (1500, 1)]);
        drop(recording);
        assert!(!path.exists(), "a recording ends with its job");
    }
}
