//! Job results too long for the ledger: one file each, kept while the job's record and its run
//! exist, and charged to the run's owner.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use media::{JobId, RunId};
use parking_lot::Mutex;
use tempfile::TempPath;
use timeline::held::{HeldDir, Links};

use super::JobRunner;
use crate::base::{meta_store::MetaStoreError, quota::QuotaReservation};

const UNFINISHED: &str = ".tmp";

type Key = (RunId, JobId);

pub struct Answers {
    dir: HeldDir,
    kept: Mutex<HashMap<Key, QuotaReservation>>,
}

pub struct Writing {
    key: Key,
    /// Removed when dropped, unless renamed; one that stays is removed by the sweep of the next start.
    unfinished: TempPath,
    file: File,
    hold: QuotaReservation,
}

impl Answers {
    pub fn open(dir: &Path) -> io::Result<Answers> {
        fs::create_dir_all(dir)?;
        Ok(Answers { dir: HeldDir::open(dir)?, kept: Mutex::default() })
    }
}

fn name((run, job): Key) -> String {
    format!("{run}.{job}")
}

fn named(name: &str) -> Option<Key> {
    let (run, job) = name.split_once('.')?;
    Some((run.parse().ok()?, job.parse().ok()?))
}

impl Writing {
    /// Appends the next part of the answer.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hold.grow(bytes.len() as u64).map_err(io::Error::other)?;
        self.file.write_all(bytes)
    }
}

impl JobRunner {
    /// Begins the long answer of a job, and opens its file for reading; fails if its run does not exist.
    pub fn begin_answer(&self, run: RunId, job: JobId) -> io::Result<(Writing, File)> {
        let registry = &self.parts.registry;
        let found = registry.run(run).ok_or(io::ErrorKind::NotFound)?;
        let hold = registry.quota.hold(&found.origin().principal);
        let path = self.parts.answers.dir.path().join(name((run, job)) + UNFINISHED);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let unfinished = TempPath::try_from_path(path)?;
        let reading = file.try_clone()?;
        Ok((Writing { key: (run, job), unfinished, file, hold }, reading))
    }

    /// Makes a complete answer durable and keeps it.
    pub fn keep_answer(&self, writing: Writing) -> io::Result<()> {
        let Writing { key, unfinished, file, hold } = writing;
        let dir = self.parts.answers.dir.path();
        file.sync_data()?;
        // By std, not `persist`: tests make it fail where libc is called.
        fs::rename(&unfinished, dir.join(name(key)))?;
        drop(unfinished.keep());
        File::open(dir)?.sync_all()?;
        self.parts.answers.kept.lock().insert(key, hold);
        Ok(())
    }

    /// Returns the long answer of a job and its size in bytes, if one is kept.
    pub fn answer(&self, run: RunId, job: JobId) -> Option<(File, u64)> {
        let file = self.parts.answers.dir.file(Path::new(&name((run, job))), Links::Never).ok()?;
        let bytes = file.metadata().ok()?.len();
        Some((file, bytes))
    }

    /// Removes answers whose job record or run no longer exists; charges the others to their
    /// owners, if those are known. At startup, with `unfinished`, removes incomplete answers too.
    pub(super) fn sweep_answers(&self, unfinished: bool) -> Result<(), MetaStoreError> {
        let answers = &self.parts.answers;
        let Ok(entries) = fs::read_dir(answers.dir.path()) else { return Ok(()) };
        let unowned = self.parts.registry.unowned();
        for entry in entries.flatten() {
            let file = entry.file_name();
            let text = file.to_str().unwrap_or_default();
            if text.ends_with(UNFINISHED) && !unfinished {
                continue;
            }
            let key = named(text);
            let run = key.and_then(|(run, _)| self.parts.registry.run(run));
            let run = run.filter(|run| run.lifecycle().is_visible());
            let recorded = key.map(|(run, job)| self.find_job(run, job)).transpose()?.flatten();
            if recorded.is_some() && key.is_some_and(|(run, _)| unowned.contains(&run)) {
                continue;
            }
            let (Some(key), Some(run), Some(_)) = (key, run, recorded) else {
                if let Err(error) = fs::remove_file(entry.path()) {
                    tracing::warn!(%error, "a long answer stays until the next sweep");
                }
                key.and_then(|key| answers.kept.lock().remove(&key));
                continue;
            };
            answers.kept.lock().entry(key).or_insert_with(|| {
                let mut hold = self.parts.registry.quota.hold(&run.origin().principal);
                hold.record(entry.metadata().map_or(0, |file| file.len()));
                hold
            });
        }
        Ok(())
    }
}
