//! Whole data folders of earlier servers: each opens, reads as it was told, and goes on; one of a later server is refused by name,
//! and nothing of it is touched.
//!
//! Each was written by the real server of its time, which was killed amid a recording, and lies packed in `fixtures/folders` with
//! what that server told. `UPDATE_GOLDEN=1` adds [`NEWEST`] where it is missing; none ever changes. Long because who writes a folder
//! and who reads it go together.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use fastrand::Rng;
use redb::{Database, TableDefinition};
use scripted_model::Step;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{copy, files, log, refusal, said};
use crate::{
    api::{
        jobs::long,
        reason::{MODEL, finding},
        uploads::upload,
        webhooks,
    },
    support::{
        BOB, Server, Setup,
        clock::{Clock, epoch_now},
        files::contents,
        hex,
        model::Model,
        receiver::Receiver,
        seed, setting, wait_until,
        whip::sightline,
    },
};

/// The folder that today's server adds.
const NEWEST: &str = "v1";
const LISTS: [&str; 7] =
    ["events", "markers", "keyframes", "signals", "activity", "interactions", "jobs"];

fn packed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/folders")
}

fn tar(arguments: &[&str], archive: &Path, dir: &Path) {
    let mut command = Command::new("tar");
    let output = command.args(arguments).arg(archive).arg("-C").arg(dir).arg(".").output();
    let output = output.expect("tar runs");
    assert!(output.status.success(), "{}", said(&output));
}

/// The folders, each unpacked by `use_it` into one of its own with what was told of it.
fn each(mut use_it: impl FnMut(&Path, &Value)) {
    let newest = packed().join(NEWEST).with_extension("tar.gz");
    if setting("UPDATE_GOLDEN").is_some() && !newest.exists() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path());
        fs::create_dir_all(packed()).expect("made");
        tar(&["-czf"], &newest, dir.path());
    }
    let archives = files(&packed(), |name| name.ends_with(".tar.gz"));
    assert!(archives.contains(&newest), "{archives:?}");
    for archive in archives {
        println!("{}", archive.display());
        let dir = tempfile::tempdir().expect("a directory");
        tar(&["-xzf"], &archive, dir.path());
        let told = fs::read(dir.path().join("told.json")).expect("there");
        use_it(dir.path(), &serde_json::from_slice(&told).expect("JSON"));
    }
}

/// A clip of which all is drawn, for pictures that may be kept, and one that no machine decodes meanwhile.
fn sources() -> [PathBuf; 2] {
    let long = long()["source_uri"].as_str().expect("a path").into();
    [clips::passing(), long]
}

fn name_of(clip: &Path) -> &str {
    clip.file_name().and_then(|name| name.to_str()).expect("a name")
}

fn setup_with_sources(setup: Setup) -> Setup {
    let roots = sources().map(|path| path.parent().expect("a folder").display().to_string());
    setup.var("SERVICE_INGEST_FILE_ROOTS", &roots.join(","))
}

/// The run that was made with a key, now or before.
fn keyed(server: &Server, key: &str) -> (String, bool) {
    let reply = server.create_keyed(key).assert_ok();
    (reply.run(), !reply.header("idempotency-replayed").is_empty())
}

