//! Batch bytes: records that one write and one sync make durable, under one checksum.
//!
//! A batch names the range of numbers that it covers: in a compacted file some of them have no record. An
//! empty batch is a *mark*: it is written without a sync once the batch before it is durable, and the next
//! batch overwrites it. An intact batch or mark after a damaged batch therefore proves that the damaged one
//! had been durable.

use std::ops::Range;

use media::Seq;

use crate::record::{u32_at, u64_at};

/// Magic, checksum, body length, record count, first seq, and the seq after the last if that differs from
/// first plus count, else 0.
pub(crate) const HEADER_BYTES: usize = 4 + 4 + 4 + 4 + 8 + 8;
/// The bytes 0xff and 0xfe occur in no UTF-8 text, so no payload text can look like a batch.
const MAGIC: [u8; 4] = [0xff, 0xfe, b'S', b'B'];
/// First byte that the checksum covers.
const CHECKED_FROM: usize = 8;

pub(crate) struct BatchBuilder {
    bytes: Vec<u8>,
    first: Seq,
    count: u32,
}

impl BatchBuilder {
    /// Starts a batch with first number `first`; reuses the memory of `bytes`.
    pub(crate) fn new(mut bytes: Vec<u8>, first: Seq) -> BatchBuilder {
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        BatchBuilder { bytes, first, count: 0 }
    }

    /// Returns the offset of the next record from the start of the batch.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds one record, which `put` appends.
    pub(crate) fn push(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.bytes);
        self.count += 1;
    }

    /// Returns the bytes of a batch that covers every number before `next`, although some have no record.
    pub(crate) fn finish_before(mut self, next: Seq) -> Vec<u8> {
        self.bytes[24..32].copy_from_slice(&next.0.to_le_bytes());
        self.finish()
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let body = u32::try_from(self.bytes.len() - HEADER_BYTES).expect("a group is < 4 GiB");
        self.bytes[..4].copy_from_slice(&MAGIC);
        self.bytes[8..12].copy_from_slice(&body.to_le_bytes());
        self.bytes[12..16].copy_from_slice(&self.count.to_le_bytes());
        self.bytes[16..24].copy_from_slice(&self.first.0.to_le_bytes());
        let checksum = crc32c::crc32c(&self.bytes[CHECKED_FROM..]);
        self.bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        self.bytes
    }
}

/// Returns the mark that everything before `next` is durable.
pub(crate) fn commit_marker(next: Seq) -> Vec<u8> {
    BatchBuilder::new(Vec::new(), next).finish()
}

/// An intact batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalBatch<'a> {
    pub(crate) first: Seq,
    /// Number after the last covered one.
    pub(crate) next: Seq,
    pub(crate) count: u32,
    pub(crate) body: &'a [u8],
}

impl<'a> JournalBatch<'a> {
    /// Reads the batch at the start of `bytes`; `None` unless it is complete and intact.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<JournalBatch<'a>> {
        let (batch, checksum) = JournalBatch::unchecked(bytes)?;
        (crc32c::crc32c(&bytes[CHECKED_FROM..batch.batch_bytes()]) == checksum).then_some(batch)
    }

    /// Reads the batch at the start of `bytes` without a check, and its checksum of the bytes from
    /// [`CHECKED_FROM`] on; `None` unless the batch is complete.
    fn unchecked(bytes: &'a [u8]) -> Option<(JournalBatch<'a>, u32)> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        if header[..4] != MAGIC {
            return None;
        }
        let end = HEADER_BYTES.checked_add(u32_at(header, 8) as usize)?;
        let body = bytes.get(HEADER_BYTES..end)?;
        let (first, count) = (u64_at(header, 16), u32_at(header, 12));
        let next = match u64_at(header, 24) {
            0 => first.checked_add(u64::from(count))?,
            next => next,
        };
        let batch = JournalBatch { first: Seq(first), next: Seq(next), count, body };
        Some((batch, u32_at(header, 4)))
    }

    pub(crate) fn is_mark(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn batch_bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }
}

