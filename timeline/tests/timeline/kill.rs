//! Repeated `kill -9` of a real process on a real disk.

use std::{path::Path, thread, time::Duration};

use tempfile::TempDir;
use timeline::{Timeline, TimelineOptions};

use crate::support::{all, description, found, start, started_in};
use fastrand::Rng;

fn options() -> TimelineOptions {
    TimelineOptions { file_bytes: 100_000, grow_bytes: 20_000, ..TimelineOptions::default() }
}

/// Appends from four threads and prints the acknowledged events until it is killed.
#[test]
#[ignore = "the process that the test below kills"]
fn child() {
    let (log, _) = Timeline::open(&started_in(), options()).unwrap();
    thread::scope(|scope| {
        for producer in 0..4u8 {
            let log = &log;
            scope.spawn(move || {
                for number in 0.. {
                    let text = format!("{producer}-{number} {}", "x".repeat(number % 700));
                    let pair = [1, 2].map(|half| found(producer, &format!("{half} {text}")));
                    for appended in log.append_wait(pair.into()).unwrap() {
                        let event = log.get(appended.seq).unwrap().unwrap();
                        println!("ack {} {}", appended.seq, description(&event));
                    }
                }
            });
        }
    });
}

/// Runs the child for `time`, kills it and returns the acknowledged events as (seq, text).
fn live(dir: &Path, time: Duration) -> Vec<(u64, String)> {
    let (mut child, lines) = start("kill::child", dir);
    let reader = thread::Builder::new().spawn(move || {
        let acks = lines.map(Result::unwrap).filter_map(|line| {
            let (seq, text) = line.strip_prefix("ack ")?.split_once(' ')?;
            Some((seq.parse().unwrap(), text.to_owned()))
        });
        acks.collect::<Vec<(u64, String)>>()
    });
    thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut acks = reader.unwrap().join().unwrap();
    // The kill may cut the last line.
    acks.pop();
    acks
}

#[test]
fn kills_lose_alter_and_renumber_nothing() {
    let dir = TempDir::new().unwrap();
    let mut random = Rng::with_seed(7);
    let mut acknowledged = Vec::new();
    let mut kept = Vec::new();
    let cycles: u64 = clips::sized(60, 200);
    let mut cycle = 0;
    // More cycles if a slow machine appends few events.
    while cycle < cycles || kept.len() as u64 <= 5 * cycles {
        let time = Duration::from_millis(random.u64(..40));
        acknowledged.extend(live(dir.path(), time));
        let (log, _) = Timeline::open(dir.path(), options()).unwrap();
        let events = all(&log);
        assert_eq!(events[..kept.len()], kept, "cycle {cycle}: what was there changed");
        for (seq, text) in acknowledged.drain(..) {
            let event = events.get(seq as usize - 1);
            let found = event.map(description);
            assert_eq!(found.as_ref(), Some(&text), "cycle {cycle}: event {seq}");
        }
        for pair in events[kept.len()..].chunks(2) {
            let texts: Vec<String> = pair.iter().map(description).collect();
            assert_eq!(texts.len(), 2, "cycle {cycle}: half a batch");
            assert_eq!(texts[0][1..], texts[1][1..], "cycle {cycle}: half a batch");
        }
        kept = events;
        cycle += 1;
    }
}
