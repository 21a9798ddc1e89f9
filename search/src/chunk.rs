//! Chunk: the folded texts of consecutive descriptions of one owner, and their runs.
//!
//! Texts are separated by a byte that no text contains, so that one pass over all bytes finds the matches.
//! The runs of a chunk stay in memory when its block moves to the cache file: they tell if it must be
//! scanned.

use std::{collections::HashSet, sync::Arc};

use media::{RunId, Seq};

use crate::{
    SearchError,
    case_fold::FoldedPattern,
    scan::ScanResult,
    spill::{SpillFile, SpillRange},
};

/// Terminator of a text; never part of UTF-8.
const END: u8 = 0xff;
/// Bytes of an entry in the cache file.
const ENTRY_BYTES: usize = 16;

/// Entry of one description in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockEntry {
    seq: Seq,
    /// Position of the description's run in the chunk's list.
    run: u32,
    /// End of the description's text, where its [`END`] byte is.
    end: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextBlock {
    text: Vec<u8>,
    entries: Vec<BlockEntry>,
}

impl TextBlock {
    fn bytes(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<BlockEntry>()
    }

    /// Iterates over the folded text and the entry of each description.
    fn iter(&self) -> impl Iterator<Item = (&[u8], BlockEntry)> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let text = &self.text[start..entry.end as usize];
            start = entry.end as usize + 1;
            (text, *entry)
        })
    }

    /// Serialises the block for the cache file.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entries.len() * ENTRY_BYTES + self.text.len());
        for BlockEntry { seq, run, end } in &self.entries {
            out.extend_from_slice(&seq.0.to_le_bytes());
            out.extend_from_slice(&run.to_le_bytes());
            out.extend_from_slice(&end.to_le_bytes());
        }
        out.extend_from_slice(&self.text);
        out
    }

    /// Reads a block of `entries` descriptions written by [`TextBlock::write`]; reuses the memory of `self`.
    pub(crate) fn read(&mut self, written: &[u8], entries: usize) {
        let (table, text) = written.split_at(entries * ENTRY_BYTES);
        let word = |at: &[u8]| u32::from_le_bytes(at.try_into().expect("four bytes"));
        self.entries.clear();
        self.entries.extend(table.chunks_exact(ENTRY_BYTES).map(|entry| BlockEntry {
            seq: Seq(u64::from_le_bytes(entry[..8].try_into().expect("eight bytes"))),
            run: word(&entry[8..12]),
            end: word(&entry[12..]),
        }));
        self.text.clear();
        self.text.extend_from_slice(text);
    }
}

#[derive(Clone, Debug)]
enum BlockLocation {
    Memory(TextBlock),
    File(Arc<SpillRange>),
}

