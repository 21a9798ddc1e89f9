//! Protection of content-addressed files that no event names yet.
//!
//! A job stores a file before the event that names it. It pins the file's hash before it checks for the file,
//! and until the event is durable. A sweep removes no file pinned at any time since it began, and reads the
//! events after it began; so no event names a removed file, and no job can still append one that does.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use media::BlobHash;

use crate::remote::RemoteError;

/// Results of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepStats {
    /// Number of files removed.
    pub files: u64,
    /// Bytes of the files removed.
    pub bytes: u64,
    /// Failure to remove them from the object store too; a later sweep does.
    pub left: Option<RemoteError>,
}

#[derive(Debug, Default)]
pub(crate) struct PinTable(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    pinned: HashMap<BlobHash, Pinned>,
    /// During a sweep: all hashes pinned since it began.
    touched: Option<HashSet<BlobHash>>,
    /// During a sweep: hashes removed here whose removal from the object store is not finished.
    removing: HashSet<BlobHash>,
}

#[derive(Debug, Default)]
struct Pinned {
    leases: usize,
    /// True if there has been more than one lease.
    shared: bool,
}

/// Protects files from sweeps until it is dropped.
#[derive(Debug)]
pub struct PinGuard {
    pins: Arc<PinTable>,
    hashes: HashSet<BlobHash>,
}

impl PinTable {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state consistent, so poisoning is ignored.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lease(self: &Arc<PinTable>) -> PinGuard {
        PinGuard { pins: Arc::clone(self), hashes: HashSet::new() }
    }

    /// Begins a sweep; `None` while another runs.
    pub(crate) fn sweep(self: &Arc<PinTable>) -> Option<SweepGuard> {
        let mut state = self.state();
        if state.touched.is_some() {
            return None;
        }
        state.touched = Some(state.pinned.keys().copied().collect());
        Some(SweepGuard(Arc::clone(self)))
    }

    /// Removes the file of `hash` at `path` if it is unpinned and `may` is true then; returns true if
    /// removed.
    pub(crate) fn remove_unpinned(
        &self,
        hash: &BlobHash,
        path: &Path,
        may: impl FnOnce() -> bool,
    ) -> io::Result<bool> {
        let state = self.state();
        if state.pinned.contains_key(hash) || !may() {
            return Ok(false);
        }
        Ok(removed(path)?.is_some())
    }
}

/// Removes the file at `path`; returns its size if it existed.
fn removed(path: &Path) -> io::Result<Option<u64>> {
    let removed = fs::metadata(path).and_then(|file| fs::remove_file(path).map(|()| file.len()));
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        removed => removed.map(Some),
    }
}

impl PinGuard {
    /// Pins `hash`; call before checking for its file.
    pub(crate) fn pin(&mut self, hash: BlobHash) {
        if !self.hashes.insert(hash) {
            return;
        }
        let mut state = self.pins.state();
        let pinned = state.pinned.entry(hash).or_default();
        pinned.shared |= pinned.leases > 0;
        pinned.leases += 1;
        if let Some(touched) = &mut state.touched {
            touched.insert(hash);
        }
    }

    /// Returns true while a sweep removes the file of `hash`, begun before this lease pinned it.
    pub(crate) fn is_being_removed(&self, hash: &BlobHash) -> bool {
        self.pins.state().removing.contains(hash)
    }

    /// Calls `then` unless others pin the file of `hash` too; it cannot be pinned meanwhile.
    pub(crate) fn if_alone(&self, hash: &BlobHash, then: impl FnOnce()) {
        let state = self.pins.state();
        if state.pinned.get(hash).is_some_and(|pinned| pinned.leases == 1) {
            then();
        }
    }

