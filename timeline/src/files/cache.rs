//! Local cache of files in an object store: evicts files beyond its limit and fetches them when read.

use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

use media::BlobHash;

use super::{
    AWAY, Files, UNSENT,
    backed::{Backed, State},
};
use crate::{
    Result, TimelineError, blob,
    pins::PinGuard,
    remote::{RemoteError, RemoteFault},
    storage::Temporary,
};

/// Most files evicted per round, and number of files per query to the store.
const LEAVE_FILES: usize = 256;
const ASKED_AT_ONCE: usize = 16;
/// Number of unanswered files after which readers of other files do not ask the store for a time.
const UNREAD_MAX: usize = 4;
const READS_REST: Duration = Duration::from_secs(3);

impl Backed {
    /// Returns the last failure if readers must not ask the store at the moment.
    fn may_ask(&self, hash: &BlobHash) -> Result<()> {
        let state = self.state();
        match &state.unanswered {
            Some((at, error))
                if at.elapsed() < READS_REST
                    && (state.unread.len() >= UNREAD_MAX || state.unread.contains(hash)) =>
            {
                Err(error.clone().into())
            }
            _ => Ok(()),
        }
    }

    /// Records the outcome of a reader's request.
    fn asked(&self, hash: &BlobHash, failure: Option<&RemoteError>) {
        let is_silence = |error: &&RemoteError| {
            matches!(error.fault, RemoteFault::Unreachable | RemoteFault::Slow)
        };
        let mut state = self.state();
        match failure.filter(is_silence) {
            Some(error) => {
                state.unanswered = Some((Instant::now(), error.clone()));
                if state.unread.len() < UNREAD_MAX {
                    state.unread.insert(*hash);
                }
            }
            None => {
                state.unread.clear();
                state.unanswered = None;
            }
        }
    }
}

impl Files {
    /// Evicts the oldest sent files while the limit is exceeded; returns true if there are more.
    pub(super) fn leave(&self, backed: &Backed) -> Result<bool> {
        let limit = backed.backing.cache_bytes;
        let (is_over, is_begun) = {
            let state = backed.state();
            (state.bytes > limit, !state.leaving.is_empty())
        };
        if is_over && !is_begun {
            // Evicts a tenth of the limit more, so that not every new file causes a listing.
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

    /// Lists the oldest sent files, so that `limit` bytes are left; recounts the local bytes.
    fn list_leaving(&self, backed: &Backed, limit: u64) -> Result<()> {
        let (mut here, mut bytes) = (Vec::new(), 0);
        self.walk(|hash, mark, entry| {
            // Files removed meanwhile are ignored.
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
        let hashes: Vec<BlobHash> = files.iter().map(|(hash, _)| *hash).collect();
        let sizes = backed.backing.remote.sizes(&hashes);
        let mut failure = None;
        for ((hash, bytes), size) in files.iter().zip(sizes) {
            match size {
                Ok(Some(size)) if size == *bytes => self.leave_one(backed, hash, *bytes)?,
                Ok(_) => {
                    self.mark(hash, UNSENT)?;
                    backed.state().enqueue(*hash);
                    let detail = format!("{hash} is sent again");
                    failure = Some(RemoteError { fault: RemoteFault::NotKept, detail });
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    fn leave_one(&self, backed: &Backed, hash: &BlobHash, bytes: u64) -> Result<()> {
        self.mark(hash, AWAY)?;
        self.sync_folder(&self.folder(hash))?;
        let path = self.path(hash);
        // A file stored again since the query must be sent first.
        let may = || !backed.is_unsent(hash);
        let removed = self.pins.remove_unpinned(hash, &path, may);
        if removed.map_err(TimelineError::io("remove a file", &path))? {
            backed.fewer(bytes);
        }
        Ok(())
    }

    /// Fetches the file of `hash`, pinned by `lease` and of at most `size_max` bytes, from the object store;
    /// false if it has none. Overwrites a local one.
    pub(super) fn bring(&self, lease: &PinGuard, hash: &BlobHash, size_max: u64) -> Result<bool> {
        let path = self.path(hash);
        let Some(backed) = &self.backed else { return Err(TimelineError::Away { path }) };
        if lease.is_being_removed(hash) {
            return Ok(false);
        }
        backed.may_ask(hash)?;
        let (temporary, file) = Temporary::create(self.dir.path())?;
        let fetched = backed.backing.remote.fetch(hash, &file, size_max);
        backed.asked(hash, fetched.as_ref().err());
        let lost = |what| TimelineError::Lost { file: path.clone(), what };
        if !fetched? {
            // A sweep may have removed the file meanwhile.
            return if self.is_away(hash) { Err(lost("has lost a file")) } else { Ok(false) };
        }
        let bytes = fs::read(temporary.path());
        let bytes = bytes.map_err(TimelineError::io("read a file", temporary.path()))?;
        if blob::hash(&bytes) != *hash {
            return Err(lost("has other bytes than those of a file"));
        }
        temporary.publish(&file, &path)?;
        backed.state().bytes += bytes.len() as u64;
        Ok(true)
    }

    /// Returns true if the object store should have the local file of `hash`.
    pub(super) fn is_sent(&self, hash: &BlobHash) -> bool {
        self.backed.as_ref().is_some_and(|backed| !backed.is_unsent(hash))
    }
}
