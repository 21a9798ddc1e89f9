//! The disk reserve: room that new work leaves, so that what runs can still be stopped.
//!
//! Asks the system at most once a second; a disk that cannot be examined refuses nothing here,
//! the log will.

use std::{
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
/// Time for which an answer of the system holds.
const FRESH: Duration = Duration::from_secs(1);

/// Less is free than is kept in reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("disk space is low: {} MiB free, {} MiB reserved", .free >> 20, .reserve >> 20)]
pub struct DiskLow {
    /// Free bytes.
    pub free: u64,
    /// Bytes kept free.
    pub reserve: u64,
}

/// Bytes that stay free where the log and the blobs are.
#[derive(Debug)]
pub struct DiskReserve {
    dir: PathBuf,
    bytes: u64,
    seen: Mutex<Option<(Instant, u64)>>,
}

impl DiskReserve {
    /// Keeps `bytes` free on the disk of `dir`.
    pub fn new(dir: PathBuf, bytes: u64) -> DiskReserve {
        DiskReserve { dir, bytes, seen: Mutex::default() }
    }

    /// Shortage of free bytes, if any, as of the last second.
    pub fn check(&self) -> io::Result<Option<DiskLow>> {
        let (_, free) = self.free()?;
        Ok((free < self.bytes).then_some(DiskLow { free, reserve: self.bytes }))
    }

    /// Bytes that were free above the reserve, and when that was: in the last second.
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
