//! Tests of the index against a naive search: random texts, runs and queries.
#![allow(missing_docs)]

use std::collections::HashSet;

use media::{RunId, Seq};
use proptest::{collection::vec, prelude::*, sample::select};
use search::{FoldedPattern, IndexLimits, ScanResult, SearchIndex, excerpt};

/// Pieces of texts and queries, between bars; folding changes the length of many.
const PIECES: &str = "a|A|b| |k|\u{212a}|K|ß|ss|SS|ẞ|i|I|İ|ı|\u{307}|σ|ς\
    |Σ|ﬃ|ffi|ΐ|ι\u{308}\u{301}|é|e\u{301}|日|本|🚗|\0|Ж|ж|ǆ|ǅ";

fn pieces(count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    vec(select(PIECES.split('|').collect::<Vec<_>>()), count).prop_map(|pieces| pieces.concat())
}

#[derive(Clone, Debug)]
struct Description {
    owner: &'static str,
    run: RunId,
    text: String,
}

fn description() -> impl Strategy<Value = Description> {
    (select(&["alice", "bob"][..]), 0..4_u8, pieces(1..12)).prop_map(|(owner, run, text)| {
        // Runs of different owners have different ids.
        let run = RunId::from_bytes([run * 2 + u8::from(owner == "bob"); 16]);
        Description { owner, run, text }
    })
}

fn index_of(all: &[Description], limits: IndexLimits, dir: &std::path::Path) -> SearchIndex {
    let mut index = SearchIndex::new(limits, &dir.join("cache")).expect("a file");
    for (at, description) in all.iter().enumerate() {
        let seq = Seq(at as u64 * 3 + 1);
        let Description { owner, run, text } = description;
        index.insert(owner, *run, seq, text).expect("room on disk");
    }
    index
}

fn fold(text: &str) -> String {
    caseless::default_case_fold_str(text)
}

fn naive(
    all: &[Description],
    owner: &str,
    runs: &HashSet<RunId>,
    query: &str,
    limit: usize,
) -> ScanResult {
    let mut found = ScanResult::default();
    for (at, description) in all.iter().enumerate() {
        if description.owner != owner || !runs.contains(&description.run) {
            continue;
        }
        found.scanned += 1;
        if fold(&description.text).contains(&fold(query)) {
            found.total_hits += 1;
            if found.hits.len() < limit {
                found.hits.push(Seq(at as u64 * 3 + 1));
            }
        }
    }
    found
}

fn search(
    index: &SearchIndex,
    owner: &str,
    runs: &HashSet<RunId>,
    query: &str,
    limit: usize,
) -> ScanResult {
    let pattern = FoldedPattern::new(query).expect("not empty");
    let scan = index.scan(owner, runs.clone(), pattern, limit);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            std::thread::Builder::new()
                .spawn_scoped(scope, || scan.work().expect("readable"))
                .expect("a thread");
        }
    });
    scan.result()
}

/// All chunks in memory, some in the file, all in the file.
const LIMITS: [IndexLimits; 3] = [
    IndexLimits { memory_bytes: 1 << 20, chunk_bytes: 64 },
    IndexLimits { memory_bytes: 2000, chunk_bytes: 64 },
    IndexLimits { memory_bytes: 0, chunk_bytes: 64 },
];

proptest! {
    #[test]
    fn the_result_equals_the_naive_one(
        all in vec(description(), 0..120),
        queries in vec(pieces(1..4), 1..6),
        runs in vec(0..8_u8, 0..8),
        removed in vec(0..8_u8, 0..3),
        limit in 1..9_usize,
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let set = |runs: &[u8]| runs.iter().map(|run| RunId::from_bytes([*run; 16])).collect();
        let (runs, removed): (HashSet<RunId>, HashSet<RunId>) = (set(&runs), set(&removed));
        for limits in LIMITS {
            let mut index = index_of(&all, limits, dir.path());
            for owner in ["alice", "bob", "nobody"] {
                for query in &queries {
                    let expected = naive(&all, owner, &runs, query, limit);
                    prop_assert_eq!(search(&index, owner, &runs, query, limit), expected);
                }
            }
            for owner in ["alice", "bob"] {
                index.remove(owner, &removed).expect("room on disk");
            }
            let mut left = runs.clone();
            left.retain(|run| !removed.contains(run));
            for query in &queries {
                let expected = naive(&all, "alice", &left, query, limit);
                prop_assert_eq!(search(&index, "alice", &runs, query, limit), expected);
            }
        }
    }

    #[test]
    fn an_excerpt_is_a_part_of_the_text_that_has_the_needle(
        before in pieces(0..90), query in pieces(1..5), after in pieces(0..90),
    ) {
        let text = format!("{before}{query}{after}");
        let pattern = FoldedPattern::new(&query).expect("not empty");
        let found = excerpt(&text, &pattern);
        prop_assert!(text.contains(found));
        prop_assert!(fold(found).contains(&fold(&query)), "{found:?} lacks {query:?}");
        prop_assert!(found.len() <= 2 * search::CONTEXT_BYTES + 3 * fold(&query).len() + 8);
    }
}

#[test]
fn what_is_removed_leaves_memory_and_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |number: u8| RunId::from_bytes([number; 16]);
    let all: Vec<Description> = (0..200)
        .map(|number| Description { owner: "alice", run: run(number), text: "x".repeat(100) })
        .collect();
    let mut index =
        index_of(&all, IndexLimits { memory_bytes: 8000, chunk_bytes: 1000 }, dir.path());
    assert!(index.memory_bytes() <= 8000 && index.file_bytes() > 10_000, "both are used");
    assert!(!dir.path().join("cache").exists(), "the file has no name");
    let most: HashSet<RunId> = (0..199).map(run).collect();
    index.remove("alice", &most).expect("room on disk");
    assert!(index.memory_bytes() < 1000, "{}", index.memory_bytes());
    assert_eq!(index.file_bytes(), 0);
    let rest = search(&index, "alice", &HashSet::from([run(199)]), "X", 9);
    assert_eq!((rest.scanned, rest.total_hits), (1, 1));
    index.remove("alice", &HashSet::from([run(199)])).expect("room on disk");
    assert_eq!(index.memory_bytes(), 0);
}

#[test]
fn a_scan_sees_the_index_as_it_was_when_it_began() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = RunId::from_bytes([1; 16]);
    let all = vec![Description { owner: "alice", run, text: "a red car".to_owned() }; 50];
    for limits in LIMITS {
        let mut index = index_of(&all, limits, dir.path());
        let pattern = FoldedPattern::new("RED").expect("not empty");
        let scan = index.scan("alice", HashSet::from([run]), pattern, 500);
        index.insert("alice", run, Seq(1000), "another red car").expect("room on disk");
        index.remove("alice", &HashSet::from([run])).expect("room on disk");
        assert_eq!(index.memory_bytes(), 0, "{limits:?}");
        scan.work().expect("readable");
        assert_eq!(scan.result().total_hits, 50, "{limits:?}");
    }
}
