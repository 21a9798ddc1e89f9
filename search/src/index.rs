//! The index: a shelf of chunks for every owner, the oldest of them in the cache file.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use media::{RunId, Seq};

use crate::{case_fold::Needle, chunk::Chunk, error::SearchError, scan::Scan, spill::Spill};

/// Limits of the memory of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory above which the oldest chunks move to the cache file.
    ///
    /// On top come 24 bytes a run of each chunk there, and a chunk for every thread that scans.
    pub memory_bytes: usize,
    /// Bytes of folded text after which a chunk is closed.
    pub chunk_bytes: usize,
}

/// The chunks of one owner, oldest first.
#[derive(Default)]
struct Shelf {
    chunks: Vec<Arc<Chunk>>,
    /// Positions of the runs of the last chunk in its list.
    numbers: HashMap<RunId, u32>,
}

/// Every description, by owner.
pub struct Index {
    limits: Limits,
    spill: Arc<Spill>,
    shelves: HashMap<Box<str>, Shelf>,
    memory_bytes: usize,
}

impl Index {
    /// An empty index whose cache file is made at `path` and loses its name at once.
    pub fn new(limits: Limits, path: &Path) -> Result<Index, SearchError> {
        let spill = Spill::create(path)?;
        Ok(Index { limits, spill, shelves: HashMap::new(), memory_bytes: 0 })
    }

    /// Memory that chunks take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Bytes that chunks take in the cache file.
    pub fn file_bytes(&self) -> u64 {
        self.spill.used()
    }

    /// Adds the description `text` of event `seq`, which comes after all that are there.
    pub fn insert(
        &mut self,
        owner: &str,
        run: RunId,
        seq: Seq,
        text: &str,
    ) -> Result<(), SearchError> {
        let most = self.limits.chunk_bytes;
        let shelf = match self.shelves.get_mut(owner) {
            Some(shelf) => shelf,
            None => self.shelves.entry(owner.into()).or_default(),
        };
        let has_room = |chunk: &Arc<Chunk>| chunk.text_bytes().is_some_and(|bytes| bytes < most);
        if !shelf.chunks.last().is_some_and(has_room) {
            let chunk = Chunk::new();
            self.memory_bytes += chunk.bytes();
            shelf.chunks.push(Arc::new(chunk));
            shelf.numbers.clear();
        }
        let last = shelf.chunks.last_mut().expect("one with room is there");
        // A scan that reads the chunk keeps it as it is.
        let chunk = Arc::make_mut(last);
        let before = chunk.bytes();
        let number = chunk.push(run, shelf.numbers.get(&run).copied(), seq, text);
        shelf.numbers.insert(run, number);
        if chunk.text_bytes().is_some_and(|bytes| bytes >= most) {
            chunk.seal();
        }
        self.memory_bytes = self.memory_bytes + chunk.bytes() - before;
        self.make_room()
    }

    /// Forgets the descriptions of `runs`.
    pub fn remove(&mut self, owner: &str, runs: &HashSet<RunId>) -> Result<(), SearchError> {
        let Some(mut shelf) = self.shelves.remove(owner) else { return Ok(()) };
        let mut kept = Vec::with_capacity(shelf.chunks.len());
        for chunk in shelf.chunks {
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
            // The last chunk may list its runs in another order now.
            shelf.numbers.clear();
            shelf.chunks = kept;
            self.shelves.insert(owner.into(), shelf);
        }
        self.make_room()
    }

    /// A search of the descriptions of `runs`, which are `owner`'s, telling `limit` hits.
    pub fn scan(&self, owner: &str, runs: HashSet<RunId>, needle: Needle, limit: usize) -> Scan {
        let chunks = self.shelves.get(owner).map_or_else(Vec::new, |shelf| shelf.chunks.clone());
        Scan::new(chunks, runs, needle, limit)
    }

    /// Moves the oldest blocks to the cache file while memory is over the budget.
    fn make_room(&mut self) -> Result<(), SearchError> {
        while self.memory_bytes > self.limits.memory_bytes {
            let chunks = self.shelves.values_mut().flat_map(|shelf| &mut shelf.chunks);
            let oldest = chunks
                .filter(|chunk| chunk.text_bytes().is_some())
                .min_by_key(|chunk| chunk.last());
            let Some(oldest) = oldest else { return Ok(()) };
            let before = oldest.bytes();
            let spilled = oldest.spilled(|block, entries| self.spill.write(block, entries))?;
            self.memory_bytes = self.memory_bytes + spilled.bytes() - before;
            *oldest = Arc::new(spilled);
        }
        Ok(())
    }
}
