//! The mirror of all events in a real PostgreSQL: four nodes, an outage, and what a fleet reads of it.

use std::{
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use media::{EventType, RunId};
use serde_json::{Value, json};
use sightline::deliver::mirror::Scope;
use timeline::{Event, NewEvent, RunDeleted, RunLabelled};

use crate::{
    api::mirror::Own,
    support::{
        ALICE, BOB, Server, Setup, assert_has, postgres::Postgres, seed, shared, wait_until,
        whip::sightline,
    },
};

const NODES: u8 = 4;
const IS_THERE: &str = "SELECT to_regclass('sightline_log') IS NOT NULL";

fn session(run: RunId, principal: &str) -> NewEvent {
    NewEvent { run, event: seed::session_created(principal) }
}

fn described(run: RunId, description: &str) -> NewEvent {
    NewEvent { run, event: seed::described(description) }
}

fn marker(run: RunId, at: u64) -> NewEvent {
    NewEvent { run, event: Event::MarkerEmitted(seed::marker(run, EventType::SceneCut, at)) }
}

/// A tenth of a second of a node's events, one in five a description.
fn batch(run: RunId, first: u64, count: u64) -> Vec<NewEvent> {
    const WORDS: [&str; 8] =
        ["a van", "two people", "a forklift", "the gate", "a box", "a dog", "rain", "a red truck"];
    let event = |at: u64| match at % 5 {
        0 => {
            let [one, two] = [WORDS[(at / 5 % 8) as usize], WORDS[(at / 40 % 8) as usize]];
            described(run, &format!("{one} beside {two}, frame {at}: nothing else moves here"))
        }
        _ => marker(run, at),
    };
    (first..first + count).map(event).collect()
}

/// Four nodes at a pace, an outage, and the time that catching up takes; `make test-long` has ten minutes at 10,000
/// events a second, and an outage of one.
#[tokio::test(flavor = "multi_thread")]
async fn four_nodes_are_mirrored_whole_through_an_outage() {
    let mut postgres = Postgres::start();
    let nodes: Vec<Own> = (0..NODES).map(|_| Own::start(Scope::All, &postgres.url())).collect();
    let (batches, size, outage_s) = clips::sized((40, 50, 1), (6000, 250, 60));
    postgres.wait_for(IS_THERE, "t");
    let (started, behind) = (Instant::now(), AtomicU64::new(0));
    let lag = || nodes.iter().map(|node| node.metrics.mirror_lag.get()).max().unwrap_or(0);
    let failures = || nodes.iter().map(|node| node.metrics.mirror_failures.get()).sum::<u64>();
    let copied = || nodes.iter().map(|node| node.metrics.mirrored.get()).sum::<u64>();
    thread::scope(|scope| {
        let append = |(node, number): (&Own, u8)| {
            let run = RunId::from_bytes([number + 1; 16]);
            node.log.append_wait(vec![session(run, "alice")]).expect("appended");
            for tick in 0..batches {
                let due = Duration::from_millis(100 * tick);
                thread::sleep(due.saturating_sub(started.elapsed()));
                node.log.append_wait(batch(run, tick * size, size)).expect("appended");
            }
        };
        let appending: Vec<_> =
            nodes.iter().zip(0..NODES).map(|one| scope.spawn(move || append(one))).collect();
        let half = Duration::from_millis(50 * batches);
        while started.elapsed() < half {
            thread::sleep(Duration::from_millis(100));
            behind.fetch_max(lag().unsigned_abs(), Relaxed);
        }
        println!(
            "before the outage, {:?}: {} events, most lag {behind:?} s, failures {}",
            started.elapsed(),
            copied(),
            failures()
        );
        postgres.kill();
        thread::sleep(Duration::from_secs(outage_s));
        postgres.run();
        let back = Instant::now();
        appending.into_iter().for_each(|one| one.join().expect("appended"));
        println!("appended in {:?}, failures {}", started.elapsed(), failures());
        // A batch whose answer was lost is there and counted by nobody.
        let there = || {
            let sum = postgres.sql("SELECT coalesce(sum(seq), 0) FROM sightline_log_progress");
            sum.parse().expect("a number")
        };
        wait_until_there(&there, u64::from(NODES) * (batches * size + 1));
        println!("all copied {:?} after the outage", back.elapsed());
    });
    let count = batches * size + 1;
    let whole = "SELECT count(*), min(count), max(count), min(of_seqs), max(last) FROM (SELECT count(*), \
         count(DISTINCT seq) AS of_seqs, max(seq) AS last FROM sightline_log GROUP BY node_id) AS node";
    assert_eq!(postgres.sql(whole), format!("4|{count}|{count}|{count}|{count}"));
    let runs = "SELECT count(*), min(status), max(status), min(principal) FROM sightline_runs";
    assert_eq!(postgres.sql(runs), "4|processing|processing|alice");
    let days = "SELECT count(*) >= 1 FROM pg_inherits WHERE inhparent = 'sightline_log'::regclass";
    assert_eq!(postgres.sql(days), "t", "a partition a day");
    let plan = postgres.sql(
        "SET enable_seqscan = off; EXPLAIN SELECT * FROM sightline_log WHERE description ILIKE '%forklift%'",
    );
    assert!(plan.contains("Bitmap Index Scan on sightline_log_"), "{plan}");
}

fn wait_until_there(there: &dyn Fn() -> u64, count: u64) {
    let mut last = (0, Instant::now());
    loop {
        let found = there();
        if found >= count {
            return;
        }
        if found > last.0 {
            last = (found, Instant::now());
        }
        assert!(last.1.elapsed() < Duration::from_secs(60), "{found} of {count}, and no more come");
        thread::sleep(Duration::from_millis(100));
    }
}

fn start(dir: &std::path::Path, events: Vec<NewEvent>, url: &str) -> Server {
    let log = seed::log(dir);
    log.append_wait(events).expect("appended");
    drop(log);
    Setup::new(dir).var("SERVICE_DB_URL", url).var("SERVICE_DB_MIRROR", "all").start()
}

#[test]
fn a_fleet_is_read_through_any_of_its_servers_by_its_owner_alone() {
    let Some(sightline) = sightline() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let postgres = Postgres::start();
    let runs: Vec<RunId> = (1..=4).map(|number| RunId::from_bytes([number; 16])).collect();
    let label = |text: &str| {
        let request_id = "req-0000000000000001".parse().expect("an id");
        Event::RunLabelled(RunLabelled { request_id, label: Some(text.parse().expect("a label")) })
    };
    let first = vec![
        session(runs[0], "alice"),
        NewEvent { run: runs[0], event: label("dock 1") },
        described(runs[0], "A Forklift \u{0} at 100% of 5_000"),
        session(runs[1], "bob"),
        described(runs[1], "a forklift of bob's"),
    ];
    let deleted = RunDeleted { request_id: None, reclaim: None };
    let second = vec![
        session(runs[2], "alice"),
        described(runs[2], "another forklift"),
        session(runs[3], "alice"),
        described(runs[3], "a forklift that is deleted"),
        NewEvent { run: runs[3], event: Event::RunDeleted(deleted) },
    ];
    let servers = [
        start(&dir.path().join("1"), first, &postgres.url()),
        start(&dir.path().join("2"), second, &postgres.url()),
    ];
    wait_until("the database is asked", || {
        servers.iter().all(|server| server.get("/v1/fleet/runs").status == 200)
    });
    let lines = |server: &Server, key: &str, args: &[&str]| -> Value {
        let mut command = Command::new(&sightline);
        command.arg("fleet").args(args).arg("--json");
        command.env("SIGHTLINE_SERVER", format!("http://{}", server.addr()));
        let output = command.env("SIGHTLINE_API_KEY", key).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let count = |found: &Value, list: &str| found[list].as_array().expect("a list").len();
    for server in &servers {
        let runs_of = |key: &str| lines(server, key, &["runs"]);
        wait_until("both are mirrored", || {
            count(&runs_of(ALICE), "runs") == 2
                && count(&lines(server, ALICE, &["search", "FORKLIFT"]), "hits") == 2
        });
        assert_eq!(count(&runs_of(BOB), "runs"), 1);
        let found = lines(server, ALICE, &["search", "100% of 5_0"]);
        assert_eq!(count(&found, "hits"), 1, "{found}");
        let hit = &found["hits"][0];
        let description = "A Forklift  at 100% of 5_000";
        let run = runs[0].to_string();
        assert_has(hit, &json!({"run_id": run, "label": "dock 1", "description": description}));
        let none = lines(server, ALICE, &["search", "5%000"]);
        assert_eq!(count(&none, "hits"), 0, "{none}");
    }
    let own = servers[0].events(&runs[0].to_string());
    let mirrored = postgres.sql(&format!(
        "SELECT json_agg(json_build_object('seq', seq, 'kind', kind, 'run_id', run_id, 'pts_ms', \
         (extract(epoch FROM appended_at) * 1000)::bigint, 'payload', payload) ORDER BY seq) \
         FROM sightline_log WHERE run_id = '{}'",
        runs[0]
    ));
    let mirrored: Vec<Value> = serde_json::from_str(&mirrored).expect("JSON");
    assert_eq!(mirrored, own);
    assert_eq!(shared().get("/v1/fleet/runs").status, 500, "without a database");
}
