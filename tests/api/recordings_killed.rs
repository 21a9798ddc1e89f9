//! kill -9 of a recording, wherever it falls: what was told of is there, and the rest is told of at the next start.

use std::{
    fs,
    os::unix::{fs::FileExt, process::ExitStatusExt},
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant},
};

use gate::Loops;
use media::Signal;
use serde_json::{Value, json};

use crate::{
    api::{
        camera::watching,
        recordings::{check_whole, recorded},
        remote_rtsp::Camera,
        uploads::upload,
    },
    support::{
        PATIENCE, Server, SmallDisk, can_mount, shim_of_disk, wait_until,
        whip::{Publication, clip, sightline},
    },
};

/// A hundred pictures a second, small ones: something is being written most of the time.
const FAST: &str = "( videotestsrc is-live=true pattern=ball ! \
    video/x-raw,format=I420,width=160,height=120,framerate=100/1 ! jpegenc ! rtpjpegpay name=pay0 )";
/// Time by which each kill is later than the one before.
const LATER: Duration = Duration::from_millis(7);

/// Begins a recording of a server that keeps every second picture or third, which closes a segment with each; returns its run
/// once markers and an episode were told.
fn record(server: &Server, port: u16, zones: &Value) -> String {
    let run = server.create_run();
    let source = format!("rtsp://localhost:{port}/live");
    let body = json!({"source_uri": source, "max_frames": 500_000, "zones": zones});
    server.start_job(&run, "ingest", &body);
    wait_until("markers and an episode are told", || {
        let kinds = server.kinds(&run);
        let is_told = |kind: &str| kinds.iter().any(|told| told == kind);
        is_told("marker_emitted") && is_told("activity_started")
    });
    run
}

/// Checks what the kill of a recording has left: all that was `seen`, and no event about a frame or a still that is not
/// there. Returns its events, without those of a recording before.
fn check_left(server: &Server, run: &str, seen: &[Value], name: &str) -> Vec<Value> {
    let mut events = server.events(run);
    assert_eq!(events[..seen.len()], *seen, "{name}: what was told of is there as it was");
    let began = events.iter().rposition(|event| event["kind"] == "ingest_started");
    events.drain(..began.unwrap_or(0));
    let decoded = server.payloads(run, "frames_decoded").pop();
    let frames = decoded.map_or(0, |decoded| decoded["decoded_frames"].as_u64().expect("some"));
    for event in &events {
        for field in ["frame_index", "start_frame", "end_frame", "peak_frame"] {
            let frame = event["payload"][field].as_u64();
            assert!(frame.is_none_or(|frame| frame < frames), "{name}: {event}");
        }
        if event["kind"] == "keyframe_stored" {
            let still = event["payload"]["image_ref"].as_str().expect("a path");
            assert_eq!(server.get(still).status, 200, "{name}: {event}");
        }
    }
    events
}

/// The same of a camera's with this keepalive, which was killed while it grew.
fn check(server: &Server, run: &str, seen: &[Value], zones: &Value, keepalive: usize) {
    check_left(server, run, seen, run);
    check_whole(server, run, run);
    let decoded = &server.payloads(run, "frames_decoded")[0];
    let ends = (&decoded["truncated"], &decoded["reason"]);
    assert_eq!(ends, (&json!(true), &json!("interrupted")), "{run}");
    assert_eq!(decoded["gate"]["keepalive_frames"], keepalive, "{run}: as it was made");
    // The ball moves all the time: the episode is open when the kill comes.
    let [started, ended] =
        ["activity_started", "activity_ended"].map(|kind| server.payloads(run, kind));
    assert_eq!((started.len(), ended.len()), (1, 1), "{run}: {started:?} {ended:?}");
    assert_eq!(started[0]["start_frame"], ended[0]["start_frame"], "{run}");
    let names: Vec<&Value> =
        zones.as_array().expect("an array").iter().map(|it| &it["name"]).collect();
    // It keeps them; without any it names none.
    let kept = if names.is_empty() { &Value::Null } else { zones };
    assert_eq!(decoded["zones"], *kept, "{run}");
    assert_eq!(ended[0]["zones"], json!(names), "{run}");
}

