//! Disk reserve: free space that new work must leave, so that running work can still be stopped. Also refuses
//! work while the data directory or a part of it is not the one that is open: a restart would not find
//! what is written.
//!
//! Queries the file system at most once a second. If the query fails, callers admit the work and
//! leave the error to the write.

use std::{
    fmt, io,
    path::PathBuf,
    sync::OnceLock,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use timeline::{Timeline, held::HeldDir};

/// Time for which the findings of a query are reused.
const FRESH: Duration = Duration::from_secs(1);
/// Free inodes that new work must leave: each still, column and log file takes one.
const INODES: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskRefusal {
    #[error("disk space is low: {} MiB free, {} MiB reserved", .free >> 20, .reserve >> 20)]
    Low { free: u64, reserve: u64 },
    #[error("disk space is low: {} inodes free, {} reserved", .0, INODES)]
    Inodes(u64),
    #[error("{0} was moved or replaced while the server runs: put the original back")]
    Moved(&'static str),
}

/// Checks the data directory, which holds the log and the blobs, and the free space of its file system.
#[derive(Debug)]
pub struct DiskReserve {
    dir: PathBuf,
    bytes: u64,
    open: OnceLock<OpenStores>,
    seen: Mutex<Option<(Instant, Seen)>>,
}

/// Stores that must stay where they are while they are open.
struct OpenStores {
    paths: Vec<(&'static str, HeldDir)>,
    log: Timeline,
}

impl fmt::Debug for OpenStores {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.paths, out)
    }
}

impl OpenStores {
    /// Returns the first part that is not where it was opened.
    fn moved(&self) -> io::Result<Option<DiskRefusal>> {
        for &(name, ref path) in &self.paths {
            if !path.is_there()? {
                return Ok(Some(DiskRefusal::Moved(name)));
            }
        }
        Ok((!self.log.is_in_place()?).then_some(DiskRefusal::Moved(LOG)))
    }
}

/// Free bytes, or the reason that they do not count.
type Seen = Result<u64, DiskRefusal>;

const LOG: &str = "the log in the data directory";
/// Parts of the data directory that hold what was acknowledged: each by its name in messages, and its path.
const PARTS: [(&str, &str); 7] = [
    ("the data directory", "."),
    (LOG, "log"),
    ("the ledger in the data directory", "ledger"),
    ("the folder blobs in the data directory", "blobs"),
    ("the folder uploads in the data directory", "uploads"),
    ("the folder open-columns in the data directory", "open-columns"),
    ("the folder answers in the data directory", "answers"),
];

impl DiskReserve {
    /// Creates a reserve of `bytes` on the file system of `dir`.
    pub fn new(dir: PathBuf, bytes: u64) -> DiskReserve {
        DiskReserve { dir, bytes, open: OnceLock::new(), seen: Mutex::default() }
    }

    /// Holds the directory with its parts, which were opened there.
    pub fn hold(&self, log: Timeline) -> io::Result<()> {
        let held = |(name, part)| Ok((name, HeldDir::of_any(&self.dir.join(part))?));
        let paths = PARTS.into_iter().map(held).collect::<io::Result<Vec<_>>>()?;
        self.open.get_or_init(|| OpenStores { paths, log });
        Ok(())
    }

    /// Returns the reason to refuse new work, if there is one; the findings are at most a second old.
    pub fn check(&self) -> io::Result<Option<DiskRefusal>> {
        let reserve = self.bytes;
        Ok(match self.look()?.1 {
            Ok(free) => (free < reserve).then_some(DiskRefusal::Low { free, reserve }),
            Err(refusal) => Some(refusal),
        })
    }

    /// Returns the bytes free above the reserve, and the time of the measurement, at most a second ago.
    pub fn room(&self) -> io::Result<(Instant, u64)> {
        let (at, seen) = self.look()?;
        Ok((at, seen.map_err(io::Error::other)?.saturating_sub(self.bytes)))
    }

    fn look(&self) -> io::Result<(Instant, Seen)> {
        let mut seen = self.seen.lock();
        if let Some(fresh) = seen.filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(fresh);
        }
        let moved = self.open.get().map_or(Ok(None), OpenStores::moved)?;
        let found = match moved {
            Some(moved) => {
                if seen.is_none_or(|(_, seen)| seen.is_ok()) {
                    tracing::error!(path = %self.dir.display(), "{moved}; no new work is taken until then");
                }
                Err(moved)
            }
            None => {
                let stat = rustix::fs::statvfs(&self.dir)?;
                match inodes_low(stat.f_files, stat.f_favail).filter(|_| self.bytes > 0) {
                    Some(low) => Err(low),
                    None => Ok(stat.f_bavail.saturating_mul(stat.f_frsize)),
                }
            }
        };
        let found = (Instant::now(), found);
        *seen = Some(found);
        Ok(found)
    }
}

