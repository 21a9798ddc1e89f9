//! Batch bytes: the records that one write and one sync make durable, under one checksum.
//!
//! A batch says which numbers it stands for: in a compacted file some of them have no record.
//! An empty batch is a *mark*: it is written without a sync once the batch before it is
//! durable, and the next batch takes its place. Whatever is intact behind a damaged batch,
//! a mark included, therefore proves that the batch had been durable.

use media::Seq;

use crate::record::{u32_at, u64_at};

/// Magic, checksum, body length, record count, first seq, the seq after the last where that is
/// not the first plus the count, else 0.
pub(crate) const HEADER_BYTES: usize = 4 + 4 + 4 + 4 + 8 + 8;
/// 0xff and 0xfe occur in no UTF-8 text, so that no payload can pass for a batch.
const MAGIC: [u8; 4] = [0xff, 0xfe, b'S', b'B'];

/// A batch being filled by the writer.
pub(crate) struct BatchBuilder {
    bytes: Vec<u8>,
    first: Seq,
    count: u32,
}

impl BatchBuilder {
    /// Starts a batch whose first record will be `first`; reuses the memory of `bytes`.
    pub(crate) fn new(mut bytes: Vec<u8>, first: Seq) -> BatchBuilder {
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        BatchBuilder { bytes, first, count: 0 }
    }

    /// Returns the offset of the next record from the start of the batch.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes one record, which `put` appends.
    pub(crate) fn push(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.bytes);
        self.count += 1;
    }

    /// The bytes to write of a batch that stands for every number before `next`, though it has
    /// not a record for each.
    pub(crate) fn finish_before(mut self, next: Seq) -> Vec<u8> {
        self.bytes[24..32].copy_from_slice(&next.0.to_le_bytes());
        self.finish()
    }

    /// The bytes to write.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let body = u32::try_from(self.bytes.len() - HEADER_BYTES).expect("a group is < 4 GiB");
        self.bytes[..4].copy_from_slice(&MAGIC);
        self.bytes[8..12].copy_from_slice(&body.to_le_bytes());
        self.bytes[12..16].copy_from_slice(&self.count.to_le_bytes());
        self.bytes[16..24].copy_from_slice(&self.first.0.to_le_bytes());
        let checksum = crc32c::crc32c(&self.bytes[8..]);
        self.bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        self.bytes
    }
}

/// The mark that says: everything before `next` is durable.
pub(crate) fn commit_marker(next: Seq) -> Vec<u8> {
    BatchBuilder::new(Vec::new(), next).finish()
}

/// An intact batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalBatch<'a> {
    pub(crate) first: Seq,
    /// The number after the last that it stands for.
    pub(crate) next: Seq,
    pub(crate) count: u32,
    pub(crate) body: &'a [u8],
}

impl<'a> JournalBatch<'a> {
    /// The batch at the start of `bytes`; `None` unless all of it is there and intact.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<JournalBatch<'a>> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        if header[..4] != MAGIC {
            return None;
        }
        let end = HEADER_BYTES.checked_add(u32_at(header, 8) as usize)?;
        let checked = bytes.get(8..end)?;
        let intact = crc32c::crc32c(checked) == u32_at(header, 4);
        let (first, count) = (u64_at(header, 16), u32_at(header, 12));
        let next = match u64_at(header, 24) {
            0 => first.checked_add(u64::from(count))?,
            next => next,
        };
        intact.then(|| JournalBatch {
            first: Seq(first),
            next: Seq(next),
            count,
            body: &bytes[HEADER_BYTES..end],
        })
    }

    pub(crate) fn is_mark(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn batch_bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }
}

/// The offset in `bytes` of the first intact batch at or after `from` that begins at `least`
/// or later in the order.
pub(crate) fn find(bytes: &[u8], from: usize, least: Seq) -> Option<usize> {
    let mut at = from;
    while let Some(step) = bytes.get(at..)?.iter().position(|byte| *byte == MAGIC[0]) {
        at += step;
        if JournalBatch::parse(&bytes[at..]).is_some_and(|batch| batch.first >= least) {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(first: u64, records: &[&[u8]]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(vec![1, 2, 3], Seq(first));
        for record in records {
            builder.push(|out| out.extend_from_slice(record));
        }
        builder.finish()
    }

    #[test]
    fn a_batch_reads_back_what_was_put_in() {
        let bytes = batch(5, &[b"one", b"two"]);
        let read = JournalBatch::parse(&bytes).expect("intact");
        assert_eq!((read.first, read.count, read.body), (Seq(5), 2, b"onetwo".as_slice()));
        assert!(!read.is_mark() && read.next == Seq(7));
        let mut sparse = BatchBuilder::new(Vec::new(), Seq(5));
        sparse.push(|out| out.extend_from_slice(b"one"));
        let bytes = sparse.finish_before(Seq(90));
        let read = JournalBatch::parse(&bytes).expect("intact");
        assert_eq!((read.first, read.next, read.count), (Seq(5), Seq(90), 1));
        assert!(JournalBatch::parse(&commit_marker(Seq(7))).is_some_and(|mark| mark.is_mark()));
    }

    #[test]
    fn no_flipped_bit_and_no_cut_leaves_a_batch_intact() {
        let bytes = batch(5, &[b"one", b"two"]);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(JournalBatch::parse(&damaged), None, "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(JournalBatch::parse(&bytes[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn the_search_finds_only_intact_batches_that_are_not_older() {
        let mut bytes = vec![0xff; 100];
        bytes.extend(batch(4, &[b"old"]));
        let at = bytes.len();
        bytes.extend(batch(9, &[b"new"]));
        assert_eq!(find(&bytes, 0, Seq(5)), Some(at));
        assert_eq!(find(&bytes, 0, Seq(10)), None);
        assert_eq!(find(&bytes, bytes.len() + 1, Seq(0)), None);
    }
}