/// Returns the offset in `bytes` of the first intact batch whose first number is `least` or higher.
pub(crate) fn find(bytes: &[u8], least: Seq) -> Option<usize> {
    find_by(bytes, least, crc32c::crc32c_append)
}

/// As [`find`], with `append`, which continues a checksum. It gets each byte once, and less than two parts
/// for each header, since damaged bytes may look like many overlapping batches.
fn find_by(bytes: &[u8], least: Seq, append: impl FnMut(u32, &[u8]) -> u32) -> Option<usize> {
    let mut sums = PrefixChecksums { bytes, append, parts: vec![0] };
    let mut at = 0;
    while let Some(step) = bytes.get(at..)?.iter().position(|byte| *byte == MAGIC[0]) {
        at += step;
        if let Some((batch, checksum)) = JournalBatch::unchecked(&bytes[at..])
            && batch.first >= least
            && sums.has(at + CHECKED_FROM..at + batch.batch_bytes(), checksum)
        {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Bytes between two stored checksums.
const PART_BYTES: usize = 512;

/// Checksums of the bytes before each part, computed on demand: two of them give that of a range.
struct PrefixChecksums<'a, F> {
    bytes: &'a [u8],
    append: F,
    parts: Vec<u32>,
}

impl<F: FnMut(u32, &[u8]) -> u32> PrefixChecksums<'_, F> {
    /// Returns true if the bytes of `range` have this checksum.
    fn has(&mut self, range: Range<usize>, checksum: u32) -> bool {
        let before = self.before(range.start);
        crc32c::crc32c_combine(before, checksum, range.len()) == self.before(range.end)
    }

    fn before(&mut self, end: usize) -> u32 {
        let part = end / PART_BYTES;
        for known in self.parts.len() - 1..part {
            let next = &self.bytes[known * PART_BYTES..][..PART_BYTES];
            self.parts.push((self.append)(self.parts[known], next));
        }
        (self.append)(self.parts[part], &self.bytes[part * PART_BYTES..end])
    }
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
        assert_eq!(find(&bytes, Seq(5)), Some(at));
        assert_eq!(find(&bytes, Seq(10)), None);
        assert_eq!(find(&[], Seq(0)), None);
    }

    /// Returns as many headers as fit, each of a batch that reaches to the end of the file.
    fn headers(bytes: usize) -> Vec<u8> {
        let mut headers = vec![0; bytes];
        for at in (0..bytes - HEADER_BYTES).step_by(16) {
            headers[at..at + 4].copy_from_slice(&MAGIC);
            let body = (bytes - at - HEADER_BYTES) as u32;
            headers[at + 8..at + 12].copy_from_slice(&body.to_le_bytes());
        }
        headers
    }

    #[test]
    fn the_search_among_headers_that_overlap_reads_a_bounded_number_of_bytes_for_each() {
        for size in [1 << 12, 1 << 14, 1 << 16] {
            let mut bytes = headers(size);
            let mark = bytes.len();
            bytes.extend(batch(9, &[b"new"]));
            let mut read = 0;
            let append = |sum: u32, part: &[u8]| {
                read += part.len();
                crc32c::crc32c_append(sum, part)
            };
            assert_eq!(find_by(&bytes, Seq(0), append), Some(mark));
            let (per_header, headers) = (2 * PART_BYTES, size / 16);
            assert!(read <= bytes.len() + (headers + 1) * per_header, "{read} bytes of {size}");
            assert!(read > headers * PART_BYTES / 2, "{read} bytes: the headers were looked at");
        }
    }

    #[test]
    fn the_search_finds_a_batch_wherever_it_lies_and_however_long_it_is() {
        for (before, body) in (0..1100).step_by(37).zip((9..5000).step_by(171)) {
            let record = vec![b'x'; body];
            let mut bytes = vec![MAGIC[0]; before];
            bytes.extend(batch(9, &[&record]));
            bytes.extend([0; 700]);
            assert_eq!(find(&bytes, Seq(9)), Some(before), "{body} bytes");
            bytes[before + HEADER_BYTES + body / 2] ^= 1;
            assert_eq!(find(&bytes, Seq(9)), None, "{body} bytes, damaged");
        }
    }
}
