//! Cache file: blocks that exceed the memory limit, read back through the page cache.
//!
//! The file does not outlive the process, as it is unlinked right after opening.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::fs::{FallocateFlags, fallocate};

use crate::{SearchError, chunk::TextBlock};

/// Cache file, and its used part.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: File,
    end: AtomicU64,
    /// Bytes of all live ranges.
    used: AtomicU64,
}

fn cache(what: &'static str) -> impl Fn(io::Error) -> SearchError {
    move |source| SearchError::Cache { what, source }
}

impl SpillFile {
    /// Creates the cache file at `path`, which must not be shared; unlinked on return.
    pub(crate) fn create(path: &Path) -> Result<Arc<SpillFile>, SearchError> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = options.open(path).map_err(cache("create"))?;
        std::fs::remove_file(path).map_err(cache("create"))?;
        Ok(Arc::new(SpillFile { file, end: AtomicU64::new(0), used: AtomicU64::new(0) }))
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Appends a block with `entries` entries.
    pub(crate) fn write(
        self: &Arc<SpillFile>,
        block: &TextBlock,
        entries: usize,
    ) -> Result<SpillRange, SearchError> {
        let bytes = block.write();
        let offset = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(&bytes, offset).map_err(cache("write"))?;
        self.used.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let checksum = crc32c::crc32c(&bytes);
        Ok(SpillRange { spill: Arc::clone(self), offset, len: bytes.len(), entries, checksum })
    }
}

/// Range of a block in the cache file; its space is freed when the last reference is dropped.
#[derive(Debug)]
pub(crate) struct SpillRange {
    spill: Arc<SpillFile>,
    offset: u64,
    len: usize,
    entries: usize,
    checksum: u32,
}

impl SpillRange {
    /// Reads the stored block into `block`.
    pub(crate) fn read(&self, block: &mut TextBlock) -> Result<(), SearchError> {
        let mut bytes = vec![0; self.len];
        self.spill.file.read_exact_at(&mut bytes, self.offset).map_err(cache("read"))?;
        if crc32c::crc32c(&bytes) != self.checksum {
            return Err(SearchError::Damaged { offset: self.offset });
        }
        block.read(&bytes, self.entries);
        Ok(())
    }
}

impl Drop for SpillRange {
    fn drop(&mut self) {
        self.spill.used.fetch_sub(self.len as u64, Ordering::Relaxed);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A file system without hole punching keeps the space until the process ends.
        fallocate(&self.spill.file, hole, self.offset, self.len as u64).ok();
    }
}