#[test]
fn a_kill_leaves_no_event_without_its_frame_wherever_it_falls() {
    let kills = clips::sized(16, 200);
    let setup = watching();
    let camera = Camera::start("none", &[format!("/live={FAST}")]);
    let whole = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];
    let zones = [json!([]), json!([{"name": "all", "polygon": whole}])];
    let mut seen_events = 0;
    // The server that finds what a kill has left, and is killed next, has another keepalive.
    let start = |keepalive: usize| {
        setup.clone().var("SERVICE_GATE_KEEPALIVE_FRAMES", &keepalive.to_string()).start()
    };
    let mut server = start(2);
    for kill in 0..kills {
        let zones = &zones[kill / 2 % zones.len()];
        let run = record(&server, camera.port, zones);
        sleep(LATER * (kill as u32 % 16));
        let seen = server.events(&run);
        server.signal_kill();
        server.kill();
        server = start(2 + (kill + 1) % 2);
        check(&server, &run, &seen, zones, 2 + kill % 2);
        seen_events += seen.len();
    }
    println!("{kills} kills, {seen_events} events seen before");
    let left = fs::read_dir(setup.dir().join("data/open-columns")).expect("there").count();
    assert_eq!(left, 0, "nothing stays of a recording that has ended");
}

#[test]
fn a_recording_whose_end_finds_no_room_is_closed_as_soon_as_there_is() {
    if !can_mount() {
        return;
    }
    let disk = SmallDisk::new(64);
    let camera = Camera::start("none", &[format!("/live={FAST}")]);
    // Cuts it off, the end of both its run and its job, and the reason. A still without room would end the job before its stop.
    for (cut, keepalive, end, reason) in [
        ("kill", "2", "failed", "interrupted"),
        ("stop", "10000", "cancelled", "there was no room to record its end"),
    ] {
        let setup = watching()
            .var("SERVICE_GATE_KEEPALIVE_FRAMES", keepalive)
            .var("SERVICE_DISK_RESERVE_MIB", "8")
            .on_small_disk(&disk);
        let mut server = setup.start();
        let run = record(&server, camera.port, &json!([]));
        // Few rows are part of their event, for which there is room.
        wait_until("it has rows", || recorded(&server, &run).0 > 400);
        let seen = server.events(&run);
        let told = |server: &Server| {
            let state = server.get(&format!("/v1/runs/{run}/state")).json()["state"].clone();
            let jobs = server.get(&format!("/v1/runs/{run}/jobs")).json();
            (state, jobs["jobs"][0]["status"].clone())
        };
        if cut == "kill" {
            server.kill();
        }
        let ballast = disk.fill();
        if cut == "kill" {
            server = setup.start();
            assert_eq!(told(&server), (json!("processing"), json!("failed")), "{cut}");
        } else {
            server.post_run(&run, "stop", &json!({})).assert_ok();
            wait_until("its job is over", || told(&server).1 == end);
        }
        assert_eq!(server.payloads(&run, "frames_decoded").len(), 0, "{cut}");
        assert!(recorded(&server, &run).0 > 400, "{cut}: readers have what waits for its end");
        fs::remove_file(&ballast).expect("removed");
        let decoded = server.wait_for_event(&run, "frames_decoded");
        wait_until("and its run over", || told(&server) == (json!(end), json!(end)));
        check_left(&server, &run, &seen, cut);
        check_whole(&server, &run, cut);
        assert_eq!((&decoded["truncated"], &decoded["reason"]), (&json!(true), &json!(reason)));
    }
}