/// Has a server write a folder below `dir` with something of everything, and notes beside it what that server told.
fn write(dir: &Path) {
    let data = dir.join("data");
    let receiver = Receiver::start();
    let model = Model::start(|_| Step::chat(&finding("stopped", 0.9)));
    let setup = model.behind(setup_with_sources(webhooks::delivering(Setup::new(dir), &receiver)));
    let (mut server, [clip, endless]) = (setup.start(), sources());
    let (run, _) = keyed(&server, "of-a-run");
    let hook = webhooks::hook(&server, &run, &receiver.url("/hook"));
    let zone = json!({"name": "left", "polygon": [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]]});
    let source = json!({"source_uri": name_of(&clip), "zones": [zone]});
    server.post_run(&run, "ingest", &source).assert_ok();
    let analysis = server.start_job(&run, "analyze", &json!({"model": MODEL}));
    let analysis = format!("{}?wait_ms=30000", analysis.header("location"));
    assert_eq!(server.get(&analysis).json()["status"], "succeeded");
    let reasoned = server.create_run();
    let question = json!({
        "source_uri": name_of(&clip), "model": MODEL, "max_frames": 60, "chunk_size": 30,
        "semantic_prompt": "Where is the van?",
    });
    server.post_run(&reasoned, "reason", &question).assert_ok();
    let ended = server.create_run();
    server.post_run(&ended, "stop", &json!({})).assert_ok();
    let deleted = server.create_run();
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{deleted}")).send().status, 200);
    let of_bob = server.call("POST", "/v1/runs").key(Some(BOB)).json(&json!({})).send().json();
    let uploaded = upload(&server, "passing.mp4", &fs::read(clip).expect("a clip"));
    receiver.wait("/hook", 10);
    let recording = server.create_run();
    let source = json!({"source_uri": name_of(&endless), "max_frames": 500_000});
    let job = server.start_job(&recording, "ingest", &source).header("location").to_owned();
    wait_until("rows are written", || {
        let done = server.get(&job).json()["frames_done"].as_u64();
        let column = files(&data.join("open-columns"), |_| true);
        let is_some = column.iter().any(|path| path.metadata().is_ok_and(|file| file.len() > 1000));
        is_some && done > Some(0)
    });
    let mut answers = BTreeMap::new();
    let mut pictures = BTreeMap::new();
    for run in [&run, &reasoned, &ended] {
        for path in LISTS.map(|list| format!("/v1/runs/{run}/{list}")) {
            answers.insert(path.clone(), lasting(&server, &path));
        }
        let stills = lasting(&server, &format!("/v1/runs/{run}/keyframes"))["keyframes"].clone();
        for still in stills.as_array().into_iter().flatten() {
            let path = still["image_ref"].as_str().expect("a path");
            pictures.insert(path.to_owned(), digest(&server, path));
        }
    }
    for path in ["/v1/files", &analysis] {
        answers.insert(path.to_owned(), lasting(&server, path));
    }
    let name = uploaded["file_path"].as_str().and_then(|path| path.rsplit('/').next());
    let path = format!("/v1/files/{}", name.expect("a name"));
    pictures.insert(path.clone(), digest(&server, &path));
    let hooks = json!({"webhooks": [{"webhook_id": hook["webhook_id"], "url": hook["url"]}]});
    answers.insert(format!("/v1/runs/{run}/webhooks"), hooks);
    check_search(&server);
    let events = format!("/v1/runs/{recording}/events");
    answers.insert(events.clone(), lasting(&server, &events));
    server.kill();
    let told = json!({
        "written_at": epoch_now(), "answers": answers, "files": pictures, "keys": {"of-a-run": run},
        "recording": recording, "of_bob": of_bob["run_id"], "deleted": deleted,
    });
    fs::write(dir.join("told.json"), told.to_string()).expect("written");
}

/// The answer at `path` without what is of one request, one server's settings or one machine.
fn lasting(server: &Server, path: &str) -> Value {
    let reply = server.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    let mut answer = reply.json();
    let fields = answer.as_object_mut().expect("an object");
    for passing in ["request_id", "thresholds"] {
        fields.remove(passing);
    }
    // A path on the machine.
    for file in fields.get_mut("files").and_then(Value::as_array_mut).into_iter().flatten() {
        file.as_object_mut().expect("an object").remove("file_path");
    }
    answer
}

fn digest(server: &Server, path: &str) -> String {
    let reply = server.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    hex(&Sha256::digest(&reply.bytes))
}

/// Returns true where all of `told` is in `found`: a later server may tell more, of an event and of events.
fn has(found: &Value, told: &Value) -> bool {
    match (found, told) {
        (Value::Object(found), Value::Object(told)) => {
            told.iter().all(|(name, told)| found.get(name).is_some_and(|found| has(found, told)))
        }
        (Value::Array(found), Value::Array(told)) => {
            found.len() >= told.len()
                && found.iter().zip(told).all(|(found, told)| has(found, told))
        }
        _ => found == told,
    }
}

fn check_search(server: &Server) {
    wait_until("descriptions are found", || {
        let found = server.post("/v1/search", &json!({"query": "van"})).json();
        found["hits"].as_array().is_some_and(|hits| !hits.is_empty())
    });
}

