//! The export of real servers: three nodes' files under the queries of `docs/EXPORT.md`, kills, repeats and a place that is away.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Command,
};

use media::{EventType, GateConfig, Label, Marker, RunId, Score, Seq, Signal};
use serde_json::{Value, json};
use sightline::{base::meta_store::MetaStore, deliver::outbox::Cursors};
use timeline::{Event, FramesDecoded, NewEvent, RunLabelled, Signals, system_clock};

use crate::{
    api::signals::decoded,
    support::{
        PATIENCE, Server, Setup, copy, files, python, seed, shim_of_disk, this_test, wait_until,
    },
};

const DAY_MS: i64 = 86_400_000;

fn seed(dir: &Path, days_ago: i64, events: &[NewEvent]) {
    let log = seed::log_at(dir, system_clock().epoch_ms - days_ago * DAY_MS);
    for batch in events.chunks(4000) {
        log.append_wait(batch.to_vec()).expect("appended");
    }
}

fn marker(run: RunId, event_type: EventType, at: u64, beside: bool) -> Event {
    Event::MarkerEmitted(Marker { beside, ..seed::marker(run, event_type, at) })
}

/// Frame 5 nearly is a cut, frame 7 is one.
fn frames() -> Event {
    let score = |index| match index {
        5 => Score::from_millionths(450_000),
        7 => Score::from_millionths(900_000),
        _ => Score::ZERO,
    };
    let signals = (0..10).map(|index| Signal {
        scene_score: Some(score(index)),
        ..Signal::plain(index, index as i64 * 40)
    });
    let gate = Some(GateConfig::default());
    Event::FramesDecoded(FramesDecoded { gate, ..decoded(Signals::Inline(signals.collect())) })
}

/// The run of a camera `dock N`, with `forklifts` descriptions of one.
fn camera(number: u8, forklifts: usize) -> Vec<NewEvent> {
    let run = RunId::from_bytes([number; 16]);
    let label: Option<Label> = Some(format!("dock {number}").parse().expect("a label"));
    let labelled =
        RunLabelled { request_id: "req-0000000000000001".parse().expect("an id"), label };
    let mut events = vec![seed::session_created("alice"), Event::RunLabelled(labelled)];
    events.extend((0..forklifts).map(|_| seed::described("A Forklift \u{0} turns \"left\"")));
    events.extend([
        seed::described("nobody"),
        marker(run, EventType::SceneCut, 7, false),
        marker(run, EventType::SceneCut, 8, true),
        marker(run, EventType::KeyframeKeep, 0, false),
        frames(),
    ]);
    events.into_iter().map(|event| NewEvent { run, event }).collect()
}

fn setup(dir: &Path, place: &Path) -> Setup {
    Setup::new(dir)
        .var("SERVICE_EXPORT_URL", &format!("file://{}", place.display()))
        .var("SERVICE_EXPORT_AGE_SECS", "1")
}

/// Waits until `exported`, a count or a number of events, has come to the head of the log.
fn wait_for_export(server: &Server, exported: impl Fn() -> u64) {
    wait_until("all is exported", || exported() >= server.metric("service_log_head") as u64);
    wait_until("no more waits", || server.metric("service_export_lag_seconds") == 0.0);
}

/// Files beneath `place`, hidden ones too, by their paths in it.
fn tables(place: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files::contents(place).into_iter().collect()
}

fn events(place: &Path) -> Vec<PathBuf> {
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "parquet");
    let folder = place.join("events");
    let found = if folder.exists() { files(&folder) } else { Vec::new() };
    found.into_iter().filter(is_whole).collect()
}

/// The span of a file's events, by its name.
fn span(file: &Path) -> (u64, u64) {
    let name = file.file_stem().expect("a name").to_string_lossy();
    let (first, last) = name.split_once('-').expect("a span");
    (first.parse().expect("a number"), last.parse().expect("a number"))
}

/// The last event that is in a file.
fn last(place: &Path) -> u64 {
    events(place).iter().map(|file| span(file).1).max().unwrap_or(0)
}

