//! Content-addressed files that stay although no event names them yet.
//!
//! A job stores a file before the event that names it. It pins the file's hash before it looks
//! whether the file is there, and until its event is durable; a sweep removes nothing that was
//! pinned at any time since it began, and reads the events after it began. Whatever it removes
//! was therefore named by no event, and by no job that could still append one.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use media::BlobHash;

use crate::remote::RemoteError;

/// Files removed by a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepStats {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Failure of the object store to remove them as well, which a later sweep does.
    pub left: Option<RemoteError>,
}

/// The pins of one directory of files.
#[derive(Debug, Default)]
pub(crate) struct PinTable(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    pinned: HashMap<BlobHash, Pinned>,
    /// During a sweep: all that were pinned since it began.
    touched: Option<HashSet<BlobHash>>,
    /// During a sweep: those that are gone here, and going elsewhere.
    removing: HashSet<BlobHash>,
}

#[derive(Debug, Default)]
struct Pinned {
    leases: usize,
    /// There has been more than one.
    shared: bool,
}

/// Keeps files from being swept, until it is dropped.
#[derive(Debug)]
pub struct PinGuard {
    pins: Arc<PinTable>,
    hashes: HashSet<BlobHash>,
}

impl PinTable {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the pins leaves them half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lease(self: &Arc<PinTable>) -> PinGuard {
        PinGuard { pins: Arc::clone(self), hashes: HashSet::new() }
    }

    /// Begins a sweep; `None` while there is one.
    pub(crate) fn sweep(self: &Arc<PinTable>) -> Option<SweepGuard> {
        let mut state = self.state();
        if state.touched.is_some() {
            return None;
        }
        state.touched = Some(state.pinned.keys().copied().collect());
        Some(SweepGuard(Arc::clone(self)))
    }

    /// Removes the file of `hash` at `path` if nobody pins it and `may` says so then; returns true if it did.
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

/// Removes the file at `path`; returns its size, where it was there.
fn removed(path: &Path) -> io::Result<Option<u64>> {
    let removed = fs::metadata(path).and_then(|file| fs::remove_file(path).map(|()| file.len()));
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        removed => removed.map(Some),
    }
}

impl PinGuard {
    /// Pins `hash`, before its file is looked for.
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

    /// Returns true while a sweep removes the file of `hash`, which it did before this lease pinned it.
    pub(crate) fn is_being_removed(&self, hash: &BlobHash) -> bool {
        self.pins.state().removing.contains(hash)
    }

    /// Calls `then` unless others pin the file of `hash` too; nobody comes to pin it meanwhile.
    pub(crate) fn if_alone(&self, hash: &BlobHash, then: impl FnOnce()) {
        let state = self.pins.state();
        if state.pinned.get(hash).is_some_and(|pinned| pinned.leases == 1) {
            then();
        }
    }

    /// Removes the file of `hash` at `path`, made under this lease, unless others pinned it too; returns its size if
    /// it did. `forget` is called before anybody can pin it again.
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

/// A sweep under way, until dropped.
#[derive(Debug)]
pub(crate) struct SweepGuard(Arc<PinTable>);

impl SweepGuard {
    /// Removes the file of `hash` at `path` unless it was pinned since the sweep began; returns true if it may be gone.
    pub(crate) fn remove(
        &self,
        hash: &BlobHash,
        path: &Path,
        swept: &mut SweepStats,
    ) -> io::Result<bool> {
        self.remove_in(&self.0.state(), hash, path, swept)
    }

    /// As [`SweepGuard::remove`], and has it count as being removed until that has ended; `forget` is called before
    /// anybody can pin it again.
    pub(crate) fn begin_removing(
        &self,
        hash: &BlobHash,
        path: &Path,
        swept: &mut SweepStats,
        forget: impl FnOnce(),
    ) -> io::Result<bool> {
        let mut state = self.0.state();
        let is_gone = self.remove_in(&state, hash, path, swept)?;
        if is_gone {
            state.removing.insert(*hash);
            forget();
        }
        Ok(is_gone)
    }

    /// Ends the removal of `hashes`.
    pub(crate) fn end_removing(&self, hashes: &[BlobHash]) {
        let mut state = self.0.state();
        for hash in hashes {
            state.removing.remove(hash);
        }
    }

    fn remove_in(
        &self,
        state: &State,
        hash: &BlobHash,
        path: &Path,
        swept: &mut SweepStats,
    ) -> io::Result<bool> {
        if state.touched.as_ref().is_none_or(|touched| touched.contains(hash)) {
            return Ok(false);
        }
        if let Some(bytes) = removed(path)? {
            swept.files += 1;
            swept.bytes += bytes;
        }
        Ok(true)
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
        let mut swept = SweepStats::default();
        for number in 0..4 {
            sweep.remove(&hash(number), &path(number), &mut swept).expect("removed");
        }
        assert_eq!((swept.files, swept.bytes), (2, 20));
        assert_eq!([0, 1, 2, 3].map(|number| path(number).exists()), [false, true, true, false]);
        drop(sweep);
        let sweep = pins.sweep().expect("again");
        sweep.remove(&hash(2), &path(2), &mut swept).expect("removed");
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
