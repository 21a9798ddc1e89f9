//! Removal of files that an object store has too: here first, so that nobody reads them, then there.

use media::BlobHash;

use super::{AWAY, Files, GONE, backed::Backed};
use crate::{
    Result, TimelineError,
    pins::{SweepGuard, SweepStats},
};

impl Files {
    /// Removes `hashes`, all of one folder, but those that were pinned since the sweep began, here and then in the object store, unless
    /// that has failed.
    pub(super) fn sweep_away(
        &self,
        backed: &Backed,
        sweeping: &SweepGuard,
        hashes: &[BlobHash],
        swept: &mut SweepStats,
    ) -> Result<()> {
        let Some(first) = hashes.first() else { return Ok(()) };
        // Before the files go here: a mark is all that tells of one there.
        hashes.iter().try_for_each(|hash| self.mark(hash, GONE))?;
        self.sync_folder(&self.folder(first))?;
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
        Ok(())
    }

    fn remove_here(
        &self,
        backed: &Backed,
        sweeping: &SweepGuard,
        hashes: &[BlobHash],
        swept: &mut SweepStats,
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
}
