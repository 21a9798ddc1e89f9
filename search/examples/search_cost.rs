//! Cost of search on this machine: a million descriptions, in memory and in the cache file.
//!
//! `cargo run --release -p search --example search_cost`; every processor takes part in a scan.

use std::{collections::HashSet, thread, time::Instant};

use media::{RunId, Seq};
use search::{FoldedPattern, IndexLimits, SearchIndex};

const DESCRIPTIONS: u64 = 1_000_000;
const RUNS: u64 = 1000;
const ROUNDS: usize = 9;
const WORDS: [&str; 24] = [
    "A", "person", "in", "a", "red", "coat", "crosses", "the", "yard", "from", "left", "to",
    "right", "while", "two", "white", "vans", "wait", "near", "Straße", "gate", "at", "night",
    "slowly",
];

fn run(number: u64) -> RunId {
    RunId::from_bytes(u128::from(number).to_be_bytes())
}

/// About a hundred bytes, different each time.
fn text(number: u64) -> String {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    while text.len() < 90 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(WORDS[state as usize % WORDS.len()]);
        text.push(' ');
    }
    text + &number.to_string()
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    println!("{DESCRIPTIONS} descriptions, {RUNS} runs, {threads} threads, {ROUNDS} rounds");
    for (name, memory_bytes) in [("memory", 1 << 30), ("file", 8 << 20)] {
        let limits = IndexLimits { memory_bytes, chunk_bytes: 1 << 20 };
        let mut index = SearchIndex::new(limits, &dir.path().join("cache")).expect("a file");
        let started = Instant::now();
        for number in 0..DESCRIPTIONS {
            let (run, seq) = (run(number * RUNS / DESCRIPTIONS), Seq(number + 1));
            index.insert("alice", run, seq, &text(number)).expect("room on disk");
        }
        let (memory, file) = (index.memory_bytes() >> 20, index.file_bytes() >> 20);
        println!("{name}: built in {:?}, {memory} MiB memory, {file} MiB file", started.elapsed());
        for query in ["e", " ", "zebra", "STRASSE", "red coat", "the", "person in a 9", "999999"] {
            let mut times = Vec::new();
            let mut hits = 0;
            for _ in 0..ROUNDS {
                let runs: HashSet<RunId> = (0..RUNS).map(run).collect();
                let needle = FoldedPattern::new(query).expect("not empty");
                let started = Instant::now();
                let scan = index.scan("alice", runs, needle, 50);
                thread::scope(|scope| {
                    for _ in 0..threads {
                        let work = || scan.work().expect("readable");
                        thread::Builder::new().spawn_scoped(scope, work).expect("a thread");
                    }
                });
                hits = scan.result().total_hits;
                times.push(started.elapsed());
            }
            times.sort_unstable();
            let (median, worst) = (times[ROUNDS / 2], times[ROUNDS - 1]);
            println!("{name}: {query:?}: {hits} hits, median {median:?}, worst {worst:?}");
        }
    }
}
