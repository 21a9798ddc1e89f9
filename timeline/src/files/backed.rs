//! Files that an object store has too: sent before events name them, fetched when they are read, removed with them.
//!
//! A file leaves this machine only when the store has just said that it has it. Empty files beside it keep its state
//! over a restart: `.unsent` until the store took it, `.away` from before it leaves, `.gone` from before it is removed
//! here until it is removed there. So a store that is away, slow or forgetful costs time and disk, and loses nothing.

use std::{
    collections::{HashSet, VecDeque},
    fs, io,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use media::BlobHash;

use super::{Files, UNSENT};
use crate::{
    Result,
    pins::PinGuard,
    remote::{Remote, RemoteError, RemoteFault, SLOWEST},
};

/// Longest wait of events for the store to take the files that they name.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);
/// Larger files are left to the turns.
const TAKEN_BYTES_MAX: u64 = 8 << 20;
/// Files and bytes sent in one turn, and its time: so much, and a second more for each `SLOWEST` bytes.
const TURN_FILES: usize = 16;
const TURN_BYTES: u64 = 64 << 20;
const TURN: Duration = Duration::from_secs(10);

/// Object store behind a directory of files.
#[derive(Clone, Debug)]
pub struct Backing {
    /// The store.
    pub remote: Arc<dyn Remote>,
    /// Name of it that tells it from others.
    pub place: String,
    /// Bytes of files that stay here; what is not sent yet stays beyond them.
    pub cache_bytes: u64,
}

/// Files of a directory by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Files that the object store has not taken yet.
    pub unsent: u64,
    /// Bytes of the files that are here.
    pub bytes: u64,
}

#[derive(Debug)]
pub(super) struct Backed {
    pub(super) backing: Backing,
    state: Mutex<State>,
    /// Told when files are not under way any more.
    arrived: Condvar,
    /// The last files that were sent did not come through: others wait for a turn.
    is_out: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) unsent: HashSet<BlobHash>,
    /// The same in their order, and some that are sent meanwhile.
    queue: VecDeque<BlobHash>,
    /// Those that are on their way.
    under_way: HashSet<BlobHash>,
    /// Bytes of the files that are here, about: counted when files leave.
    pub(super) bytes: u64,
    /// Files to leave next, the oldest first, and their sizes.
    pub(super) leaving: VecDeque<(BlobHash, u64)>,
    /// Files that readers asked for and the store did not answer since it last did, and its last failure.
    pub(super) unread: HashSet<BlobHash>,
    pub(super) unanswered: Option<(Instant, RemoteError)>,
}

/// Outcome of files that were sent together.
#[derive(Default)]
struct Sent {
    files: usize,
    /// The first failure of the store, and of a file here.
    failure: Option<RemoteError>,
    local: Option<RemoteError>,
}

impl Backed {
    /// Of `backing`, while `unsent` wait for it and so many bytes are here.
    pub(super) fn new(backing: Backing, unsent: HashSet<BlobHash>, bytes: u64) -> Backed {
        let queue = unsent.iter().copied().collect();
        let state = State { unsent, queue, bytes, ..State::default() };
        let (state, arrived) = (Mutex::new(state), Condvar::new());
        Backed { backing, state, arrived, is_out: AtomicBool::new(false) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Each change leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the file of `hash`, of so many bytes, sent.
    pub(super) fn enqueue(&self, hash: BlobHash, bytes: u64) {
        let mut state = self.state();
        state.bytes += bytes;
        state.enqueue(hash);
    }

    pub(super) fn fewer(&self, bytes: u64) {
        let mut state = self.state();
        state.bytes = state.bytes.saturating_sub(bytes);
    }

    pub(super) fn is_unsent(&self, hash: &BlobHash) -> bool {
        self.state().unsent.contains(hash)
    }

    /// Waits until none of `hashes` is under way, at most until `end`.
    fn wait(&self, hashes: &[BlobHash], end: Instant) {
        let mut state = self.state();
        while hashes.iter().any(|hash| state.under_way.contains(hash)) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.arrived.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    pub(super) fn enqueue(&mut self, hash: BlobHash) {
        if self.unsent.insert(hash) {
            self.queue.push_back(hash);
        }
    }
}

/// Files that are marked as under way until it is dropped.
struct UnderWay<'a> {
    backed: &'a Backed,
    files: Vec<(BlobHash, PathBuf)>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.backed.state();
        for (hash, _) in &self.files {
            state.under_way.remove(hash);
        }
        drop(state);
        self.backed.arrived.notify_all();
    }
}

impl Files {
    /// Returns the numbers of files by place; `None` without an object store.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let state = self.backed.as_ref()?.state();
        Some(Standing { unsent: state.unsent.len() as u64, bytes: state.bytes })
    }

