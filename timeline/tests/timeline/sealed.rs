//! Sealed files of any bytes with valid checksums, and the claims of their footers.

use std::{collections::BTreeMap, fs, ops::ControlFlow, path::Path};

use media::{RequestId, RunId, Seq};
use timeline::{
    Event, EventMeta, NewEvent, RequestMarkerPayload, StoredEvent, Timeline, TimelineOptions, cat,
    verify,
};

const BATCH: [u8; 4] = [0xff, 0xfe, b'S', b'B'];
const BATCH_BYTES: usize = 32;
const RECORD_BYTES: usize = 44;
const FOOTER: &[u8] = b"SLFOOT\x01\xff";
const TRAILER_BYTES: usize = 48;

/// Checks a sealed file, with its checksums corrected, followed by an empty one.
///
/// Refused, or its events are the stored ones or reported as damaged, also after a compaction and a writer.
/// Returns the number of events of an intact file.
pub fn sealed(bytes: &[u8]) -> Option<usize> {
    let mut bytes = bytes.to_vec();
    let next = make_right(&mut bytes)?;
    let dir = tempfile::tempdir().expect("a directory");
    let journal = dir.path().join("journal");
    fs::create_dir(&journal).expect("made");
    let mut successor = bytes.get(..32)?.to_vec();
    successor[8..12].copy_from_slice(&1_u32.to_le_bytes());
    successor[16..24].copy_from_slice(&next.to_le_bytes());
    put_checksum(&mut successor, 12);
    for (first, bytes) in [(1, &bytes), (next.max(2), &successor)] {
        fs::write(journal.join(format!("{first:020}.journal")), bytes).expect("written");
    }
    let report = verify(dir.path()).expect("it is there");
    let is_sound = report.problems.is_empty() && report.footers_missing == 0;
    let opened = Timeline::open_read_only(dir.path());
    assert!(!is_sound || opened.is_ok(), "{:?}", opened.err());
    let read = events(&opened.ok()?.0);
    let mut scanned = BTreeMap::new();
    let is_scanned = cat(dir.path(), |event| {
        scanned.insert(event.head.seq, event);
        ControlFlow::Continue(())
    });
    if is_scanned.is_ok() {
        assert!(read.iter().flatten().all(|event| scanned.get(&event.head.seq) == Some(event)));
    }
    assert!(!is_sound || read.iter().flatten().eq(scanned.values()), "{scanned:?}");
    goes_on(dir.path(), &read);
    is_sound.then_some(read.len())
}

/// Returns every event of `log`; `None` if it is damaged.
fn events(log: &Timeline) -> Vec<Option<StoredEvent>> {
    let mut heads: Vec<EventMeta> = Vec::new();
    log.scan(|head| heads.push(head));
    heads.iter().map(|head| log.get(head.seq).ok().flatten()).collect()
}

/// Opens a log for writing and checks that it keeps `before` after another event and a compaction.
fn goes_on(dir: &Path, before: &[Option<StoredEvent>]) {
    let options =
        || TimelineOptions { grow_bytes: 4096, spare_bytes: 0, ..TimelineOptions::default() };
    let (log, _) = Timeline::open(dir, options()).expect("it was open for reading");
    assert_eq!(events(&log), before);
    let event = Event::KeepaliveRefreshed(RequestMarkerPayload {
        request_id: RequestId::from_bytes([1; 8]),
    });
    let appended = log.append_wait(vec![NewEvent { run: RunId::from_bytes([1; 16]), event }]);
    let is_full = log.head() == Seq(timeline::EVENTS_MAX);
    assert!(appended.is_ok() || is_full, "{appended:?}");
    let purged = before.iter().flatten().map(|event| event.head.run).take(1).collect();
    let compacted = log.compact(&purged, &mut |_| ControlFlow::Continue(())).is_ok();
    log.close();
    drop(log);
    let (log, _) = Timeline::open(dir, options()).expect("it was open before");
    for event in before.iter().flatten() {
        let is_gone = compacted && purged.contains(&event.head.run);
        assert_eq!(log.get(event.head.seq).ok().flatten().as_ref(), (!is_gone).then_some(event));
    }
}

/// Corrects the checksums of a file, if it has room for them; returns the first number of the next file.
fn make_right(bytes: &mut [u8]) -> Option<u64> {
    let is_compacted = word(bytes, 8)? == 2;
    let header = if is_compacted { 48 } else { 32 };
    put_checksum(bytes.get_mut(..header)?, 12);
    let (mut at, mut count) = (header, 0);
    while bytes.get(at..at + 4) == Some(&BATCH) && word(bytes, at + 28).is_some() {
        let end = at + BATCH_BYTES + word(bytes, at + 8)? as usize;
        let Some(batch) = bytes.get_mut(at..end) else { break };
        let mut record = BATCH_BYTES;
        while let Some(body) = word(batch, record) {
            let next = record + RECORD_BYTES + body as usize;
            let Some(bytes) = batch.get_mut(record..next) else { break };
            put_checksum(bytes, 4);
            (record, count) = (next, count + 1);
        }
        let sum = crc32c::crc32c(&batch[8..]);
        batch[4..8].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
    let trailer =
        bytes.len().checked_sub(TRAILER_BYTES).filter(|at| bytes[*at..].starts_with(FOOTER));
    let Some(trailer) = trailer else { return Some(1 + count) };
    let next = long(bytes, trailer + 40);
    let entry = if next == 0 { 16 } else { 20 };
    let [runs, entries] = [12, 16].map(|at| word(bytes, trailer + at).unwrap_or_default() as usize);
    if let Some(start) = trailer.checked_sub(runs * 16 + entries * entry) {
        put_checksum(&mut bytes[start..], trailer - start + 8);
    }
    Some(if next == 0 { long(bytes, trailer + 24).wrapping_add(entries as u64) } else { next })
}

/// Writes the checksum of all other `bytes` at `at`.
fn put_checksum(bytes: &mut [u8], at: usize) {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..at]), &bytes[at + 4..]);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let words = [0, 4].map(|after| u64::from(word(bytes, at + after).unwrap_or_default()));
    words[0] | words[1] << 32
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;

    fn corpus() -> [Vec<u8>; 2] {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/sealed");
        ["plain", "compacted"].map(|name| fs::read(corpus.join(name)).unwrap())
    }

    #[test]
    fn the_corpus_is_sound() {
        assert_eq!(corpus().map(|bytes| sealed(&bytes)), [Some(14), Some(8)]);
    }

    /// Generates numbers near a limit of another number, or any.
    fn numbers() -> impl Strategy<Value = u32> {
        prop_oneof![0..64_u32, any::<u32>(), Just(u32::MAX), 2000..2400_u32]
    }

    proptest! {
        // Each case writes files and waits for them.
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn a_word_of_a_footer_or_a_header_may_be_any(
            which in any::<Index>(),
            words in vec((any::<Index>(), numbers()), 1..4),
        ) {
            let mut bytes = corpus()[which.index(2)].clone();
            let places: Vec<usize> = (0..12).chain(bytes.len() / 4 - 90..bytes.len() / 4).collect();
            for (place, number) in words {
                let at = bytes.len() % 4 + 4 * places[place.index(places.len())];
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            sealed(&bytes);
        }
    }
}
