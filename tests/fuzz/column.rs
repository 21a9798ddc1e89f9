//! Properties of a column of any bytes under checksums that are right: no other is read.

use std::fs;

use media::BlobHash;
use timeline::{Signals, Timeline, TimelineOptions};

/// Magic of a column, and bytes of a row; of those of before there was activity.
const ROWS: [(&[u8], usize); 2] = [(b"SLSIGNL\x03", 64), (b"SLSIGNL\x01", 52)];

/// A column of one block, which ends with its checksum.
///
/// It is refused, or read the same each time. Returns the number of signals.
pub fn column(bytes: &[u8]) -> Option<usize> {
    let (_, row) = ROWS.into_iter().find(|(magic, _)| bytes.starts_with(magic))?;
    let count = bytes.len().checked_sub(8 + 4)? / row;
    let mut bytes = bytes[..8 + count * row].to_vec();
    bytes.extend(crc32c::crc32c(&bytes[8..]).to_le_bytes());
    let dir = tempfile::tempdir().expect("a directory");
    let options =
        TimelineOptions { grow_bytes: 64 << 10, spare_bytes: 0, ..TimelineOptions::default() };
    let (log, _) = Timeline::open(dir.path(), options).expect("a new log");
    let hash = BlobHash::from_bytes([1; 32]);
    fs::write(dir.path().join("columns").join(hash.to_string()), bytes).expect("written");
    let signals = Signals::Column { hash, count: count as u64 };
    let read = || log.signals(&signals).ok();
    let found = read();
    assert_eq!(found, read());
    let found = found?.len();
    assert_eq!(found, count);
    Some(found)
}
