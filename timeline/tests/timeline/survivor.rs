//! File after a power cut: the synced bytes, and any part of the changes since.
//!
//! A cut draws at random which sectors of each change reached the disk and which are torn at some byte, and,
//! where nothing was written in a file that grew, zeros or bytes of removed files.

use std::ops::Range;

use fastrand::Rng;

pub const SECTOR: usize = 512;
pub type Sector = [u8; SECTOR];
/// Most freed sectors kept.
const FREED_MAX: usize = 256;

/// Adds the sectors of a removed or truncated file to `freed`.
pub fn free(freed: &mut Vec<Sector>, bytes: &[u8]) {
    let sectors = bytes.as_chunks::<SECTOR>().0.iter().filter(|sector| **sector != [0; SECTOR]);
    freed.extend(sectors);
    freed.drain(..freed.len().saturating_sub(FREED_MAX));
}

/// Change of a file since its last sync.
#[derive(Clone)]
pub enum Change {
    Write(usize, Vec<u8>),
    Size(usize),
}

#[derive(Clone, Default)]
pub struct Content {
    /// Bytes that the operating system shows.
    pub bytes: Vec<u8>,
    /// Bytes on the disk.
    pub durable: Vec<u8>,
    /// Changes from `durable` to `bytes`, oldest first.
    pub unsynced: Vec<Change>,
}

impl Content {
    /// Makes an unsynced write.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
        self.unsynced.push(Change::Write(offset, bytes.to_vec()));
    }
}

/// Applies any part of the changes to the synced bytes: sectors of an older change may survive without those
/// of a newer one, and vice versa.
pub fn survivor(content: &Content, freed: &[Sector], random: &mut Rng) -> Content {
    let mut bytes = content.durable.clone();
    // Varies how much survives: disks tend to lose all or little.
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

/// Writes some sectors of a write to `bytes`, some of them torn.
fn write_some(
    bytes: &mut Vec<u8>,
    (offset, written): (usize, &[u8]),
    percent: u64,
    freed: &[Sector],
    random: &mut Rng,
) {
    // The new size may survive without its data.
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

/// Extends `bytes` to `size`, with zeros or freed sectors.
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