/// Checks that a server tells all of `told`.
fn check(server: &Server, told: &Value) {
    for (path, told) in told["answers"].as_object().expect("answers") {
        let found = lasting(server, path);
        assert!(has(&found, told), "{path}: {told}\nis now\n{found}");
    }
    for (path, told) in told["files"].as_object().expect("files") {
        assert_eq!(digest(server, path), *told, "{path}");
    }
    for (key, run) in told["keys"].as_object().expect("keys") {
        assert_eq!(keyed(server, key), (run.as_str().expect("an id").to_owned(), true), "{key}");
    }
    let text = |name: &str| told[name].as_str().expect("an id").to_owned();
    let state = format!("/v1/runs/{}/state", text("of_bob"));
    let statuses = [server.get(&state), server.call("GET", &state).key(Some(BOB)).send()];
    assert_eq!(statuses.map(|reply| reply.status), [404, 200], "Bob's is Bob's");
    assert_eq!(server.get(&format!("/v1/runs/{}/state", text("deleted"))).status, 404);
    check_search(server);
    let decoded = server.payloads(&text("recording"), "frames_decoded").remove(0);
    assert_eq!(decoded["reason"], "interrupted", "{decoded}");
    assert!(decoded["decoded_frames"].as_u64() > Some(0), "{decoded}");
}

#[test]
fn every_folder_reads_as_it_was_told_and_goes_on() {
    let tools = tempfile::tempdir().expect("a directory");
    let Some(clock) = Clock::new(tools.path()) else { return };
    each(|dir, told| {
        // What is kept for a day is there on that day.
        clock.set(told["written_at"].as_i64().expect("a time") + 60);
        let setup = clock.of(setup_with_sources(Setup::new(dir)));
        let mut server = setup.start();
        check(&server, told);
        let recording = told["recording"].as_str().expect("an id");
        let events = server.events(recording);
        let run = server.create_run();
        let source = json!({"source_uri": name_of(&sources()[0])});
        server.post_run(&run, "ingest", &source).assert_ok();
        let begun = server.events(&run)[0]["seq"].as_u64();
        assert!(begun > events.last().and_then(|event| event["seq"].as_u64()), "{begun:?}");
        server.restart(&setup);
        check(&server, told);
        assert_eq!(server.events(recording), events, "it is told once");
        assert_eq!(server.get(&format!("/v1/runs/{run}/signals")).status, 200);
    });
}

/// Events of a run as lines of `events.txt` tell them: number, time, run, kind, payload.
fn lines_of(events: &str, run: &str) -> Vec<Value> {
    let parts = events.lines().map(|line| line.splitn(5, ' ').collect::<Vec<_>>());
    let number = |text: &str| text.parse::<i64>().expect("a number");
    let payload = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let of_it = parts.filter(|parts| parts[2] == run).map(|parts| {
        let (seq, at) = (number(parts[0]), number(parts[1]));
        json!({"seq": seq, "pts_ms": at, "kind": parts[3], "payload": payload(parts[4])})
    });
    of_it.collect()
}

/// Logs of formats before that of [`NEWEST`], which are nobody's: an event behind them gives their runs to Alice.
#[test]
fn the_log_of_every_format_is_told_as_it_was() {
    for version in 1..=3 {
        let fixture = packed().with_file_name(format!("journal_v{version}"));
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("data/log");
        fs::create_dir_all(&log).expect("made");
        for part in ["journal", "columns"] {
            copy(&fixture.join(part), &log.join(part));
        }
        copy(&fixture.join("blobs"), &dir.path().join("data/blobs"));
        let told = fs::read_to_string(fixture.join("events.txt")).expect("there");
        let runs: BTreeSet<&str> = told.lines().filter_map(|line| line.split(' ').nth(2)).collect();
        let old = seed::log(dir.path());
        for run in &runs {
            seed::append(&old, run.parse().expect("an id"), [seed::session_created("alice")]);
        }
        drop(old);
        for _ in 0..2 {
            let mut server = Setup::new(dir.path()).start();
            for run in &runs {
                let (found, told) = (server.events(run), lines_of(&told, run));
                assert!(told.len() > 3 && has(&json!(found), &json!(told)), "{version}: {found:?}");
            }
            let fresh = server.create_run();
            assert!(server.events(&fresh)[0]["seq"].as_u64() > Some(25), "it goes on");
            server.kill();
        }
    }
}

/// A format of a later server.
const LATER: u8 = 9;

/// Changes the files of a part of a folder, each by its path and its bytes.
fn change(dir: &Path, is: impl Fn(&str) -> bool, change: impl Fn(&mut Vec<u8>)) {
    let found = files(dir, is);
    assert!(!found.is_empty(), "{}", dir.display());
    for path in found {
        let mut bytes = fs::read(&path).expect("readable");
        change(&mut bytes);
        fs::write(&path, bytes).expect("written");
    }
}

fn later_journal(data: &Path) {
    change(
        &data.join("log/journal"),
        |name| name.ends_with(".journal"),
        |bytes| {
            // Magic, version, checksum of all others.
            bytes[8] = LATER;
            let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..32]);
            bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        },
    );
}

