//! Disk reserve: free space that new work must leave, so that running work can still be stopped.
//!
//! Queries the file system at most once a second. If the query fails, callers admit the work and
//! leave the error to the write.

use std::{
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
/// Time for which a measurement of free space is reused.
const FRESH: Duration = Duration::from_secs(1);

/// Free space is below the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("disk space is low: {} MiB free, {} MiB reserved", .free >> 20, .reserve >> 20)]
pub struct DiskLow {
    /// Free bytes.
    pub free: u64,
    /// Size of the reserve, bytes.
    pub reserve: u64,
}

/// Checks the free space of the file system that holds the log and the blobs.
#[derive(Debug)]
pub struct DiskReserve {
    dir: PathBuf,
    bytes: u64,
    seen: Mutex<Option<(Instant, u64)>>,
}

impl DiskReserve {
    /// Creates a reserve of `bytes` on the file system of `dir`.
    pub fn new(dir: PathBuf, bytes: u64) -> DiskReserve {
        DiskReserve { dir, bytes, seen: Mutex::default() }
    }

    /// Returns the shortage if free space is below the reserve; the measurement is at most a second old.
    pub fn check(&self) -> io::Result<Option<DiskLow>> {
        let (_, free) = self.free()?;
        Ok((free < self.bytes).then_some(DiskLow { free, reserve: self.bytes }))
    }

    /// Returns the bytes free above the reserve, and the time of the measurement, at most a second ago.
    pub fn room(&self) -> io::Result<(Instant, u64)> {
        let (at, free) = self.free()?;
        Ok((at, free.saturating_sub(self.bytes)))
    }

    fn free(&self) -> io::Result<(Instant, u64)> {
        let mut seen = self.seen.lock();
        if let Some(fresh) = seen.filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(fresh);
        }
        let stat = rustix::fs::statvfs(&self.dir)?;
        let free = (Instant::now(), stat.f_bavail.saturating_mul(stat.f_frsize));
        *seen = Some(free);
        Ok(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_low_when_less_is_free() {
        let dir = tempfile::tempdir().expect("a directory");
        let check = |bytes| DiskReserve::new(dir.path().to_owned(), bytes).check().expect("there");
        assert_eq!(check(0), None);
        let low = check(u64::MAX).expect("no disk has that much");
        assert_eq!(low.reserve, u64::MAX);
        assert!(DiskReserve::new(dir.path().join("gone"), 0).check().is_err());
    }
}