#[test]
fn rows_that_the_disk_damages_while_they_are_recorded_are_told_and_kept() {
    let camera = Camera::start("none", &[format!("/live={FAST}")]);
    for (cut, reason) in [
        ("stop", "it was damaged on the disk"),
        ("kill", "interrupted, and it was damaged on the disk"),
    ] {
        let setup = watching();
        let mut server = setup.start();
        let run = record(&server, camera.port, &json!([]));
        wait_until("it has rows", || recorded(&server, &run).0 > 400);
        let columns = setup.dir().join("data/open-columns");
        let column = fs::read_dir(&columns).expect("there").next().expect("one").expect("one");
        let column = column.path();
        let file = fs::File::options().read(true).write(true).open(&column).expect("opened");
        let middle = file.metadata().expect("there").len() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, middle).expect("read");
        file.write_all_at(&[!byte[0]], middle).expect("written");
        match cut {
            "stop" => drop(server.post_run(&run, "stop", &json!({})).assert_ok()),
            _ => {
                server.restart(&setup);
            }
        }
        let decoded = server.wait_for_event(&run, "frames_decoded");
        let told = (&decoded["truncated"], &decoded["reason"]);
        assert_eq!(told, (&json!(true), &json!(reason)));
        assert!(column.with_added_extension("damaged").is_file(), "{cut}");
    }
}

/// Steps of a recording, each a change beneath the data as the disk's shim counts them from its source's begin: a kind,
/// which of them, where, and a part of what it writes. The last three come with its end.
const STEPS: [(&str, &str); 9] = [
    ("it begins", "r 1 /open-columns/"),
    ("rows are written", "w 5 /open-columns/"),
    ("a loop is told", "w 1 /journal/ is again that of"),
    ("a still is stored", "r 2 /blobs/"),
    ("events are synced", "s 3 /journal/"),
    ("rows are synced", "s 3 /open-columns/"),
    ("it is sealed", "r 1 /columns/"),
    ("its end is told", "w 1 /journal/ \"truncated\":"),
    ("it is closed", "u 1 /open-columns/"),
];
/// Sources of a recording.
const SOURCES: [&str; 4] = ["file", "upload", "camera", "publisher"];

/// Parts that sources need to begin, and that last as long as they do.
struct Sources {
    clip: PathBuf,
    camera: Camera,
    sightline: PathBuf,
}

impl Sources {
    /// Begins `source` once `arm` is called; returns its run, and its publisher where it has one. A file's has a recording
    /// before, of another stream.
    fn begin(
        &self,
        server: &Server,
        source: &str,
        arm: impl FnOnce(),
    ) -> (String, Option<Publication>) {
        if source == "publisher" {
            arm();
            let attach = json!({"index_name": "yard"});
            let publisher = Publication::start(&self.sightline, server, &self.clip, &attach, &[]);
            return (publisher.run.clone(), Some(publisher));
        }
        let run = server.create_run();
        let uri = match source {
            "file" => self.clip.file_name().and_then(|name| name.to_str()).expect("UTF-8").into(),
            "upload" => {
                let content = fs::read(&self.clip).expect("readable");
                upload(server, "clip.mp4", &content)["file_name"].as_str().expect("a name").into()
            }
            _ => format!("rtsp://localhost:{}/live", self.camera.port),
        };
        let path = format!("/v1/runs/{run}/ingest");
        if source == "file" {
            let before = json!({"source_uri": uri, "stream_id": "before", "max_frames": 90});
            assert_eq!(server.post(&path, &before).status, 200);
        }
        arm();
        let body = json!({"source_uri": uri, "max_frames": 500_000});
        let call = server.call("POST", &path);
        // Its server may be gone before it answers.
        call.header("prefer", "respond-async").json(&body).try_send().ok();
        (run, None)
    }
}

fn signals(run: &str) -> String {
    format!("/v1/runs/{run}/signals?stream_id=main")
}

