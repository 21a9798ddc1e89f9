//! Flipped bits: synced bytes are intact, or their damage is reported by file and offset.

use std::{fs, path::Path};

use media::{ErrorKind, Seq};
use timeline::{StoredEvent, Timeline, TimelineError, verify};

use crate::{
    compact::{open, purge},
    disk::{Fault, SimDisk},
    support::{all, found, journal_files, new_log, run, small, texts},
};
use fastrand::Rng;

#[test]
fn any_bit_flipped_in_the_file_being_written_is_refused_also_after_a_kill() {
    let disk = SimDisk::default();
    let log = open(&disk).unwrap();
    for text in ["one", "two", "three"] {
        log.append_wait(vec![found(1, text), found(2, "beside")]).unwrap();
    }
    // Not closed: the process dies after the last acknowledgement.
    let disk = disk.after_kill();
    let name = disk.names().pop().unwrap();
    let bytes = disk.bytes(&name);
    let synced = last_batch_end(&bytes);
    let open_flipped = |bit: usize| {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let copy = SimDisk::default();
        copy.set_bytes(&name, damaged);
        open(&copy)
    };
    for bit in 0..synced * 8 {
        match open_flipped(bit).map(drop) {
            Err(TimelineError::Damaged { file, offset, .. }) => {
                assert_eq!(file, Path::new("/sim").join(&name));
                assert!(offset <= bit as u64 / 8, "bit {bit} told at offset {offset}");
            }
            // The header's checksum is verified before the version.
            other => panic!("bit {bit}: {other:?}"),
        }
    }
    for bit in synced * 8..(synced + MARK_BYTES) * 8 {
        let log = open_flipped(bit).unwrap();
        assert_eq!(texts(&log), ["one", "beside", "two", "beside", "three", "beside"]);
    }
}

const MARK_BYTES: usize = 32;

/// Returns the offset of the mark, the last content of the file.
fn last_batch_end(bytes: &[u8]) -> usize {
    let magic = [0xff, 0xfe, b'S', b'B'];
    let mark = bytes.windows(4).rposition(|window| window == magic).unwrap();
    assert!(bytes[mark + MARK_BYTES..].iter().all(|byte| *byte == 0));
    mark
}

#[test]
fn thousands_of_bits_flipped_in_sealed_files_are_all_told() {
    let (dir, log) = new_log();
    for number in 0..40u8 {
        log.append_wait(vec![found(number % 3, &format!("event {number} {}", "x".repeat(90)))])
            .unwrap();
    }
    let original = all(&log);
    drop(log);
    let files = flip_sealed_files(dir.path(), &original, 2000);
    assert!(files >= 2, "{files}");
    let (log, _) = Timeline::open(dir.path(), small()).unwrap();
    purge(&log, &[1]).unwrap();
    drop(log);
    let kept: Vec<_> = original.into_iter().filter(|event| event.head.run != run(1)).collect();
    assert!(flip_sealed_files(dir.path(), &kept, 2000) >= 1);
}

/// Flips bits in the sealed files of the log in `dir`, one at a time; returns the number of files.
fn flip_sealed_files(dir: &Path, original: &[StoredEvent], flips: u32) -> usize {
    let files = journal_files(dir);
    let sealed = &files[..files.len() - 1];
    let mut random = Rng::with_seed(1);
    for _ in 0..flips {
        let file = &sealed[random.u64(..sealed.len() as u64) as usize];
        let mut bytes = fs::read(file).unwrap();
        let bit = random.u64(..bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(file, &bytes).unwrap();
        let context = format!("bit {bit} of {}", file.display());
        let report = verify(dir).unwrap();
        let told = !report.problems.is_empty() || report.footers_missing == 1;
        assert!(told, "{context}: verify finds nothing");
        match Timeline::open_read_only(dir) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::DataLoss, "{context}"),
            Ok((log, _)) => {
                for expected in original {
                    match log.get(expected.head.seq) {
                        Ok(found) => assert_eq!(found.as_ref(), Some(expected), "{context}"),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::DataLoss, "{context}"),
                    }
                }
            }
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(file, &bytes).unwrap();
    }
    assert!(verify(dir).unwrap().problems.is_empty());
    sealed.len()
}

/// Returns a closed log of 40 events over several journal files.
fn filled() -> (SimDisk, Timeline) {
    let disk = SimDisk::default();
    let log = open(&disk).unwrap();
    for _ in 0..40 {
        log.append_wait(vec![found(1, &"x".repeat(200))]).unwrap();
    }
    log.close();
    (disk, log)
}

#[test]
fn a_missing_file_is_named() {
    let names = filled().0.names();
    assert!(names.len() >= 3, "{names:?}");
    for (position, missing) in names.iter().enumerate() {
        let (from, to) = (filled().0, SimDisk::default());
        for name in names.iter().filter(|name| *name != missing) {
            to.set_bytes(name, from.bytes(name));
        }
        let error = open(&to).map(drop).unwrap_err();
        let told = error.to_string();
        let neighbour = if position == 0 { 1 } else { position - 1 };
        assert!(told.contains(&names[neighbour]), "{missing} is missing: {told}");
        assert_eq!(error.kind(), ErrorKind::DataLoss);
    }
}

#[test]
fn a_damaged_footer_is_made_again() {
    let (disk, log) = filled();
    let before = all(&log);
    let name = disk.names().remove(0);
    let sound = disk.bytes(&name);
    let mut bytes = sound.clone();
    let last = bytes.len() - 60;
    bytes[last] ^= 1;
    disk.set_bytes(&name, bytes);
    disk.set_fault(Some(Fault::Full(last as u64 - 100)));
    let (log, recovery) = disk.open_log(small()).unwrap();
    assert_eq!((recovery.footers_rebuilt, recovery.events), (1, 40), "on a full disk");
    assert_eq!(all(&log), before);
    drop(log);
    disk.set_fault(None);
    let (log, recovery) = disk.open_log(small()).unwrap();
    assert_eq!((recovery.footers_rebuilt, recovery.events), (1, 40));
    assert_eq!(all(&log), before);
    assert_eq!(disk.bytes(&name), sound);
    assert_eq!(log.head(), Seq(40));
}
