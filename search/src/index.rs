//! Search index: the chunks of all owners, the oldest of them in the cache file.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use media::{RunId, Seq};

use crate::{
    SearchError,
    case_fold::{FoldedPattern, fold_into},
    chunk::IndexChunk,
    scan::Scan,
    spill::SpillFile,
};

/// Memory limits of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLimits {
    /// Bytes of memory above which the oldest chunks move to the cache file.
    ///
    /// In addition, each of those takes 24 bytes per run, and each scanning thread takes one chunk.
    pub memory_bytes: usize,
    /// Bytes of case-folded text after which a chunk is closed.
    pub chunk_bytes: usize,
}

/// Chunks of one owner, oldest first.
#[derive(Default)]
struct OwnerChunks {
    chunks: Vec<Arc<IndexChunk>>,
    /// Positions of runs in the last chunk's list of runs.
    numbers: HashMap<RunId, u32>,
}

/// Index of all descriptions, by owner.
pub struct SearchIndex {
    limits: IndexLimits,
    spill: Arc<SpillFile>,
    owners: HashMap<Box<str>, OwnerChunks>,
    memory_bytes: usize,
}

impl SearchIndex {
    /// Creates an empty index, with an unlinked cache file created at `path`.
    pub fn new(limits: IndexLimits, path: &Path) -> Result<SearchIndex, SearchError> {
        let spill = SpillFile::create(path)?;
        Ok(SearchIndex { limits, spill, owners: HashMap::new(), memory_bytes: 0 })
    }

    /// Memory of the chunks in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Bytes of the chunks in the cache file.
    pub fn file_bytes(&self) -> u64 {
        self.spill.used()
    }

    /// Adds the description `text` of event `seq`, which must be newer than all others.
    pub fn insert(
        &mut self,
        owner: &str,
        run: RunId,
        seq: Seq,
        text: &str,
    ) -> Result<(), SearchError> {
        let most = self.limits.chunk_bytes;
        let chunks_of = match self.owners.get_mut(owner) {
            Some(chunks_of) => chunks_of,
            None => self.owners.entry(owner.into()).or_default(),
        };
        let has_room =
            |chunk: &Arc<IndexChunk>| chunk.text_bytes().is_some_and(|bytes| bytes < most);
        if !chunks_of.chunks.last().is_some_and(has_room) {
            let chunk = IndexChunk::new();
            self.memory_bytes += chunk.bytes();
            chunks_of.chunks.push(Arc::new(chunk));
            chunks_of.numbers.clear();
        }
        let last = chunks_of.chunks.last_mut().expect("one with room is there");
        // Copies the chunk if a scan holds it; the copy may have less capacity than was counted.
        let before = last.bytes();
        let chunk = Arc::make_mut(last);
        let known = chunks_of.numbers.get(&run).copied();
        let number = chunk.push(run, known, seq, |out| fold_into(text, out));
        chunks_of.numbers.insert(run, number);
        if chunk.text_bytes().is_some_and(|bytes| bytes >= most) {
            chunk.seal();
        }
        self.memory_bytes = self.memory_bytes + chunk.bytes() - before;
        self.make_room()
    }

    /// Removes the descriptions of `runs`.
    pub fn remove(&mut self, owner: &str, runs: &HashSet<RunId>) -> Result<(), SearchError> {
        let Some(mut chunks_of) = self.owners.remove(owner) else { return Ok(()) };
        let mut kept = Vec::with_capacity(chunks_of.chunks.len());
        for chunk in chunks_of.chunks {
            if !chunk.has_any(runs) {
                kept.push(chunk);
                continue;
            }
            self.memory_bytes -= chunk.bytes();
            if let Some(rest) = chunk.without(runs)? {
                self.memory_bytes += rest.bytes();
                kept.push(Arc::new(rest));
            }
        }
        if !kept.is_empty() {
            // The new last chunk may list its runs in another order.
            chunks_of.numbers.clear();
            chunks_of.chunks = kept;
            self.owners.insert(owner.into(), chunks_of);
        }
        self.make_room()
    }

    /// Creates a search of the descriptions of `runs` of `owner`, for at most `limit` hits.
    pub fn scan(
        &self,
        owner: &str,
        runs: HashSet<RunId>,
        pattern: FoldedPattern,
        limit: usize,
    ) -> Scan {
        let chunks =
            self.owners.get(owner).map_or_else(Vec::new, |chunks_of| chunks_of.chunks.clone());
        Scan::new(chunks, runs, pattern, limit)
    }

    /// Moves the oldest blocks to the cache file while memory exceeds the limit.
    fn make_room(&mut self) -> Result<(), SearchError> {
        while self.memory_bytes > self.limits.memory_bytes {
            let chunks = self.owners.values_mut().flat_map(|chunks_of| &mut chunks_of.chunks);
            let oldest = chunks
                .filter(|chunk| chunk.text_bytes().is_some())
                .min_by_key(|chunk| chunk.last());
            let Some(oldest) = oldest else { return Ok(()) };
            let before = oldest.bytes();
            let spilled = oldest.spilled(&self.spill)?;
            self.memory_bytes = self.memory_bytes + spilled.bytes() - before;
            *oldest = Arc::new(spilled);
        }
        Ok(())
    }
}
