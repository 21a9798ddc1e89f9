//! A chunk: the folded texts of consecutive descriptions of one owner, and whose they are.
//!
//! Texts stand one after the other with a byte between them that no text can have, so one pass
//! over the bytes finds what one text has. The runs of a chunk stay in memory when its block
//! moves to the cache file: they say whether it has to be looked at.

use std::{collections::HashSet, sync::Arc};

use media::{RunId, Seq};

use crate::{
    case_fold::{Needle, fold_into},
    error::SearchError,
    scan::Hit,
    spill::Span,
};

/// Ends a text; never part of UTF-8.
const END: u8 = 0xff;
/// Bytes of an entry in the cache file.
const ENTRY_BYTES: usize = 16;

/// One description of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    seq: Seq,
    /// Position of its run in the chunk's list.
    run: u32,
    /// End of its text; the [`END`] byte stands there.
    end: u32,
}

/// The texts of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    text: Vec<u8>,
    entries: Vec<Entry>,
}

impl Block {
    fn bytes(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// The folded text and the entry of each description.
    fn iter(&self) -> impl Iterator<Item = (&[u8], Entry)> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let text = &self.text[start..entry.end as usize];
            start = entry.end as usize + 1;
            (text, *entry)
        })
    }

    fn push(&mut self, seq: Seq, run: u32, folded: &[u8]) {
        self.text.extend_from_slice(folded);
        let end = u32::try_from(self.text.len()).expect("a chunk is small");
        self.text.push(END);
        self.entries.push(Entry { seq, run, end });
    }

    /// The block as the cache file holds it.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entries.len() * ENTRY_BYTES + self.text.len());
        for Entry { seq, run, end } in &self.entries {
            out.extend_from_slice(&seq.0.to_le_bytes());
            out.extend_from_slice(&run.to_le_bytes());
            out.extend_from_slice(&end.to_le_bytes());
        }
        out.extend_from_slice(&self.text);
        out
    }

    /// The block of `entries` descriptions that [`Block::write`] wrote, in memory to reuse.
    pub(crate) fn read(&mut self, written: &[u8], entries: usize) {
        let (table, text) = written.split_at(entries * ENTRY_BYTES);
        let word = |at: &[u8]| u32::from_le_bytes(at.try_into().expect("four bytes"));
        self.entries.clear();
        self.entries.extend(table.chunks_exact(ENTRY_BYTES).map(|entry| Entry {
            seq: Seq(u64::from_le_bytes(entry[..8].try_into().expect("eight bytes"))),
            run: word(&entry[8..12]),
            end: word(&entry[12..]),
        }));
        self.text.clear();
        self.text.extend_from_slice(text);
    }
}

/// Location of a block.
#[derive(Clone, Debug)]
enum Place {
    Memory(Block),
    File(Arc<Span>),
}

/// A run and how many descriptions of a chunk are its.
#[derive(Clone, Copy, Debug)]
struct Share {
    run: RunId,
    count: u32,
}

/// A chunk.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    shares: Vec<Share>,
    last: Seq,
    place: Place,
}

/// Result of one chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) scanned: u64,
    pub(crate) total: u64,
    /// The first of them.
    pub(crate) hits: Vec<Hit>,
}

impl Chunk {
    pub(crate) fn new() -> Chunk {
        Chunk { shares: Vec::new(), last: Seq(0), place: Place::Memory(Block::default()) }
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let block = match &self.place {
            Place::Memory(block) => block.bytes(),
            Place::File(_) => size_of::<Span>(),
        };
        block + self.shares.capacity() * size_of::<Share>() + size_of::<Chunk>()
    }

    /// Bytes of text, when it is in memory and can take more.
    pub(crate) fn text_bytes(&self) -> Option<usize> {
        match &self.place {
            Place::Memory(block) => Some(block.text.len()),
            Place::File(_) => None,
        }
    }

    /// Its newest description.
    pub(crate) fn last(&self) -> Seq {
        self.last
    }

