//! Files that an object store has too: sent before events name them, fetched when they are read, removed with them.
//!
//! A file leaves this machine only when the store has just said that it has it. Empty files beside it keep its state
//! over a restart: `.unsent` until the store took it, `.away` from before it leaves until it was removed there. So a
//! store that is away, slow or forgetful costs time and disk, and loses nothing.

use std::{
    collections::{HashSet, VecDeque},
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use media::BlobHash;
use sha2::{Digest, Sha256};

use super::{AWAY, Files, UNSENT};
use crate::{
    Result, TimelineError,
    pins::{Lease, Sweeping, Swept},
    remote::{Remote, RemoteError, RemoteFault},
    temporary::Temporary,
};

/// Longest wait of events for the store to take the files that they name.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);
/// Files sent in one turn, and its time: so much, and a second more for each `SLOWEST` bytes.
const TURN_FILES: usize = 16;
const TURN: Duration = Duration::from_secs(10);
const SLOWEST: u64 = 128 << 10;
/// Files that leave in one turn, and how many of them the store is asked for at a time.
const LEAVE_FILES: usize = 256;
const ASKED_AT_ONCE: usize = 8;
/// Files removed from the store by one call.
const REMOVED_AT_ONCE: usize = 1000;
const COPY_BYTES: usize = 64 << 10;

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
    backing: Backing,
    state: Mutex<State>,
    /// The last call failed: files wait until a turn has sent one.
    is_out: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    unsent: HashSet<BlobHash>,
    /// Those of them that are on their way.
    under_way: HashSet<BlobHash>,
    /// Bytes of the files that are here, about: counted when files leave.
    bytes: u64,
    /// Files to leave next, the oldest first, and their sizes.
    leaving: VecDeque<(BlobHash, u64)>,
}