/// Returns the shortage of inodes; a file system with a total of 0 does not limit them.
fn inodes_low(total: u64, free: u64) -> Option<DiskRefusal> {
    (total > 0 && free < INODES).then_some(DiskRefusal::Inodes(free))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use timeline::TimelineOptions;

    use super::*;

    #[test]
    fn a_reserve_is_low_when_less_is_free() {
        let dir = tempfile::tempdir().expect("a directory");
        let check = |bytes| DiskReserve::new(dir.path().to_owned(), bytes).check().expect("there");
        assert_eq!(check(0), None);
        let low = check(u64::MAX).expect("no disk has that much");
        assert!(matches!(low, DiskRefusal::Low { reserve: u64::MAX, .. }), "{low}");
        assert!(DiskReserve::new(dir.path().join("gone"), 0).check().is_err());
        let inodes = [(0, 0), (9000, INODES), (9000, INODES - 1)];
        let low = inodes.map(|(total, free)| inodes_low(total, free));
        assert_eq!(low, [None, None, Some(DiskRefusal::Inodes(INODES - 1))]);
    }

    #[test]
    fn a_part_that_is_not_the_open_one_is_found_until_it_is_back() {
        let outer = tempfile::tempdir().expect("a directory");
        let (real, data) = (outer.path().join("real"), outer.path().join("data"));
        fs::create_dir(&real).expect("made");
        std::os::unix::fs::symlink("real", &data).expect("linked");
        fs::write(data.join("ledger"), "").expect("written");
        for folder in ["blobs", "uploads", "open-columns", "answers"] {
            fs::create_dir(data.join(folder)).expect("made");
        }
        let (log, _) =
            Timeline::open(&data.join("log"), TimelineOptions::default()).expect("opened");
        let reserve = DiskReserve::new(data.clone(), 0);
        reserve.hold(log).expect("there");
        let moved = || {
            let found = reserve.open.get().expect("held").moved().expect("examined");
            found.map_or(String::new(), |refusal| refusal.to_string())
        };
        let journal = format!("log/journal/{:020}.journal", 1);
        let away = outer.path().join("away");
        for (part, named) in [
            ("", "the data directory"),
            ("ledger", "the ledger"),
            ("blobs", "the folder blobs"),
            ("uploads", "the folder uploads"),
            ("open-columns", "the folder open-columns"),
            ("answers", "the folder answers"),
            ("log", LOG),
            ("log/journal", LOG),
            (journal.as_str(), LOG),
        ] {
            let path = if part.is_empty() { data.clone() } else { data.join(part) };
            assert_eq!(moved(), "", "{part}");
            fs::rename(&path, &away).expect("moved");
            assert!(moved().starts_with(named), "{part} is gone: {}", moved());
            fs::write(&path, "").expect("written");
            assert!(moved().starts_with(named), "{part} is another: {}", moved());
            fs::remove_file(&path).expect("removed");
            fs::rename(&away, &path).expect("back");
        }
        fs::rename(&real, &away).expect("moved");
        assert!(moved().starts_with("the data directory"), "{}", moved());
        fs::rename(&away, &real).expect("back");
        assert_eq!(moved(), "");
    }
}