/// Rows and events of `run` that were answered, until its server is gone; it is stopped once it has more rows than `most`.
fn watch(server: &Server, run: &str, most: usize) -> (Vec<Value>, Vec<Value>) {
    let (mut rows, mut events) = (Vec::new(), Vec::new());
    let since = Instant::now();
    let (signals, stop) = (signals(run), format!("/v1/runs/{run}/stop"));
    while since.elapsed() < PATIENCE {
        let query = json!({"run_id": run, "limit": 10_000});
        let Ok(told) = server.call("POST", "/v1/query").json(&query).try_send() else { break };
        events = told.json()["matches"].as_array().expect("an array").clone();
        let Ok(recorded) = server.call("GET", &signals).try_send() else { break };
        if recorded.status == 200 {
            rows = recorded.json()["signals"].as_array().expect("an array").clone();
        }
        if rows.len() > most {
            // It may be gone before it answers.
            server.call("POST", &stop).json(&json!({})).try_send().ok();
        }
    }
    (rows, events)
}

/// Frames at which a loop is entered in these rows.
fn entered(rows: &[Value]) -> Vec<u64> {
    let mut loops = Loops::default();
    let entered = rows.iter().zip(0..).filter_map(|(row, frame)| {
        let hash = row["perceptual_hash"].as_str().expect("a hash");
        let perceptual_hash = u64::from_str_radix(hash, 16).expect("a number");
        loops.push(&Signal { perceptual_hash, ..Signal::plain(frame, 0) })
    });
    entered.map(|entered| entered.frame_index).collect()
}

#[test]
fn a_kill_at_any_step_of_any_source_loses_nothing_that_was_answered() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(sightline) = sightline() else { return };
    let Some(shim) = shim_of_disk(dir.path()) else { return };
    let clip = clip::scenes("ABABAB", 10);
    let live = format!(
        "/live=( filesrc location={} ! qtdemux ! h264parse ! rtph264pay config-interval=-1 \
         name=pay0 )",
        clip.display()
    );
    let sources = Sources { camera: Camera::start("none", &[live]), clip, sightline };
    for (at, source) in SOURCES.iter().enumerate() {
        for (step, kill) in clips::in_turn(at, 3, &STEPS) {
            let name = format!("{source}, {step}");
            let sound = watching().root(sources.clip.parent().expect("a folder"));
            let [data, armed] = ["data", "armed"].map(|name| sound.dir().join(name));
            let mut server = sound
                .clone()
                .var("LD_PRELOAD", &shim)
                .var("DISK_ROOT", &data.display().to_string())
                .var("DISK_KILL", kill)
                .var("DISK_ARMED", &armed.display().to_string())
                .start();
            let arm = || fs::write(&armed, "").expect("written");
            let (run, publisher) = sources.begin(&server, source, arm);
            // Few rows are part of their event.
            let most = if *step == "it is sealed" { 320 } else { 30 };
            let most = if STEPS[6..].contains(&(*step, *kill)) { most } else { usize::MAX };
            let (rows, events) = watch(&server, &run, most);
            assert_eq!(server.wait(PATIENCE).signal(), Some(9), "{name}: the step comes");
            drop(publisher);
            let server = sound.start();
            let found = check_left(&server, &run, &events, &name);
            let now = server.get(&signals(&run)).json();
            let now = now["signals"].as_array().cloned().unwrap_or_default();
            assert!(now.starts_with(&rows), "{name}: {} of {} rows", now.len(), rows.len());
            assert_eq!(now.is_empty(), *step == "it begins", "{name}");
            let loops = found.iter().filter(|event| event["kind"] == "loop_detected");
            let loops: Vec<&Value> = loops.map(|event| &event["payload"]).collect();
            let told: Vec<_> = loops.iter().filter_map(|it| it["frame_index"].as_u64()).collect();
            assert_eq!(told, entered(&now), "{name}: its loops, once each");
            assert!(*step != "a loop is told" || !told.is_empty(), "{name}");
            let index = (*source == "publisher").then_some("yard");
            assert!(loops.iter().all(|it| it["index_name"].as_str() == index), "{name}: {loops:?}");
            let left = fs::read_dir(data.join("open-columns")).expect("there").count();
            assert_eq!(left, 0, "{name}: nothing stays of it");
            println!("{name}: {} rows of {} seen, {} events", rows.len(), now.len(), found.len());
        }
    }
}