    /// Removes the file of `hash` at `path`, stored under this lease, unless others pinned it; returns its
    /// size if removed. Calls `forget` before the file can be pinned again.
    pub(crate) fn remove_own(
        &self,
        hash: &BlobHash,
        path: &Path,
        forget: impl FnOnce(),
    ) -> io::Result<Option<u64>> {
        let state = self.pins.state();
        if state.pinned.get(hash).is_none_or(|pinned| pinned.shared) {
            return Ok(None);
        }
        let removed = removed(path)?;
        forget();
        Ok(removed)
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        let mut state = self.pins.state();
        for hash in &self.hashes {
            let Some(pinned) = state.pinned.get_mut(hash) else { continue };
            pinned.leases -= 1;
            if pinned.leases == 0 {
                state.pinned.remove(hash);
            }
        }
    }
}

/// Sweep in progress, until dropped.
#[derive(Debug)]
pub(crate) struct SweepGuard(Arc<PinTable>);

impl SweepGuard {
    /// Removes the file of `hash` at `path` unless pinned since the sweep began, and marks it as being removed
    /// until [`SweepGuard::end_removing`]; returns true unless pinned. Calls `forget` before the file can be
    /// pinned again.
    pub(crate) fn begin_removing(
        &self,
        hash: &BlobHash,
        path: &Path,
        swept: &mut SweepStats,
        forget: impl FnOnce(),
    ) -> io::Result<bool> {
        let mut state = self.0.state();
        if state.touched.as_ref().is_none_or(|touched| touched.contains(hash)) {
            return Ok(false);
        }
        if let Some(bytes) = removed(path)? {
            swept.files += 1;
            swept.bytes += bytes;
        }
        state.removing.insert(*hash);
        forget();
        Ok(true)
    }

    pub(crate) fn end_removing(&self, hashes: &[BlobHash]) {
        let mut state = self.0.state();
        for hash in hashes {
            state.removing.remove(hash);
        }
    }
}

impl Drop for SweepGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.touched = None;
        state.removing.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u8) -> BlobHash {
        BlobHash::from_bytes([number; 32])
    }

    #[test]
    fn a_sweep_spares_what_was_pinned_at_any_time_since_it_began() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |number: u8| dir.path().join(number.to_string());
        for number in 0..4 {
            fs::write(path(number), [number; 10]).expect("written");
        }
        let pins = Arc::new(PinTable::default());
        let mut before = pins.lease();
        before.pin(hash(0));
        before.pin(hash(1));
        drop(before);
        let mut held = pins.lease();
        held.pin(hash(1));
        let sweep = pins.sweep().expect("the first");
        assert!(pins.sweep().is_none(), "one at a time");
        drop(held);
        let mut during = pins.lease();
        during.pin(hash(2));
        drop(during);
        let remove = |sweep: &SweepGuard, number: u8, swept: &mut SweepStats| {
            let path = path(number);
            sweep.begin_removing(&hash(number), &path, swept, || ()).expect("removed");
        };
        let mut swept = SweepStats::default();
        for number in 0..4 {
            remove(&sweep, number, &mut swept);
        }
        assert_eq!((swept.files, swept.bytes), (2, 20));
        assert_eq!([0, 1, 2, 3].map(|number| path(number).exists()), [false, true, true, false]);
        drop(sweep);
        let sweep = pins.sweep().expect("again");
        remove(&sweep, 2, &mut swept);
        assert!(!path(2).exists(), "nothing pins it any more");
    }

    #[test]
    fn a_lease_takes_back_only_what_nobody_else_pinned() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        fs::write(&path, b"x").expect("written");
        let pins = Arc::new(PinTable::default());
        let (mut one, mut two) = (pins.lease(), pins.lease());
        one.pin(hash(1));
        two.pin(hash(1));
        drop(two);
        one.remove_own(&hash(1), &path, || ()).expect("left");
        assert!(path.exists(), "an event of the other may name it by now");
        drop(one);
        let mut alone = pins.lease();
        alone.pin(hash(1));
        alone.remove_own(&hash(1), &path, || ()).expect("removed");
        assert!(!path.exists());
    }
}
