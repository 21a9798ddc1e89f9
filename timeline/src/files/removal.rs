//! Removal of files that an object store has too: first here, so that they are not read, then there.

use media::BlobHash;

use super::{AWAY, Files, GONE, backed::Backed};
use crate::{
    Result, TimelineError,
    pins::{SweepGuard, SweepStats},
};

impl Files {
    /// Removes `hashes`, all of one folder, except those pinned since the sweep began: first here, then in
    /// the object store, unless that has failed before.
    pub(super) fn sweep_away(
        &self,
        backed: &Backed,
        sweeping: &SweepGuard,
        hashes: &[BlobHash],
        swept: &mut SweepStats,
    ) -> Result<()> {
        let Some(first) = hashes.first() else { return Ok(()) };
        // Before the local removal: afterwards only the marker tells that the store has the file.
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
            // If the file is stored again from here on, it is queued again.
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