    /// Adds the newest description of all.
    ///
    /// `number` is where its run is in the chunk, if it is; returns where it is now.
    pub(crate) fn push(&mut self, run: RunId, number: Option<u32>, seq: Seq, text: &str) -> u32 {
        let Place::Memory(block) = &mut self.place else { unreachable!("asked by text_bytes") };
        let number = number.unwrap_or_else(|| {
            self.shares.push(Share { run, count: 0 });
            u32::try_from(self.shares.len() - 1).expect("a chunk is small")
        });
        self.shares[number as usize].count += 1;
        fold_into(text, &mut block.text);
        block.push(seq, number, &[]);
        self.last = seq;
        number
    }

    /// Gives back what growing reserved beyond need.
    pub(crate) fn seal(&mut self) {
        self.shares.shrink_to_fit();
        if let Place::Memory(block) = &mut self.place {
            block.text.shrink_to_fit();
            block.entries.shrink_to_fit();
        }
    }

    /// The chunk with its block in the cache file, written by `write`.
    pub(crate) fn spilled(
        &self,
        write: impl FnOnce(&Block, usize) -> Result<Span, SearchError>,
    ) -> Result<Chunk, SearchError> {
        let Place::Memory(block) = &self.place else { return Ok(self.clone()) };
        let place = Place::File(Arc::new(write(block, block.entries.len())?));
        let mut chunk = Chunk { shares: self.shares.clone(), last: self.last, place };
        chunk.seal();
        Ok(chunk)
    }

    pub(crate) fn has_any(&self, runs: &HashSet<RunId>) -> bool {
        self.shares.iter().any(|share| runs.contains(&share.run))
    }

    /// The chunk without the descriptions of `runs`, in memory; `None` when nothing is left.
    pub(crate) fn without(&self, runs: &HashSet<RunId>) -> Result<Option<Chunk>, SearchError> {
        let mut scratch = Block::default();
        let block = self.block(&mut scratch)?;
        let mut kept = Chunk::new();
        let mut numbers = vec![None; self.shares.len()];
        let Place::Memory(into) = &mut kept.place else { unreachable!("made so") };
        for (text, entry) in block.iter() {
            let run = self.shares[entry.run as usize].run;
            if runs.contains(&run) {
                continue;
            }
            let number = *numbers[entry.run as usize].get_or_insert_with(|| {
                kept.shares.push(Share { run, count: 0 });
                kept.shares.len() as u32 - 1
            });
            kept.shares[number as usize].count += 1;
            into.push(entry.seq, number, text);
            kept.last = entry.seq;
        }
        kept.seal();
        Ok((!kept.shares.is_empty()).then_some(kept))
    }

    /// The block, in memory; `scratch` is memory to read it into.
    fn block<'a>(&'a self, scratch: &'a mut Block) -> Result<&'a Block, SearchError> {
        match &self.place {
            Place::Memory(block) => Ok(block),
            Place::File(span) => {
                span.read(scratch)?;
                Ok(scratch)
            }
        }
    }

    /// Finds the descriptions of `runs` that have the needle; returns at most `limit` hits.
    pub(crate) fn scan(
        &self,
        needle: &Needle,
        runs: &HashSet<RunId>,
        limit: usize,
        scratch: &mut Block,
    ) -> Result<Part, SearchError> {
        let mut part = Part::default();
        let asked: Vec<bool> = self.shares.iter().map(|share| runs.contains(&share.run)).collect();
        for (share, asked) in self.shares.iter().zip(&asked) {
            part.scanned += if *asked { u64::from(share.count) } else { 0 };
        }
        if part.scanned == 0 {
            return Ok(part);
        }
        let Block { text, entries } = self.block(scratch)?;
        let (mut from, mut next) = (0, 0);
        while let Some(at) = needle.find(&text[from..]) {
            let at = from + at;
            // Hits come in order, so the entry is this one or one of the next.
            while (entries[next].end as usize) < at {
                next += 1;
            }
            let entry = entries[next];
            if asked[entry.run as usize] {
                part.total += 1;
                if part.hits.len() < limit {
                    part.hits.push(Hit { seq: entry.seq });
                }
            }
            from = entry.end as usize + 1;
            next += 1;
        }
        Ok(part)
    }
}
