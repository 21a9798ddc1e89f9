//! Fuzz targets for the parsers of outside bytes, with a stable compiler: the corpus as it is, and
//! broken in every way. The media worker's parsers have the same in `worker/src/fuzz.rs`.

mod body;
mod column;
mod journal;

use std::path::Path;

use proptest::{collection::vec, prelude::*, sample::Index};

fn files(dir: &Path) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = std::fs::read_dir(dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| std::fs::read(entry.expect("an entry").path()).expect("readable"))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{}: no corpus", dir.display());
    found
}

/// Bytes that a parser is there for.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name))
}

/// Places and what happens there.
fn breaks() -> impl Strategy<Value = Vec<(Index, u8, u8)>> {
    vec((any::<Index>(), 0_u8..4, any::<u8>()), 1..12)
}

fn broken(whole: &[u8], breaks: &[(Index, u8, u8)]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for (at, how, byte) in breaks {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = *byte,
            1 => bytes.insert(at, *byte),
            2 => drop(bytes.remove(at)),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

#[test]
fn the_corpus_is_digested() {
    corpus("body").iter().for_each(|bytes| body::body(bytes));
    for (place, bytes) in corpus("journal").iter().enumerate() {
        // One that is refused as it is would test nothing when it is broken.
        let head = journal::journal(bytes);
        assert!(head > Some(media::Seq(0)), "journal {place}: {head:?}");
    }
    assert!(corpus("column").iter().all(|bytes| column::column(bytes) > Some(0)));
}

proptest! {
    #[test]
    fn broken_bodies_are_digested(seed in any::<Index>(), breaks in breaks()) {
        let corpus = corpus("body");
        body::body(&broken(&corpus[seed.index(corpus.len())], &breaks));
    }
}

proptest! {
    // Each writes files and waits for them.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn broken_journals_are_digested(seed in any::<Index>(), breaks in breaks()) {
        let corpus = corpus("journal");
        journal::journal(&broken(&corpus[seed.index(corpus.len())], &breaks));
    }
}