/// Results of the page's queries in `dir`, which has the folder `export`.
fn query(dir: &Path) -> Option<Value> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bin = python::installed(&this_test(), &tests.join("tests/api/parquet/requirements.txt"))?;
    let mut command = Command::new(bin.join("python"));
    command.arg(tests.join("tests/api/export/queries.py")).arg(tests.join("docs/EXPORT.md"));
    let output = python::run(command.current_dir(dir)).unwrap_or_else(|said| panic!("{said}"));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn the_queries_of_the_page_find_what_three_nodes_exported() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("export");
    let mut servers = Vec::new();
    // One is all digits, which no reader is to take for a number.
    for (number, tag) in [(1, "ab01"), (2, "0002"), (3, "ab03")] {
        let node = dir.path().join(format!("node {number}"));
        // A cut of before this week, and the part of another day.
        let old = RunId::from_bytes([number; 16]);
        let cut = marker(old, EventType::SceneCut, 3, false);
        seed(&node, 10, &[NewEvent { run: old, event: cut }]);
        seed(&node, 0, &camera(number, number.into()));
        servers.push(setup(&node, &place).var("SERVICE_NODE_TAG", tag).clips().start());
    }
    // Who comes later to a tag exports nothing.
    wait_until("the tags are taken", || place.join("nodes/ab01").exists());
    let other = dir.path().join("another");
    seed(&other, 0, &camera(4, 4));
    let other = setup(&other, &place).var("SERVICE_NODE_TAG", "ab01").start();
    let run = servers[0].ingested(&json!({"source_uri": "talk.mp4", "max_frames": 40}));
    let body = json!({"model": "qwen3-vl-8b"});
    servers[0].post_run(&run, "analyze", &body).assert_ok();
    let markers = servers[0].payloads(&run, "marker_emitted").len();
    let told = servers[0].events(&run).len();
    for server in &servers {
        wait_for_export(server, || server.metric("service_export_events_total") as u64);
    }
    wait_until("a tag has one owner", || other.metric("service_export_failures_total") > 0.0);
    assert_eq!(other.metric("service_export_events_total"), 0.0);
    drop((servers, other));

    let Some(found) = query(dir.path()) else { return };
    for tool in ["duckdb", "polars"] {
        let [cuts, forklifts, nearly] =
            [0, 1, 2].map(|at: usize| found[tool][at].as_array().expect("a list"));
        let camera = RunId::from_bytes([1; 16]).to_string();
        let nodes = forklifts.iter().map(|row| &row[1]);
        assert_eq!(nodes.collect::<Vec<_>>(), ["0002", "ab01", "ab03"], "{tool}");
        assert_eq!(cuts.len(), 1, "{tool}: {cuts:?}");
        assert_eq!((&cuts[0][1], &cuts[0][3]), (&json!(camera), &json!(0.28)), "{tool}");
        let mut counts: Vec<_> = forklifts.iter().map(|row| row[2].as_u64()).collect();
        counts.sort_unstable();
        assert_eq!(counts, [Some(1), Some(2), Some(3)], "{tool}: {forklifts:?}");
        let nearly: Vec<&Value> = nearly.iter().filter(|row| row[1] != json!(run)).collect();
        assert_eq!(nearly.len(), 3, "{tool}: {nearly:?}");
        assert!(nearly.iter().all(|row| row[3] == 5 && row[6] == 0.5), "{tool}: {nearly:?}");
    }
    assert_eq!(found["duckdb"], found["polars"]);
    // Of the run that the server recorded itself, all that the API tells.
    let of_run = |table: &str| {
        let mut rows = found["counts"][table].as_array().expect("a list").iter();
        rows.find(|row| row[0] == json!(run)).and_then(|row| row[1].as_u64())
    };
    let counts = ["frames", "markers", "events"].map(of_run);
    assert_eq!(counts, [Some(40), Some(markers as u64), Some(told as u64)]);
    let about = found["about"].as_array().expect("a list");
    assert!(about.contains(&json!(["sightline.schema_version", "1"])), "{about:?}");
    assert!(about.contains(&json!(["sightline.table", "frames"])), "{about:?}");
    let dates: std::collections::BTreeSet<PathBuf> = events(&place)
        .iter()
        .filter_map(|file| Some(file.parent()?.parent()?.to_owned()))
        .collect();
    assert_eq!(dates.len(), 2, "a folder a day: {dates:?}");
}

