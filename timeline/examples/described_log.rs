//! Makes a log with a million described frames of RUNS runs (default 1000) of the principal `bench`, for
//! measuring a server: `cargo run --release -p timeline --example described_log -- DIR [RUNS]`.

use std::{env, path::PathBuf, sync::mpsc};

use media::{RequestId, RunId, Score};
use timeline::{
    Event, FindingKind, FindingPayload, NewEvent, RunCreated, Timeline, TimelineError,
    TimelineOptions,
};

const DESCRIPTIONS: u64 = 1_000_000;
const BATCH: u64 = 100;
const WAITING: usize = 64;
const WORDS: [&str; 24] = [
    "A", "person", "in", "a", "red", "coat", "crosses", "the", "yard", "from", "left", "to",
    "right", "while", "two", "white", "vans", "wait", "near", "Straße", "gate", "at", "night",
    "slowly",
];

fn main() -> Result<(), TimelineError> {
    let dir = env::args_os().nth(1).map(PathBuf::from).expect("a directory for the log");
    let runs = env::args().nth(2).map_or(1000, |runs| runs.parse().expect("a number of runs"));
    let (log, _) = Timeline::open(&dir, TimelineOptions::default())?;
    let (done, acks) = mpsc::sync_channel(WAITING);
    let created: Vec<_> = (0..runs).map(created).collect();
    let described = (0..DESCRIPTIONS / BATCH).map(|group| {
        (group * BATCH..(group + 1) * BATCH)
            .map(|number| described(number, runs))
            .collect::<Vec<_>>()
    });
    for (group, batch) in std::iter::once(created).chain(described).enumerate() {
        let done = done.clone();
        log.append(batch, move |result| done.send(result.map(drop)).expect("main waits"));
        if group >= WAITING {
            acks.recv().expect("one ack an append")?;
        }
    }
    drop(done);
    acks.iter().collect()
}

fn run(number: u64) -> RunId {
    RunId::from_bytes(u128::from(number).to_be_bytes())
}

fn created(number: u64) -> NewEvent {
    let created = RunCreated {
        request_id: RequestId::from_bytes([0; 8]),
        mode: "balanced".to_owned(),
        model: None,
        principal_key: "bench".to_owned(),
        tenant_id: None,
    };
    NewEvent { run: run(number), event: Event::RunCreated(created) }
}

/// Returns an event with a description of about a hundred bytes, different for each `number`.
fn described(number: u64, runs: u64) -> NewEvent {
    let mut random = fastrand::Rng::with_seed(number);
    let mut description = String::new();
    while description.len() < 90 {
        description.push_str(WORDS[random.usize(..WORDS.len())]);
        description.push(' ');
    }
    description += &number.to_string();
    let finding = FindingPayload {
        frame_index: number / runs,
        pts_ms: (number / runs) as i64 * 33,
        confidence: Score::ONE,
        description,
        ..FindingPayload::default()
    };
    NewEvent { run: run(number % runs), event: Event::Found(FindingKind::Vlm, finding) }
}