impl Backed {
    /// Of `backing`, while `unsent` wait for it and so many bytes are here.
    pub(super) fn new(backing: Backing, unsent: HashSet<BlobHash>, bytes: u64) -> Backed {
        let state = State { unsent, bytes, ..State::default() };
        Backed { backing, state: Mutex::new(state), is_out: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the file of `hash`, which is here, wait for the store.
    pub(super) fn wait(&self, hash: BlobHash, bytes: u64) {
        let mut state = self.state();
        state.unsent.insert(hash);
        state.bytes += bytes;
    }

    fn fewer(&self, bytes: u64) {
        let mut state = self.state();
        state.bytes = state.bytes.saturating_sub(bytes);
    }
}

impl Files {
    /// Returns the numbers of files by place; `None` without an object store.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let state = self.backed.as_ref()?.state();
        Some(Standing { unsent: state.unsent.len() as u64, bytes: state.bytes })
    }

    /// Sends those of `hashes`, which `lease` pins, that the object store does not have. What it does not take within
    /// a bound is left for a turn, and all of it once it has failed.
    pub(crate) fn send(&self, lease: &Lease, hashes: &[BlobHash]) {
        if let Some(backed) = &self.backed
            && !backed.is_out.load(Ordering::Relaxed)
        {
            // The turns tell of a failure.
            self.upload(backed, lease, hashes, TAKEN_WITHIN);
        }
    }

    /// Sends `hashes`, which `lease` pins; returns the first failure.
    fn upload(
        &self,
        backed: &Backed,
        lease: &Lease,
        hashes: &[BlobHash],
        limit: Duration,
    ) -> Option<RemoteError> {
        let mut due: Vec<BlobHash> = hashes.to_vec();
        // None of them can come to be removed later: they are pinned.
        due.retain(|hash| !lease.is_being_removed(hash));
        {
            let mut state = backed.state();
            let State { unsent, under_way, .. } = &mut *state;
            due.retain(|hash| unsent.contains(hash) && under_way.insert(*hash));
        }
        let files: Vec<(BlobHash, PathBuf)> =
            due.into_iter().map(|hash| (hash, self.path(&hash))).collect();
        if files.is_empty() {
            return None;
        }
        let outcomes = backed.backing.remote.upload(&files, limit);
        let mut failure = None;
        for ((hash, _), outcome) in files.iter().zip(outcomes) {
            match outcome {
                Ok(()) => self.sent(backed, hash),
                Err(error) => failure = failure.or(Some(error)),
            }
            backed.state().under_way.remove(hash);
        }
        backed.is_out.store(failure.is_some(), Ordering::Relaxed);
        failure
    }

    fn sent(&self, backed: &Backed, hash: &BlobHash) {
        // A mark that stays has the file sent once more.
        if self.unmark(hash, UNSENT).is_ok() {
            backed.state().unsent.remove(hash);
        }
    }

    /// One turn: sends some of what waits, and has some of what is too much here leave. Returns true if there is more.
    pub(crate) fn turn(&self) -> Result<bool> {
        let Some(backed) = &self.backed else { return Ok(false) };
        let waiting: Vec<BlobHash> = {
            let state = backed.state();
            state.unsent.difference(&state.under_way).take(TURN_FILES).copied().collect()
        };
        let (mut lease, mut bytes) = (self.lease(), 0);
        for hash in &waiting {
            lease.pin(*hash);
            match fs::metadata(self.path(hash)) {
                Ok(file) => bytes += file.len(),
                // It was swept, or its writer did not come to name it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.sent(backed, hash),
                Err(error) => {
                    return Err(TimelineError::io("measure a file", self.path(hash))(error));
                }
            }
        }
        let limit = TURN + Duration::from_secs(bytes / SLOWEST);
        if let Some(error) = self.upload(backed, &lease, &waiting, limit) {
            return Err(error.into());
        }
        drop(lease);
        Ok(waiting.len() == TURN_FILES || self.leave(backed)?)
    }

    /// Removes the oldest files here that the store has, while there are too many; returns true if there are more.
    fn leave(&self, backed: &Backed) -> Result<bool> {
        let limit = backed.backing.cache_bytes;
        let (is_over, is_begun) = {
            let state = backed.state();
            (state.bytes > limit, !state.leaving.is_empty())
        };
        if is_over && !is_begun {
            // A tenth more, so that the files are not listed for each one that comes.
            self.list_leaving(backed, limit - limit / 10)?;
        }
        let some: Vec<(BlobHash, u64)> = {
            let leaving = &mut backed.state().leaving;
            let count = leaving.len().min(LEAVE_FILES);
            leaving.drain(..count).collect()
        };
        some.chunks(ASKED_AT_ONCE).try_for_each(|some| self.leave_some(backed, some))?;
        Ok(!backed.state().leaving.is_empty())
    }

    /// Lists the oldest files that the store has, so many that `limit` is left; counts anew what is here.
    fn list_leaving(&self, backed: &Backed, limit: u64) -> Result<()> {
        let (mut here, mut bytes) = (Vec::new(), 0);
        self.walk(|hash, mark, entry| {
            // One that was removed meanwhile is of no interest.
            let Some(file) = entry.metadata().ok().filter(|_| mark.is_none()) else { return };
            bytes += file.len();
            here.push((file.modified().unwrap_or(SystemTime::UNIX_EPOCH), hash, file.len()));
        })?;
        here.sort_unstable();
        let mut state = backed.state();
        state.bytes = bytes;
        let State { leaving, unsent, .. } = &mut *state;
        for (_, hash, size) in here.into_iter().filter(|(_, hash, _)| !unsent.contains(hash)) {
            if bytes <= limit {
                break;
            }
            leaving.push_back((hash, size));
            bytes -= size;
        }
        Ok(())
    }

    fn leave_some(&self, backed: &Backed, files: &[(BlobHash, u64)]) -> Result<()> {
        let remote = &backed.backing.remote;
        let sizes: Vec<_> = thread::scope(|scope| {
            let ask = |hash| scope.spawn(move || remote.size(hash));
            let asked: Vec<_> = files.iter().map(|(hash, _)| ask(hash)).collect();
            asked.into_iter().map(|asked| asked.join().expect("no call panics")).collect()
        });
        let mut not_kept = None;
        for ((hash, bytes), size) in files.iter().zip(sizes) {
            if size? != Some(*bytes) {
                self.mark(hash, UNSENT)?;
                backed.state().unsent.insert(*hash);
                not_kept = Some(*hash);
                continue;
            }
            self.mark(hash, AWAY)?;
            self.sync_folder(&self.folder(hash))?;
            let path = self.path(hash);
            let removed = self.pins.remove_unpinned(hash, &path);
            if removed.map_err(TimelineError::io("remove a file", &path))? {
                backed.fewer(*bytes);
            }
        }
        not_kept.map_or(Ok(()), |hash| {
            let detail = format!("{hash} is sent again");
            Err(RemoteError { fault: RemoteFault::NotKept, detail }.into())
        })
    }

    /// Fetches the file of `hash`, of at most `size_max` bytes, from the object store; false where none is there.
    pub(super) fn bring(&self, hash: &BlobHash, size_max: u64) -> Result<bool> {
        if !self.is_away(hash) {
            return Ok(false);
        }
        let path = self.path(hash);
        let Some(backed) = &self.backed else { return Err(TimelineError::Away { path }) };
        // Else a sweep would remove it while it comes.
        let mut lease = self.lease();
        lease.pin(*hash);
        if lease.is_being_removed(hash) {
            return Ok(false);
        }
        let damaged = |what| TimelineError::Damaged { file: path.clone(), offset: 0, what };
        let from = backed.backing.remote.open(hash)?;
        let from = from.ok_or_else(|| damaged("the object store has lost the file"))?;
        let (temporary, mut file) = Temporary::create(self.dir.path())?;
        let (bytes, digest) = copy(from, &mut file, size_max, temporary.path())?;
        if digest != *hash {
            return Err(damaged("the file from the object store does not match its name"));
        }
        temporary.publish(&file, &path)?;
        backed.state().bytes += bytes;
        Ok(true)
    }

    /// Removes `hashes`, but those that were pinned since the sweep began, here and then in the object store, unless
    /// that has failed.
    pub(super) fn sweep_away(
        &self,
        backed: &Backed,
        sweeping: &Sweeping,
        hashes: &[BlobHash],
        swept: &mut Swept,
        failure: &mut Option<RemoteError>,
    ) -> Result<()> {
        for hashes in hashes.chunks(REMOVED_AT_ONCE) {
            // Before the files go here: a mark is all that tells of one there.
            hashes.iter().try_for_each(|hash| self.mark(hash, AWAY))?;
            self.sync_folder(&self.folder(&hashes[0]))?;
            let before = swept.bytes;
            let removing = self.remove_here(backed, sweeping, hashes, swept)?;
            backed.fewer(swept.bytes - before);
            if failure.is_none() && !removing.is_empty() {
                *failure = backed.backing.remote.remove(&removing).err();
            }
            if failure.is_none() {
                removing.iter().try_for_each(|hash| self.unmark(hash, AWAY))?;
            }
            sweeping.end_removing(&removing);
        }
        Ok(())
    }

    fn remove_here(
        &self,
        backed: &Backed,
        sweeping: &Sweeping,
        hashes: &[BlobHash],
        swept: &mut Swept,
    ) -> Result<Vec<BlobHash>> {
        let mut removing = Vec::with_capacity(hashes.len());
        for hash in hashes {
            let path = self.path(hash);
            let io = TimelineError::io("remove a file that no event names", &path);
            // One that is stored anew from now on waits anew.
            let forget = || self.sent(backed, hash);
            if sweeping.begin_removing(hash, &path, swept, forget).map_err(io)? {
                removing.push(*hash);
            }
        }
        Ok(removing)
    }
}

/// Copies `from`, of which more than `size_max` bytes are not wanted; returns how many came, and their hash.
fn copy(
    mut from: Box<dyn Read + Send>,
    to: &mut File,
    size_max: u64,
    path: &Path,
) -> Result<(u64, BlobHash)> {
    let (mut bytes, mut digest, mut buffer) = (0, Sha256::new(), vec![0; COPY_BYTES]);
    while bytes <= size_max {
        let read = from.read(&mut buffer).map_err(|error| RemoteError {
            fault: RemoteFault::Unreachable,
            detail: error.to_string(),
        })?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        digest.update(&buffer[..read]);
        to.write_all(&buffer[..read]).map_err(TimelineError::io("write a file", path))?;
    }
    Ok((bytes, BlobHash::from_bytes(digest.finalize().into())))
}
