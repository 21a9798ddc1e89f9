//! Files that are more than stay here: they leave for the object store, and come back when they are read.

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
    pins::Lease,
    remote::{RemoteError, RemoteFault},
    temporary::Temporary,
};

/// Files that leave in one turn, and how many of them the store is asked for at a time.
const LEAVE_FILES: usize = 256;
const ASKED_AT_ONCE: usize = 16;
/// Time for which a store that did not answer a reader is not asked by others.
const READS_REST: Duration = Duration::from_secs(3);

impl Files {
    /// Removes the oldest files here that the store has, while there are too many; returns true if there are more.
    pub(super) fn leave(&self, backed: &Backed) -> Result<bool> {
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
        // One that was stored anew since the store was asked is sent first.
        let may = || !backed.is_unsent(hash);
        let removed = self.pins.remove_unpinned(hash, &path, may);
        if removed.map_err(TimelineError::io("remove a file", &path))? {
            backed.fewer(bytes);
        }
        Ok(())
    }

    /// Fetches the file of `hash`, of at most `size_max` bytes, which `lease` pins, from the object store; false where
    /// none is there. It takes the place of one that is here.
    pub(super) fn bring(&self, lease: &Lease, hash: &BlobHash, size_max: u64) -> Result<bool> {
        let path = self.path(hash);
        let Some(backed) = &self.backed else { return Err(TimelineError::Away { path }) };
        if lease.is_being_removed(hash) {
            return Ok(false);
        }
        if let Some((at, error)) = &backed.state().unread
            && at.elapsed() < READS_REST
        {
            return Err(error.clone().into());
        }
        let (temporary, file) = Temporary::create(self.dir.path())?;
        let fetched = backed.backing.remote.fetch(hash, &file, size_max);
        let is_slow = |error: &&RemoteError| {
            matches!(error.fault, RemoteFault::Unreachable | RemoteFault::Slow)
        };
        backed.state().unread =
            fetched.as_ref().err().filter(is_slow).map(|error| (Instant::now(), error.clone()));
        let damaged = |what| TimelineError::Damaged { file: path.clone(), offset: 0, what };
        if !fetched? {
            // A sweep may have removed it meanwhile.
            return if self.is_away(hash) {
                Err(damaged("the object store has lost the file"))
            } else {
                Ok(false)
            };
        }
        let bytes = fs::read(temporary.path());
        let bytes = bytes.map_err(TimelineError::io("read a file", temporary.path()))?;
        if blob::hash(&bytes) != *hash {
            return Err(damaged("the file from the object store does not match its name"));
        }
        temporary.publish(&file, &path)?;
        backed.state().bytes += bytes.len() as u64;
        Ok(true)
    }

    /// Returns true where the object store should have the file of `hash` that is here.
    pub(super) fn is_sent(&self, hash: &BlobHash) -> bool {
        self.backed.as_ref().is_some_and(|backed| !backed.is_unsent(hash))
    }
}
