//! A file after a power cut: what was synced, and any part of the changes since.
//!
//! A cut draws which sectors of each change reached the platter, which are torn at some byte, and what a file that grew shows where
//! nothing was written: zeros, or bytes of files that were removed.

use std::ops::Range;

use fastrand::Rng;

pub const SECTOR: usize = 512;
pub type Sector = [u8; SECTOR];

/// A change of a file since its last sync.
#[derive(Clone)]
pub enum Change {
    Write(usize, Vec<u8>),
    Size(usize),
}

#[derive(Clone, Default)]
pub struct Content {
    /// Bytes that the operating system shows.
    pub bytes: Vec<u8>,
    /// Bytes that the platter has.
    pub durable: Vec<u8>,
    /// Changes that lead from the one to the other, the oldest first.
    pub unsynced: Vec<Change>,
}

impl Content {
    /// Makes a write, which no sync has followed yet.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
        self.unsynced.push(Change::Write(offset, bytes.to_vec()));
    }
}

/// Any part of the changes on top of what was synced: sectors of an older change without those of a newer one, and the other
/// way round.
pub fn survivor(content: &Content, freed: &[Sector], random: &mut Rng) -> Content {
    let mut bytes = content.durable.clone();
    // Disks tend to lose all or little: vary how much survives.
    let percent = [0, 10, 50, 50, 90][random.u64(..5) as usize];
    for change in &content.unsynced {
        match change {
            Change::Size(size) if random.u64(..100) < percent => bytes.resize(*size, 0),
            Change::Size(_) => {}
            Change::Write(offset, written) => {
                write_some(&mut bytes, (*offset, written), percent, freed, random)
            }
        }
    }
    Content { durable: bytes.clone(), bytes, unsynced: Vec::new() }
}

/// Has some sectors of a write reach `bytes`, some of them torn.
fn write_some(
    bytes: &mut Vec<u8>,
    (offset, written): (usize, &[u8]),
    percent: u64,
    freed: &[Sector],
    random: &mut Rng,
) {
    // The size that it gives the file may survive without its data.
    if random.u64(..100) < percent {
        grow(bytes, offset + written.len(), freed, random);
    }
    let mut at = offset;
    while at < offset + written.len() {
        let sector_end = (at / SECTOR + 1) * SECTOR;
        let end = sector_end.min(offset + written.len());
        if random.u64(..100) < percent {
            let torn =
                (random.u64(..100) < 10).then(|| at + random.u64(..(end - at) as u64) as usize);
            let part: Range<usize> = match torn {
                Some(cut) if random.u64(..100) < 50 => cut..end,
                Some(cut) => at..cut,
                None => at..end,
            };
            grow(bytes, part.end, freed, random);
            bytes[part.clone()].copy_from_slice(&written[part.start - offset..part.end - offset]);
        }
        at = end;
    }
}

/// Makes `bytes` as long as `size`, with zeros or freed sectors where nothing is written.
fn grow(bytes: &mut Vec<u8>, size: usize, freed: &[Sector], random: &mut Rng) {
    while bytes.len() < size {
        let at = bytes.len();
        let end = size.min((at / SECTOR + 1) * SECTOR);
        bytes.resize(end, 0);
        if !freed.is_empty() && at.is_multiple_of(SECTOR) && random.u64(..100) < 50 {
            let stale = freed[random.u64(..freed.len() as u64) as usize];
            bytes[at..end].copy_from_slice(&stale[..end - at]);
        }
    }
}
