//! Files that an object store has too: sent before events name them, fetched when read, removed together.
//!
//! A file is evicted here only when the store has just confirmed it. Empty marker files keep the state over a
//! restart: `.unsent` until the store has the file, `.away` from before its eviction, `.gone` from before its
//! removal here until that there. An unreachable, slow or forgetful store costs time and disk, but no file.

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

/// Longest time that events wait for the store to take the files that they name.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);
/// Largest file sent at once; larger ones are sent in rounds.
const TAKEN_BYTES_MAX: u64 = 8 << 20;
/// Most files and bytes of a round, and its base time limit; each [`SLOWEST`] bytes add a second.
const TURN_FILES: usize = 16;
const TURN_BYTES: u64 = 64 << 20;
const TURN: Duration = Duration::from_secs(10);

/// Object store behind a directory of files.
#[derive(Clone, Debug)]
pub struct Backing {
    /// Object store.
    pub remote: Arc<dyn Remote>,
    /// Name that identifies the store.
    pub place: String,
    /// Bytes of files that stay here; unsent files stay in addition.
    pub cache_bytes: u64,
}

/// Numbers of a directory's files by location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Number of files that the object store does not have yet.
    pub unsent: u64,
    /// Bytes of the files here.
    pub bytes: u64,
}

#[derive(Debug)]
pub(super) struct Backed {
    pub(super) backing: Backing,
    state: Mutex<State>,
    /// Notified when an upload ends.
    arrived: Condvar,
    /// True if the last upload failed entirely: further files wait for a round.
    is_out: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) unsent: HashSet<BlobHash>,
    /// Unsent files in their order; may contain some already sent.
    queue: VecDeque<BlobHash>,
    /// Files that are being uploaded.
    under_way: HashSet<BlobHash>,
    /// Approximate bytes of the files here; recounted on eviction.
    pub(super) bytes: u64,
    /// Files to evict next, oldest first, and their sizes.
    pub(super) leaving: VecDeque<(BlobHash, u64)>,
    /// Files for which the store left readers unanswered, and its last failure.
    pub(super) unread: HashSet<BlobHash>,
    pub(super) unanswered: Option<(Instant, RemoteError)>,
}

/// Outcome of one upload of several files.
#[derive(Default)]
struct Sent {
    files: usize,
    /// First failure of the store, and a failure of a local file.
    failure: Option<RemoteError>,
    local: Option<RemoteError>,
}

impl Backed {
    /// Makes the state for `backing` with these unsent files and `bytes` bytes here.
    pub(super) fn new(backing: Backing, unsent: HashSet<BlobHash>, bytes: u64) -> Backed {
        let queue = unsent.iter().copied().collect();
        let state = State { unsent, queue, bytes, ..State::default() };
        let (state, arrived) = (Mutex::new(state), Condvar::new());
        Backed { backing, state, arrived, is_out: AtomicBool::new(false) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state consistent, so poisoning is ignored.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the file of `hash`, of `bytes` bytes, for upload.
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

    /// Waits until none of `hashes` is being uploaded, at most until `end`.
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

/// Marks files as being uploaded until it is dropped.
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
    /// Returns the numbers of files by location; `None` without an object store.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let state = self.backed.as_ref()?.state();
        Some(Standing { unsent: state.unsent.len() as u64, bytes: state.bytes })
    }

    /// Sends those of `hashes`, pinned by `lease`, that the object store lacks. Leaves large files, files not
    /// taken within the time limit, and all after a failure to a later round.
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
        // Failures are reported by the rounds.
        self.upload(backed, lease, &small, TAKEN_WITHIN);
        // Another upload may be sending some of them.
        backed.wait(&small, end);
    }

    /// Sends those of `hashes`, pinned by `lease`, that are unsent and not being sent.
    fn upload(
        &self,
        backed: &Backed,
        lease: &PinGuard,
        hashes: &[BlobHash],
        limit: Duration,
    ) -> Sent {
        let mut due: Vec<BlobHash> = hashes.to_vec();
        // The pins keep later removals away from these files.
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
                // The file is retried in a later round and does not block others.
                Err(error) if error.fault == RemoteFault::Local => sent.local = Some(error),
                Err(error) => sent.failure = sent.failure.or(Some(error)),
            }
        }
        backed.is_out.store(sent.failure.is_some() && sent.files == 0, Ordering::Relaxed);
        sent
    }

    /// Marks the file of `hash` as not to be sent: the store has it, or it no longer exists.
    pub(super) fn forget(&self, backed: &Backed, hash: &BlobHash) {
        // If the marker cannot be removed, the file is sent once more.
        if self.unmark(hash, UNSENT).is_ok() {
            backed.state().unsent.remove(hash);
        }
    }

    /// Does one round: sends some unsent files and evicts some local ones. Returns true if there is more.
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
            // Requeued after the files not tried yet.
            queue.extend(waiting.iter().filter(|hash| unsent.contains(*hash)));
            sent.files > 0 && unsent.len() > waiting.len() - sent.files
        };
        // If the failed files were swept or taken back, nothing is queued and only a request shows the state.
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

    /// Takes the next files to send from the queue and pins them with `lease`; returns them and their bytes.
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
                // The file was swept or never named by its writer; a writer that pins it keeps the marker.
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