#[test]
fn an_export_that_is_killed_and_repeated_has_every_event_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let (node, place) = (dir.path().join("node"), dir.path().join("export"));
    let count = clips::sized(150_000, 1_000_000);
    let run = RunId::from_bytes([7; 16]);
    let mut seeded = camera(7, 1);
    seeded.extend(
        (0..count).map(|number| NewEvent { run, event: seed::described(&format!("{number}")) }),
    );
    seed(&node, 0, &seeded);
    // What is there is no directory: nothing is exported, and all else works.
    fs::write(&place, "").expect("written");
    let mut server = setup(&node, &place).start();
    wait_until("failures are counted", || server.metric("service_export_failures_total") > 1.0);
    assert_eq!(server.metric("service_export_events_total"), 0.0);
    assert_eq!(server.get("/v1/runs").status, 200);
    fs::remove_file(&place).expect("removed");
    wait_until("a part is written", || !events(&place).is_empty());
    server.kill();
    let before = tables(&place);
    let parts = events(&place).len();
    assert!((parts as u64) < count >> 16, "killed too late to show anything: {parts}");

    let server = setup(&node, &place).start();
    wait_for_export(&server, || last(&place));
    let head = server.metric("service_log_head") as u64;
    drop(server);
    let whole = tables(&place);
    for (path, bytes) in &before {
        let is_part = path.extension().is_some_and(|ending| ending == "part");
        assert!(is_part || whole[path] == *bytes, "{} is another file now", path.display());
    }
    assert!(whole.keys().all(|path| path.extension().is_none_or(|ending| ending != "part")));

    // As a kill leaves it between the files of the last part and its cursor.
    let cursors = Cursors(MetaStore::open(&node.join("data/ledger")).expect("opens"));
    let url = format!("file://{}", place.display());
    let (first, last_of_it) = events(&place).iter().map(|file| span(file)).max().expect("a part");
    cursors.advance(&format!("export/{url}"), Seq(first)).expect("moved");
    cursors.advance(&format!("export-end/{url}"), Seq(last_of_it + 1)).expect("moved");
    drop(cursors);
    let is_of_it = |file: &&PathBuf| {
        let name = file.extension().is_some_and(|ending| ending == "parquet").then(|| span(file));
        name == Some((first, last_of_it))
    };
    let parts: Vec<&PathBuf> = whole.keys().filter(is_of_it).collect();
    let again: Vec<PathBuf> = parts.iter().map(|part| place.join(part)).collect();
    again.iter().for_each(|file| fs::remove_file(file).expect("removed"));
    // As the files of a log that had more events: nothing is written beside them.
    let later =
        again[0].with_file_name(format!("{:020}-{:020}.parquet", last_of_it + 1, last_of_it + 9));
    fs::write(&later, "").expect("written");
    let server = setup(&node, &place).start();
    wait_until("it is refused", || server.metric("service_export_failures_total") > 0.0);
    assert!(again.iter().all(|file| !file.exists()));
    fs::remove_file(&later).expect("removed");
    wait_until("it is written again", || again.iter().all(|file| file.exists()));
    wait_for_export(&server, || last(&place));
    drop(server);
    let repeated = tables(&place);
    assert!(parts.iter().all(|part| repeated[*part] == whole[*part]), "the same bytes");
    let Some(found) = query(dir.path()) else { return };
    let row = &found["whole"][0];
    let ends = [1, 2, 3, 4].map(|at: usize| row[at].as_u64().expect("a number"));
    assert!(ends[0] == ends[1] && ends[2] == 1 && ends[3] == ends[0] && ends[0] >= head, "{found}");
}

/// Steps of an export, as the disk's shim counts them: the frames of a part, its markers and its events, and a second part.
const STEPS: [(&str, &str); 8] = [
    ("its frames are begun", "c 1 /export/frames/"),
    ("its frames are whole", "s 1 /export/frames/"),
    ("its frames are named", "r 1 /export/frames/"),
    ("its markers are named", "r 1 /export/markers/"),
    ("its events are named", "r 1 /export/events/"),
    ("no cursor tells of it", "s 2 /export/events/"),
    ("the events of another are named", "r 2 /export/events/"),
    ("no cursor tells of that", "s 5 /export/events/"),
];

#[test]
fn a_kill_at_any_step_of_an_export_leaves_the_files_that_no_kill_leaves() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(shim) = shim_of_disk(dir.path()) else { return };
    let seeded = dir.path().join("seeded");
    let cut = marker(RunId::from_bytes([7; 16]), EventType::SceneCut, 3, false);
    seed(&seeded, 10, &[NewEvent { run: RunId::from_bytes([7; 16]), event: cut }]);
    seed(&seeded, 0, &camera(7, 100));
    // Has an identity, which is in its files.
    drop(Setup::new(&seeded).var("SERVICE_NODE_TAG", "ab01").start());
    let exported = |step: &str, kill: Option<&str>| {
        let home = dir.path().join(step);
        let (node, place) = (home.join("node"), home.join("export"));
        fs::create_dir(&home).expect("made");
        copy(&seeded, &node);
        let sound = setup(&node, &place).var("SERVICE_NODE_TAG", "ab01");
        if let Some(kill) = kill {
            let killed = sound.clone().var("LD_PRELOAD", &shim).var("DISK_KILL", kill);
            let mut server = killed.var("DISK_ROOT", &home.display().to_string()).start();
            assert_eq!(server.wait(PATIENCE).signal(), Some(9), "{step}: it comes");
        }
        let server = sound.start();
        wait_for_export(&server, || last(&place));
        drop(server);
        let mut tables = tables(&place);
        // The claim of the tag is a node's own.
        tables.retain(|path, _| !path.starts_with("nodes"));
        tables
    };
    let whole = exported("no kill", None);
    assert!(whole.len() >= 5, "two parts: {:?}", whole.keys());
    for (step, kill) in STEPS {
        let left = exported(step, Some(kill));
        assert!(left.keys().eq(whole.keys()), "{step}: {:?}, {:?}", left.keys(), whole.keys());
        let differ = left.iter().filter(|(path, bytes)| whole[*path] != **bytes);
        assert_eq!(differ.map(|(path, _)| path).collect::<Vec<_>>(), [""; 0], "{step}");
    }
}
