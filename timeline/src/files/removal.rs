//! Removal of files that an object store has too: here first, so that nobody reads them, then there.

use media::BlobHash;

use super::{AWAY, Files, GONE, backed::Backed};
use crate::{
    Result, TimelineError,
    pins::{Lease, Sweeping, Swept},
};

/// Files removed from the store by one call.
const REMOVED_AT_ONCE: usize = 1000;

impl Files {
    /// Removes `hashes`, but those that were pinned since the sweep began, here and then in the object store, unless
    /// that has failed.
    pub(super) fn sweep_away(
        &self,
        backed: &Backed,
        sweeping: &Sweeping,
        hashes: &[BlobHash],
        swept: &mut Swept,
    ) -> Result<()> {
        for hashes in hashes.chunks(REMOVED_AT_ONCE) {
            // Before the files go here: a mark is all that tells of one there.
            hashes.iter().try_for_each(|hash| self.mark(hash, GONE))?;
            self.sync_folder(&self.folder(&hashes[0]))?;
            let before = swept.bytes;
            let removing = self.remove_here(backed, sweeping, hashes, swept);
            backed.fewer(swept.bytes - before);
            let removing = removing?;
            if swept.left.is_none() && !removing.is_empty() {
                swept.left = backed.backing.remote.remove(&removing).err();
            }
            if swept.left.is_none() {
                removing.iter().try_for_each(|hash| self.unmark(hash, GONE))?;
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
            let forget = || self.forget(backed, hash);
            if sweeping.begin_removing(hash, &path, swept, forget).map_err(io)? {
                self.unmark(hash, AWAY)?;
                removing.push(*hash);
            } else if self.has(hash) {
                self.unmark(hash, GONE)?;
            }
        }
        Ok(removing)
    }

    /// Removes the file of `hash`, made under `lease` alone, here, and with the next sweep in the object store, which
    /// may have it.
    pub(super) fn take_back_away(
        &self,
        backed: &Backed,
        lease: &Lease,
        hash: &BlobHash,
    ) -> Result<()> {
        self.mark(hash, GONE)?;
        self.sync_folder(&self.folder(hash))?;
        let path = self.path(hash);
        let forget = || self.forget(backed, hash);
        let removed = lease.remove_own(hash, &path, forget);
        let removed = removed.map_err(TimelineError::io("remove a file", &path))?;
        backed.fewer(removed.unwrap_or_default());
        Ok(())
    }
}
