//! Events of every kind of source and end, as the golden files say: a line an event, what is long by its hash.
//!
//! The pictures are those of one clip of fixed bytes, in other containers and by other ways: of all sources but the
//! first the lines are shown that the first has not. `UPDATE_GOLDEN=1` writes the files anew; the diff is for a person
//! to read. Backends that decode and measure change none of them.

use std::{collections::HashSet, fmt::Write, fs, path::Path};

use scripted_model::Step;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    api::{
        camera,
        reason::{MODEL, finding},
        remote::{ffmpeg, setup},
        remote_rtsp::Camera,
        replay::{check, without_ids},
        uploads::upload,
    },
    support::{
        Server, Setup, assert_has, eventually, hex,
        host::{Answer, Certificate, Host},
        is_of_frames,
        model::{self, Model},
        skip, this_test,
        whip::{Publication, sightline},
    },
};

/// Characters of a value that is shown; a longer one is told by its hash.
const SHOWN_MAX: usize = 120;

/// Containers of the clip, with the words that make ffmpeg copy it there.
const CONTAINERS: [(&str, &str); 7] = [
    ("clip.mp4", ""),
    ("fragmented.mp4", "-movflags frag_keyframe+empty_moov"),
    ("clip.mov", ""),
    ("clip.mkv", ""),
    ("clip.avi", ""),
    ("clip.flv", ""),
    ("clip.ts", ""),
];

/// Clips that are published.
const LIVE: [&str; 2] = ["bikes.mp4", "carphone_pristine.mp4"];

/// Fields that a clock fills.
const TIMED: [&str; 4] = ["wall_start_ms", "process_ms", "lag_ms", "inference_latency_ms"];

/// `value` with its long arrays and texts replaced by their hashes, without what a clock fills.
fn brief(value: &Value) -> Value {
    let text = value.to_string();
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| !TIMED.contains(&name.as_str()));
            fields.map(|(name, value)| (name.clone(), brief(value))).collect()
        }
        Value::Array(_) | Value::String(_) if text.len() > SHOWN_MAX => {
            let hash = hex(&Sha256::digest(&text));
            let items =
                value.as_array().map_or_else(String::new, |all| format!("{} in ", all.len()));
            json!(format!("{items}sha256 {}", &hash[..16]))
        }
        other => other.clone(),
    }
}

/// The events of `run` but its first, a line each, without what differs from run to run.
fn told(server: &Server, run: &str) -> String {
    let mut lines = String::new();
    for event in &server.events(run)[1..] {
        let (kind, payload) = (&event["kind"], without_ids(&event["payload"].to_string()));
        let payload: Value = serde_json::from_str(&payload).expect("JSON");
        writeln!(lines, "{} {}", kind.as_str().expect("a kind"), brief(&payload))
            .expect("in memory");
    }
    lines
}

/// The kinds of the events of `run`, without those of its frames, of which there are some, and what is said of them when
/// it comes; of markers the first.
fn outline(server: &Server, run: &str) -> String {
    let mut kinds = server.kinds(run);
    let all = kinds.len();
    kinds.retain(|kind| !is_of_frames(kind) && kind != "vlm");
    assert!(kinds.len() < all, "{kinds:?}");
    kinds.dedup_by(|next, kind| next == kind && kind == "marker_emitted");
    kinds.join(" ") + "\n"
}

/// Tells in `found` how many `events` there are, and shows those that are none of `known`.
fn show(found: &mut String, name: &str, events: &str, known: &str) {
    let (hash, known) = (hex(&Sha256::digest(events)), known.lines().collect::<HashSet<_>>());
    writeln!(found, "# {name}: {} events, {}", events.lines().count(), &hash[..16])
        .expect("in memory");
    for line in events.lines().filter(|line| !known.contains(line)) {
        writeln!(found, "{line}").expect("in memory");
    }
}

/// Ends `run` in one of the ways in which every kind of source may end.
fn end(setup: &Setup, server: &mut Server, run: &str, how: &str) {
    match how {
        "worker killed" => assert_eq!(server.kill_workers(), 1),
        "server killed" => {
            server.kill();
            *server = setup.start();
        }
        asked => drop(server.post_run(run, asked, &json!({})).assert_ok()),
    }
}

/// Ingests what `body` names, analyses and finishes the run.
fn recorded(server: &Server, body: &Value) -> String {
    let run = server.ingested(body);
    server.post_run(&run, "analyze", &json!({"model": MODEL})).assert_ok();
    server.post_run(&run, "finish", &json!({})).assert_ok();
    told(server, &run)
}