fn later_open_column(data: &Path) {
    change(&data.join("open-columns"), |_| true, |bytes| bytes[7] = LATER);
}

fn later_table(data: &Path) {
    let later: TableDefinition<'_, u64, u64> = TableDefinition::new("idempotency_ages");
    fs::remove_file(data.join("ledger")).expect("removed");
    let ledger = Database::create(data.join("ledger")).expect("made");
    let change = ledger.begin_write().expect("begun");
    change.open_table(later).expect("opened").insert(1, 1).expect("put");
    change.commit().expect("committed");
}

/// Each part of a folder that names its format, and the words that refuse a later one.
type Later = (fn(&Path), [&'static str; 2]);
const PARTS: [Later; 3] = [
    (later_journal, ["format 9 of", ".journal"]),
    (later_open_column, ["format 9 of", "open-columns"]),
    (later_table, ["the ledger failed", "idempotency_ages"]),
];

#[test]
fn a_folder_of_a_later_server_is_refused_by_name_and_not_touched() {
    let Some(sightline) = sightline() else { return };
    each(|dir, _| {
        for (make_later, words) in PARTS {
            let place = tempfile::tempdir().expect("a directory");
            let data = place.path().join("data");
            copy(&dir.join("data"), &data);
            make_later(&data);
            let before = contents(&data);
            let message = refusal(place.path());
            assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
            let after = contents(&data);
            // The ledger of a server that was killed is repaired as it opens.
            let changed =
                after.iter().filter(|file| !file.0.starts_with("ledger") && !before.contains(file));
            let changed: Vec<_> = changed.map(|(path, _)| path).collect();
            assert!(changed.is_empty(), "{words:?}: {changed:?}");
        }
        // A column is read when it is asked for.
        let data = dir.join("data");
        change(&data.join("log/columns"), |_| true, |bytes| bytes[7] = LATER);
        let told = said(&log(&sightline, "verify", &data));
        assert!(told.contains("format 9 of"), "{told}");
    });
}

/// Flips a bit of one of `files` and returns its path.
fn flip(files: &[PathBuf], random: &mut Rng) -> PathBuf {
    let path = files[random.usize(..files.len())].clone();
    let mut bytes = fs::read(&path).expect("readable");
    // Most of a journal and of the ledger is room, of zeros.
    let written: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let at = written[random.usize(..written.len())];
    bytes[at] ^= 1 << random.u32(..8);
    fs::write(&path, bytes).expect("written");
    path
}

#[test]
fn a_bit_flipped_in_a_checked_file_is_refused_or_told_and_alters_nothing() {
    let seed = setting("FLIP_SEED").and_then(|seed| seed.to_str()?.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("FLIP_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let mut refused = 0;
    let tools = tempfile::tempdir().expect("a directory");
    let Some(clock) = Clock::new(tools.path()) else { return };
    each(|dir, told| {
        clock.set(told["written_at"].as_i64().expect("a time") + 60);
        for _ in 0..clips::sized(12, 400) {
            let place = tempfile::tempdir().expect("a directory");
            let data = place.path().join("data");
            copy(&dir.join("data"), &data);
            let mut parts = crate::support::files(&data);
            // The ledger and uploads are read without a check.
            let unchecked = ["ledger", "uploads"].map(|name| data.join(name));
            parts.retain(|path| {
                let is_checked = !unchecked.iter().any(|unchecked| path.starts_with(unchecked));
                is_checked && path.metadata().is_ok_and(|file| file.len() > 0)
            });
            let path = flip(&parts, &mut random);
            let path = path.strip_prefix(&data).expect("below it").display();
            let Some(server) = clock.of(Setup::new(place.path())).try_start() else {
                println!("{path}: refused");
                refused += 1;
                continue;
            };
            for (asked, told) in told["answers"].as_object().expect("answers") {
                let found = server.get(asked);
                let is_told = found.status >= 400
                    || found.text.contains("\"damaged\":true")
                    || found.text.contains("\"damaged_events\":");
                assert!(
                    is_told || has(&found.json(), told),
                    "{path}: {asked}: {told}\nis now\n{}",
                    found.text
                );
            }
            for (asked, told) in told["files"].as_object().expect("files") {
                let found = server.get(asked);
                let digest = hex(&Sha256::digest(&found.bytes));
                assert!(found.status >= 400 || digest == *told, "{path}: {asked}");
            }
        }
    });
    println!("{refused} refused");
}
