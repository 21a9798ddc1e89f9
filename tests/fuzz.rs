//! Fuzz targets for the parsers of outside bytes, with a stable compiler: the corpus as it is, and
//! broken in every way. The media worker's parsers have the same in `worker/src/fuzz.rs`.

mod body;
mod column;
mod form;
mod journal;
mod range;

use proptest::{prelude::*, sample::Index};

use crate::support::corpus::{breaks, broken, corpus};

#[test]
fn the_corpus_is_digested() {
    corpus("body").iter().for_each(|bytes| body::body(bytes));
    corpus("range").iter().for_each(|bytes| range::range(bytes));
    assert!(corpus("form").iter().all(|bytes| form::form(bytes) > Some(0)));
    for (place, bytes) in corpus("journal").iter().enumerate() {
        // One that is refused as it is would test nothing when it is broken.
        let head = journal::journal(bytes);
        assert!(head > Some(media::Seq(0)), "journal {place}: {head:?}");
    }
    assert!(corpus("column").iter().all(|bytes| column::column(bytes) > Some(0)));
}

proptest! {
    #[test]
    fn broken_requests_are_digested(seed in any::<Index>(), breaks in breaks()) {
        let broken = |name| broken(seed.get::<Vec<u8>>(&corpus(name)), &breaks);
        body::body(&broken("body"));
        range::range(&broken("range"));
        form::form(&broken("form"));
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