/// The clip in every container and as a playlist, beneath `root`.
fn make(root: &Path) {
    fs::create_dir(root).expect("made");
    let clip = clips::rendered("golden.mp4", "-i {bikes.mp4} -an -c copy");
    let copied = ["-i", clip.to_str().expect("UTF-8"), "-c", "copy"];
    for (name, more) in CONTAINERS {
        let more: Vec<&str> = more.split_whitespace().collect();
        ffmpeg(root, &[&copied[..], &more, &[name]].concat());
    }
    let playlist = ["-f", "hls", "-hls_time", "1", "-hls_playlist_type", "vod", "list.m3u8"];
    ffmpeg(root, &[&copied[..], &playlist].concat());
    let bytes = fs::read(root.join("clip.mkv")).expect("made");
    fs::write(root.join("half.mkv"), &bytes[..bytes.len() / 2]).expect("written");
}

#[test]
fn every_kind_of_source_and_a_reasoning_leave_the_events_of_the_golden_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let (root, certificate) = (dir.path().join("root"), Certificate::new());
    make(&root);
    let beneath = root.clone();
    let host = Host::start(&certificate, move |asked, out| {
        out.ranged(asked, &fs::read(beneath.join(&asked.path[1..]))?, &[])
    });
    let media = format!(
        "/clip=( filesrc location={} ! qtdemux ! h264parse ! rtph264pay config-interval=-1 name=pay0 )",
        root.join("clip.mp4").display()
    );
    let camera = Camera::start("none", &[media]);
    let secure = certificate.before(camera.port);
    let scripted = Model::start(|_| Step::chat(&finding("delivery", 0.9)));
    scripted.server.answer_probes(model::list(&[MODEL]));
    let server = scripted.behind(setup(&certificate)).var("SERVICE_ALLOW_REMOTE_HLS", "true");
    let server = server.root(&root).start();
    let uploaded = upload(&server, "sent.mp4", &fs::read(root.join("clip.mp4")).expect("made"));

    let sent = uploaded["file_name"].as_str().expect("a name");
    let mut sources = Vec::from(CONTAINERS.map(|(name, _)| (name, json!({"source_uri": name}))));
    sources.extend([
        ("half of a file", json!({"source_uri": "half.mkv"})),
        ("five a second", json!({"source_uri": "clip.mp4", "sample_fps": 5})),
        ("first frames", json!({"source_uri": "clip.mp4", "max_frames": 40})),
        ("keepalive", json!({"source_uri": "clip.mp4", "gate": {"keepalive_ms": 400}})),
        ("upload", json!({ "source_uri": sent })),
        ("URL", json!({ "source_uri": host.url("/clip.mp4") })),
        ("playlist", json!({ "source_uri": host.url("/list.m3u8") })),
        ("camera", json!({ "source_uri": format!("rtsps://localhost:{secure}/clip") })),
    ]);

    let (mut found, mut first) = (String::new(), String::new());
    for (name, body) in &sources {
        let events = recorded(&server, body).replace(&format!(":{secure}/"), ":PORT/");
        let events = events.replace(&format!(":{}/", host.port()), ":PORT/");
        let events = events.replace(sent, "SENT");
        show(&mut found, name, &events, &first);
        if first.is_empty() {
            first = events;
        }
    }
    check("sources.txt", &found);
    a_reasoning_asks_and_leaves_what_the_golden_file_says(&server, &scripted);
}

fn a_reasoning_asks_and_leaves_what_the_golden_file_says(server: &Server, scripted: &Model) {
    let run = server.create_run();
    let body = json!({"source_uri": "clip.mp4", "model": MODEL, "max_frames": 90,
        "semantic_prompt": "Where is the van?"});
    server.post_run(&run, "reason", &body).assert_ok();
    // Models answer in any order; what they are told of is in the order of the video.
    let events = told(server, &run);
    let mut lines: Vec<&str> = events.lines().collect();
    lines.sort_unstable();
    let seen = scripted.server.seen();
    let asked = seen.iter().map(|seen| brief(&seen.json()["messages"]).to_string());
    let mut asked: Vec<String> = asked.collect();
    asked.sort();
    check("reason.txt", &(lines.join("\n") + "\n# questions\n" + &asked.join("\n") + "\n"));
}

#[test]
fn every_end_leaves_the_kinds_of_the_golden_file() {
    let setup = Setup::temporary().clips();
    let mut server = setup.start();
    let body = json!({"source_uri": "screen.mp4", "max_frames": 500_000});
    let begun = |server: &Server| {
        let run = server.create_run();
        let job = server.start_job(&run, "ingest", &body);
        eventually("frames", || {
            let state = server.get(&format!("/v1/runs/{run}/state")).json();
            state["progress"]["frames"].as_u64().filter(|frames| *frames > 600)
        });
        (run, job.header("location").to_owned())
    };
    let mut found = String::new();
    for how in ["stop", "cancel", "finish", "worker killed", "server killed"] {
        let (run, job) = begun(&server);
        match how {
            "cancel" => drop(server.call("DELETE", &job).send().assert_ok()),
            other => end(&setup, &mut server, &run, other),
        }
        let told = server.wait_for_event(&run, "frames_decoded");
        if matches!(how, "stop" | "cancel") {
            let job = server.get(&format!("{job}?wait_ms=30000")).json();
            assert_eq!(job["status"], "cancelled", "{how}: {job}");
        }
        if how == "finish" {
            assert_has(&told, &json!({"truncated": true, "reason": "stopped"}));
            assert_eq!(server.record(&run)["status"], "completed");
        }
        write!(found, "{how}: {}", outline(&server, &run)).expect("in memory");
    }
    check("ends.txt", &found);
}