/// A run, and its number of descriptions in a chunk.
#[derive(Clone, Copy, Debug)]
struct RunShare {
    run: RunId,
    count: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct IndexChunk {
    shares: Vec<RunShare>,
    last: Seq,
    location: BlockLocation,
}

impl IndexChunk {
    pub(crate) fn new() -> IndexChunk {
        IndexChunk {
            shares: Vec::new(),
            last: Seq(0),
            location: BlockLocation::Memory(TextBlock::default()),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let block = match &self.location {
            BlockLocation::Memory(block) => block.bytes(),
            BlockLocation::File(_) => size_of::<SpillRange>(),
        };
        block + self.shares.capacity() * size_of::<RunShare>() + size_of::<IndexChunk>()
    }

    /// Bytes of text; `None` if the text is in the cache file.
    pub(crate) fn text_bytes(&self) -> Option<usize> {
        match &self.location {
            BlockLocation::Memory(block) => Some(block.text.len()),
            BlockLocation::File(_) => None,
        }
    }

    /// Event of the newest description.
    pub(crate) fn last(&self) -> Seq {
        self.last
    }

    /// Adds a description that is newer than all others, whose folded text `write` appends.
    ///
    /// `number` is the position of its run in the chunk, if any; returns the position.
    pub(crate) fn push(
        &mut self,
        run: RunId,
        number: Option<u32>,
        seq: Seq,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> u32 {
        let BlockLocation::Memory(block) = &mut self.location else {
            unreachable!("asked by text_bytes")
        };
        let number = number.unwrap_or_else(|| {
            self.shares.push(RunShare { run, count: 0 });
            u32::try_from(self.shares.len() - 1).expect("a chunk is small")
        });
        self.shares[number as usize].count += 1;
        write(&mut block.text);
        let end = u32::try_from(block.text.len()).expect("a chunk is small");
        block.text.push(END);
        block.entries.push(BlockEntry { seq, run: number, end });
        self.last = seq;
        number
    }

    /// Frees unused capacity.
    pub(crate) fn seal(&mut self) {
        self.shares.shrink_to_fit();
        if let BlockLocation::Memory(block) = &mut self.location {
            block.text.shrink_to_fit();
            block.entries.shrink_to_fit();
        }
    }

    /// Returns the chunk with its block in the cache file.
    pub(crate) fn spilled(&self, spill: &Arc<SpillFile>) -> Result<IndexChunk, SearchError> {
        let BlockLocation::Memory(block) = &self.location else { return Ok(self.clone()) };
        let location = BlockLocation::File(Arc::new(spill.write(block, block.entries.len())?));
        let mut chunk = IndexChunk { shares: self.shares.clone(), last: self.last, location };
        chunk.seal();
        Ok(chunk)
    }

    pub(crate) fn has_any(&self, runs: &HashSet<RunId>) -> bool {
        self.shares.iter().any(|share| runs.contains(&share.run))
    }

    /// Returns the chunk without the descriptions of `runs`, in memory; `None` if none is left.
    pub(crate) fn without(&self, runs: &HashSet<RunId>) -> Result<Option<IndexChunk>, SearchError> {
        let mut scratch = TextBlock::default();
        let block = self.block(&mut scratch)?;
        let mut kept = IndexChunk::new();
        let mut numbers = vec![None; self.shares.len()];
        for (text, entry) in block.iter() {
            let at = entry.run as usize;
            let run = self.shares[at].run;
            if runs.contains(&run) {
                continue;
            }
            let copy = |out: &mut Vec<u8>| out.extend_from_slice(text);
            numbers[at] = Some(kept.push(run, numbers[at], entry.seq, copy));
        }
        kept.seal();
        Ok((!kept.shares.is_empty()).then_some(kept))
    }

    /// Returns the block; reads it into `scratch` if it is in the cache file.
    fn block<'a>(&'a self, scratch: &'a mut TextBlock) -> Result<&'a TextBlock, SearchError> {
        match &self.location {
            BlockLocation::Memory(block) => Ok(block),
            BlockLocation::File(span) => {
                span.read(scratch)?;
                Ok(scratch)
            }
        }
    }

    /// Finds the descriptions of `runs` that contain the pattern; returns at most `limit` hits.
    pub(crate) fn scan(
        &self,
        pattern: &FoldedPattern,
        runs: &HashSet<RunId>,
        limit: usize,
        scratch: &mut TextBlock,
    ) -> Result<ScanResult, SearchError> {
        let mut result = ScanResult::default();
        let asked: Vec<bool> = self.shares.iter().map(|share| runs.contains(&share.run)).collect();
        for (share, asked) in self.shares.iter().zip(&asked) {
            result.scanned += if *asked { u64::from(share.count) } else { 0 };
        }
        if result.scanned == 0 {
            return Ok(result);
        }
        let TextBlock { text, entries } = self.block(scratch)?;
        let (mut from, mut next) = (0, 0);
        while let Some(at) = pattern.find(&text[from..]) {
            let at = from + at;
            // Matches come in order: the entry is this one or a later one.
            while (entries[next].end as usize) < at {
                next += 1;
            }
            let entry = entries[next];
            if asked[entry.run as usize] {
                result.total_hits += 1;
                if result.hits.len() < limit {
                    result.hits.push(entry.seq);
                }
            }
            from = entry.end as usize + 1;
            next += 1;
        }
        Ok(result)
    }
}
