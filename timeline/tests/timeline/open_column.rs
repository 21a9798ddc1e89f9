//! Open columns with any bytes in their file, and with a killed writer.

use media::{JobId, RunId};
use timeline::{OpenColumns, TimelineError};

const RUN: RunId = RunId::from_bytes([2; 16]);
const JOB: JobId = JobId::from_bytes([1; 16]);

/// Checks the file of an open column.
///
/// Refused (with its directory if the version is unknown), or read the same each time; its rows and the bytes
/// after them fit into the file. Returns the number of rows.
pub fn open_column(bytes: &[u8]) -> Option<usize> {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join(format!("{RUN}.{JOB}")), bytes).expect("written");
    let columns = match OpenColumns::open(dir.path()) {
        Err(TimelineError::UnknownFormat { version, .. }) => {
            assert_eq!(bytes[7], version as u8);
            return None;
        }
        opened => opened.expect("opened"),
    };
    assert_eq!(columns.all().expect("listed"), [(RUN, JOB)]);
    let read = || {
        let mut rows = columns.read(RUN, JOB).ok()?.expect("there");
        let head = rows.head();
        let signals: Vec<_> = rows.by_ref().collect();
        Some((head, signals, rows.end().expect("a sound disk")))
    };
    let found = read();
    assert_eq!(found, read());
    let (_, signals, cut) = found?;
    assert!(signals.len() * 52 + (cut.bytes as usize) < bytes.len());
    Some(signals.len())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::{collection::vec, prelude::*, sample::Index};
    use tempfile::TempDir;

    use super::*;
    use fastrand::Rng;

    use crate::support::{signal, start, started_in};

    fn whole() -> Vec<u8> {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/open_column");
        std::fs::read(corpus.join("two_blocks")).unwrap()
    }

    #[test]
    fn the_corpus_is_digested() {
        assert_eq!(open_column(&whole()), Some(5));
        let mut later = whole();
        later[7] = 168;
        assert_eq!(open_column(&later), None);
    }

    proptest! {
        #[test]
        fn broken_columns_are_digested(
            breaks in vec((any::<Index>(), 0..4u8, any::<u8>()), 1..12)
        ) {
            let mut bytes = whole();
            for (at, how, byte) in breaks {
                let at = at.index(bytes.len() + 1);
                match how {
                    0 if at < bytes.len() => bytes[at] = byte,
                    1 if at < bytes.len() => drop(bytes.remove(at)),
                    2 => bytes.truncate(at),
                    _ => bytes.insert(at, byte),
                }
            }
            open_column(&bytes);
        }
    }

    /// Records, and prints the number of durable rows, until it is killed.
    #[test]
    #[ignore = "the process that the test below kills"]
    fn child() {
        let columns = OpenColumns::open(&started_in()).unwrap();
        let mut column = columns.begin(RUN, JOB, []).unwrap();
        for index in 0.. {
            column.push(&signal(index)).unwrap();
            if index % 101 == 0 {
                column.flush().unwrap();
                println!("durable {}", index + 1);
            }
        }
    }

    /// Runs the child until it has reported `flushes` flushes; returns the least number of durable rows.
    fn kill_after(dir: &Path, flushes: u64) -> usize {
        let (mut child, lines) = start("open_column::tests::child", dir);
        let lines = lines.map(Result::unwrap);
        let durable = lines.filter_map(|line| line.strip_prefix("durable ")?.parse().ok());
        let durable = durable.take(flushes as usize).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        durable
    }

    #[test]
    fn a_kill_keeps_every_row_that_was_flushed() {
        let mut random = Rng::with_seed(11);
        for cycle in 0..clips::sized(10, 40) {
            let dir = TempDir::new().unwrap();
            let durable = kill_after(dir.path(), 1 + random.u64(..60));
            let columns = OpenColumns::open(dir.path()).unwrap();
            let mut rows = columns.read(RUN, JOB).unwrap().unwrap();
            let told = rows.by_ref().zip(0..);
            let found = told.inspect(|(row, index)| assert_eq!(*row, signal(*index))).count();
            assert!(found >= durable, "cycle {cycle}: {found} of {durable}");
            assert!(!rows.end().unwrap().is_damaged, "cycle {cycle}");
        }
    }
}