/// The events of a publisher of `clip`, of which nothing was left out: a busy machine may miss its first pictures.
fn published(server: &Server, sightline: &Path, clip: &Path, frames: &Value) -> String {
    let unkept = || server.metric("service_live_shed_total{what=\"stills\"}");
    for _ in 0..8 {
        let before = unkept();
        let (run, _) = Publication::start(sightline, server, clip, &json!({}), &[]).finish();
        let ended = server.wait_for_event(&run, "frames_decoded");
        if ended["decoded_frames"] == *frames && unkept() == before {
            return told(server, &run);
        }
    }
    panic!("the machine is too busy for live video");
}

#[test]
fn live_video_leaves_what_the_golden_file_says() {
    let Some(sightline) = sightline() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("root");
    fs::create_dir(&root).expect("made");
    for name in LIVE {
        let clip = clips::rendered(name, &format!("-i {{{name}}} -an -c copy"));
        fs::copy(clip, root.join(name)).expect("copied");
    }
    let setup = camera::watching().root(&root);
    let mut server = setup.start();
    let mut found = String::new();
    for name in LIVE {
        let run = server.create_run();
        let body = json!({"source_uri": name, "max_frames": 500_000});
        let reply = server.post_run(&run, "ingest", &body).assert_ok();
        server.post_run(&run, "analyze", &json!({"model": MODEL})).assert_ok();
        let frames = &reply.json()["decoded_frames"];
        let events = published(&server, &sightline, &root.join(name), frames);
        // What is said of a picture comes when it comes.
        let mut lines: Vec<&str> = events.lines().collect();
        lines.sort_unstable();
        let name = format!("publisher of {name}");
        show(&mut found, &name, &lines.join("\n"), &told(&server, &run));
    }
    let camera = Camera::start("none", &[camera::ball("")]);
    let clip = root.join(LIVE[0]);
    for (source, ways) in [
        ("camera", &["stop", "finish", "server killed"][..]),
        ("publisher", &["stop", "finish", "interrupt", "worker killed", "server killed"]),
    ] {
        for how in ways {
            let publication = (source == "publisher")
                .then(|| Publication::start(&sightline, &server, &clip, &json!({}), &["--loop"]));
            let of = |publication: &Publication| publication.run.clone();
            let run = publication.as_ref().map_or_else(|| camera::record(&server, camera.port), of);
            server.wait_for_event(&run, "marker_emitted");
            match (*how, &publication) {
                ("interrupt", Some(publication)) => publication.interrupt(),
                (other, _) => end(&setup, &mut server, &run, other),
            }
            server.wait_for_event(&run, "frames_decoded");
            write!(found, "{source}, {how}: {}", outline(&server, &run)).expect("in memory");
        }
    }
    check("live.txt", &found);
}

#[test]
fn a_clip_gives_the_same_events_field_by_field_whatever_decodes_and_measures_it() {
    let start =
        |variable: &str, backend: &str| Setup::temporary().clips().var(variable, backend).start();
    let backend = |server: &Server, of: &str| server.get("/v1/models").json()[of].take();
    let events = |server: &Server| recorded(server, &json!({"source_uri": "motion.mp4"}));
    let on_cpu = start("SERVICE_GATE_BACKEND", "cpu");
    assert_eq!(backend(&on_cpu, "gate")["backend"], "cpu");
    let expected = events(&on_cpu);
    if Path::new("/usr/share/vulkan/icd.d").is_dir() {
        let on_adapter = start("SERVICE_GATE_BACKEND", "wgpu");
        let named = backend(&on_adapter, "gate");
        assert_eq!(named["backend"], "wgpu");
        assert!(named["measurer"].to_string().starts_with("\"wgpu:"), "{named}");
        assert_eq!(events(&on_adapter), expected);
        let lost = on_adapter.metric("service_gate_devices_lost_total");
        assert_eq!(lost, 0.0, "nothing was given up");
    } else {
        skip(&this_test(), "there is no Vulkan driver");
    }
    let external = start("SERVICE_DECODE_BACKEND", "ffmpeg-cli");
    assert_eq!(backend(&external, "decode")["backend"], "ffmpeg-cli");
    let decoded = events(&external);
    assert_eq!(decoded.matches("ffmpeg-cli:h264").count(), 1, "{decoded}");
    assert_eq!(decoded.replace("ffmpeg-cli:h264", "software:h264"), expected);
}