    /// Sends those of `hashes`, which `lease` pins, that the object store does not have. What it does not take within
    /// a bound is left for a turn, and all of it once it has failed; so are large files.
    pub(crate) fn send(&self, lease: &PinGuard, hashes: &[BlobHash]) {
        let Some(backed) = &self.backed else { return };
        if backed.is_out.load(Ordering::Relaxed) {
            return;
        }
        let end = Instant::now() + TAKEN_WITHIN;
        let is_small = |hash: &&BlobHash| {
            fs::metadata(self.path(hash)).is_ok_and(|file| file.len() <= TAKEN_BYTES_MAX)
        };
        let small: Vec<BlobHash> = hashes.iter().filter(is_small).copied().collect();
        // The turns tell of a failure.
        self.upload(backed, lease, &small, TAKEN_WITHIN);
        // Another may be sending some of them.
        backed.wait(&small, end);
    }

    /// Sends those of `hashes`, which `lease` pins, that nobody sends.
    fn upload(
        &self,
        backed: &Backed,
        lease: &PinGuard,
        hashes: &[BlobHash],
        limit: Duration,
    ) -> Sent {
        let mut due: Vec<BlobHash> = hashes.to_vec();
        // None of them can come to be removed later: they are pinned.
        due.retain(|hash| !lease.is_being_removed(hash));
        {
            let mut state = backed.state();
            let State { unsent, under_way, .. } = &mut *state;
            due.retain(|hash| unsent.contains(hash) && under_way.insert(*hash));
        }
        let files = due.into_iter().map(|hash| (hash, self.path(&hash))).collect();
        let under_way = UnderWay { backed, files };
        let mut sent = Sent::default();
        if under_way.files.is_empty() {
            return sent;
        }
        let outcomes = backed.backing.remote.upload(&under_way.files, limit);
        for ((hash, _), outcome) in under_way.files.iter().zip(outcomes) {
            match outcome {
                Ok(()) => {
                    sent.files += 1;
                    self.forget(backed, hash);
                }
                // It is tried again, and keeps no other waiting.
                Err(error) if error.fault == RemoteFault::Local => sent.local = Some(error),
                Err(error) => sent.failure = sent.failure.or(Some(error)),
            }
        }
        backed.is_out.store(sent.failure.is_some() && sent.files == 0, Ordering::Relaxed);
        sent
    }

    /// Has the file of `hash` wait for the store no more: it is there, or nowhere.
    pub(super) fn forget(&self, backed: &Backed, hash: &BlobHash) {
        // A mark that stays has the file sent once more.
        if self.unmark(hash, UNSENT).is_ok() {
            backed.state().unsent.remove(hash);
        }
    }

    /// One turn: sends some of what waits, and has some of what is too much here leave. Returns true if there is more.
    pub(crate) fn turn(&self) -> Result<bool> {
        let Some(backed) = &self.backed else { return Ok(false) };
        let mut lease = self.lease();
        let (waiting, bytes) = self.next(backed, &mut lease);
        let limit = TURN + Duration::from_secs(bytes / SLOWEST);
        let sent = self.upload(backed, &lease, &waiting, limit);
        drop(lease);
        let has_more = {
            let mut state = backed.state();
            let State { unsent, queue, .. } = &mut *state;
            // Behind those that were not tried yet.
            queue.extend(waiting.iter().filter(|hash| unsent.contains(*hash)));
            sent.files > 0 && unsent.len() > waiting.len() - sent.files
        };
        // Nothing waits where what did not come through was swept or taken back: only asking tells if it is out still.
        let is_out = !waiting.is_empty() && backed.is_out.load(Ordering::Relaxed);
        let leaves_more = if is_out { Ok(false) } else { self.leave(backed) };
        if let Some(error) = sent.failure {
            return Err(error.into());
        }
        let has_more = leaves_more? || has_more;
        match sent.local {
            Some(error) if !has_more => Err(error.into()),
            _ => Ok(has_more),
        }
    }

    /// Takes the files to be sent next from the queue, pinned by `lease`; returns them and their bytes.
    fn next(&self, backed: &Backed, lease: &mut PinGuard) -> (Vec<BlobHash>, u64) {
        let (mut next, mut bytes) = (Vec::new(), 0);
        while next.len() < TURN_FILES && bytes < TURN_BYTES {
            let Some(hash) = backed.state().queue.pop_front() else { break };
            if !backed.is_unsent(&hash) {
                continue;
            }
            lease.pin(hash);
            let path = self.path(&hash);
            let is_gone =
                || fs::metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            if is_gone() {
                // It was swept, or its writer did not come to name it; one that is about to keeps its mark.
                lease.if_alone(&hash, || {
                    if is_gone() {
                        self.forget(backed, &hash);
                    }
                });
            }
            bytes += fs::metadata(&path).map_or(0, |file| file.len());
            next.push(hash);
        }
        (next, bytes)
    }
}
