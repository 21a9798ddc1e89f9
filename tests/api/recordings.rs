//! Recordings in progress: read, analysed and cut off while they grow, from a camera and from a publisher.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    api::{
        camera::{ball, record, watching},
        remote_rtsp::Camera,
    },
    support::{
        Server, wait_until,
        whip::{Publication, clip, sightline},
        with,
    },
};

/// Enough frames for a few markers.
const SOME: usize = 70;

/// A source that is recorded, and its run; it ends with this.
enum Source {
    Camera { _camera: Camera, run: String },
    Publisher(Publication),
}

impl Source {
    fn run(&self) -> &str {
        match self {
            Source::Camera { run, .. } => run,
            Source::Publisher(publication) => &publication.run,
        }
    }
}

fn camera(server: &Server) -> Source {
    let camera = Camera::start("none", &[ball("")]);
    let run = record(server, camera.port);
    Source::Camera { _camera: camera, run }
}

fn publisher(server: &Server, sightline: &Path) -> Source {
    let clip = clip::scenes("ABAC", 60);
    Source::Publisher(Publication::start(sightline, server, &clip, &json!({}), &["--loop"]))
}

/// Frames of its signals, and what its markers are but for their names.
pub fn recorded(server: &Server, run: &str) -> (usize, Vec<Value>) {
    let signals = server.get(&format!("/v1/runs/{run}/signals")).json();
    let signals = signals["signals"].as_array().map_or(0, Vec::len);
    (signals, unnamed(&server.get(&format!("/v1/runs/{run}/markers")).json()["markers"]))
}

fn unnamed(markers: &Value) -> Vec<Value> {
    let mut markers = markers.as_array().cloned().expect("an array");
    for marker in &mut markers {
        for name in ["run_id", "marker_id", "supersedes_marker_id", "analysis_id"] {
            marker.as_object_mut().expect("an object").remove(name);
        }
    }
    markers
}

/// Markers of an analysis of what is recorded, which leaves no trace.
fn tried(server: &Server, run: &str) -> Vec<Value> {
    let body = json!({"model": "qwen3-vl-8b", "dry_run": true});
    let reply = server.post_run(run, "analyze", &body).assert_ok();
    unnamed(&reply.json()["markers"])
}

/// Checks what an ended recording has left: every event is about a frame that is there, and the markers are those of
/// an analysis of its column.
pub fn check_whole(server: &Server, run: &str, name: &str) {
    let decoded = server.payloads(run, "frames_decoded");
    assert_eq!(decoded.len(), 1, "{name}");
    let frames = decoded[0]["decoded_frames"].as_u64().expect("a number");
    let (signals, markers) = recorded(server, run);
    assert_eq!(signals as u64, frames, "{name}");
    assert!(!markers.is_empty() && markers == tried(server, run), "{name}: {markers:?}");
    let ends = markers.iter().map(|marker| marker["end_frame"].as_u64());
    let stills = server.payloads(run, "keyframe_stored");
    let stills = stills.iter().map(|still| still["frame_index"].as_u64());
    assert!(ends.chain(stills).all(|frame| frame < Some(frames)), "{name}");
    let generated = server.payloads(run, "analysis_generated");
    let own = generated.last().expect("its own");
    let expected = (&json!(frames), &json!(markers.len()));
    assert_eq!((&own["frames"], &own["markers"]), expected, "{name}");
}

/// Checks that another run can use the signals of one that has ended, and nobody else's.
fn check_reused(server: &Server, run: &str) {
    let fresh = server.create_run();
    let analyze = |run: &str, more: Value| {
        server.post_run(run, "analyze", &with(json!({"model": "qwen3-vl-8b"}), &more))
    };
    assert_eq!(analyze(run, json!({})).status, 409, "it has ended");
    let reply = analyze(&fresh, json!({"from_run": run}));
    assert_eq!((reply.status, unnamed(&reply.json()["markers"])), (200, recorded(server, run).1));
    let frames = json!([crate::api::analyses::frames(0, 1)[0]]);
    for more in [
        json!({"from_run": format!("run-{}", "0".repeat(32))}),
        json!({"from_run": "run-1"}),
        json!({"from_run": run, "frames": frames}),
    ] {
        analyze(&fresh, more).assert_invalid("from_run", run);
    }
}

#[test]
fn a_recording_is_read_while_it_grows_and_kept_when_it_is_stopped_or_killed() {
    let setup = watching();
    let mut server = setup.start();
    let sightline = sightline();
    for (name, end) in [("camera", "stop"), ("camera", "kill"), ("whip", "stop"), ("whip", "kill")]
    {
        let source = match (name, &sightline) {
            ("camera", _) => camera(&server),
            (_, Some(sightline)) => publisher(&server, sightline),
            (_, None) => continue,
        };
        let (run, name) = (source.run().to_owned(), format!("{name}, {end}"));
        wait_until(&name, || {
            let (signals, markers) = recorded(&server, &run);
            signals > SOME && markers.len() > 3
        });
        let kinds = server.kinds(&run);
        assert!(kinds.contains(&"keyframe_stored".to_owned()), "{name}: {kinds:?}");
        assert!(!kinds.contains(&"frames_decoded".to_owned()), "{name}: {kinds:?}");
        // An analysis while it grows has the same markers, but for the segment that is open.
        let (_, live) = recorded(&server, &run);
        let tried = tried(&server, &run);
        assert!(
            tried.len() >= live.len() && tried.starts_with(&live),
            "{name}: {live:?} {tried:?}"
        );
        let body = json!({"model": "qwen3-vl-8b"});
        let analysis = server.post_run(&run, "analyze", &body);
        assert_eq!(analysis.status, 200, "{name}: {}", analysis.text);
        let own = server.payloads(&run, "marker_emitted")[0]["analysis_id"].clone();
        let ended = if end == "stop" {
            assert_eq!(server.post_run(&run, "stop", &json!({})).status, 200);
            "stopped"
        } else {
            server.restart(&setup);
            "interrupted"
        };
        let decoded = server.wait_for_event(&run, "frames_decoded");
        assert_eq!(decoded["truncated"], true, "{name}");
        assert_eq!(decoded["reason"], ended, "{name}");
        let generated = server.payloads(&run, "analysis_generated");
        assert_eq!(generated.len(), 2, "{name}");
        assert_eq!(generated[1]["analysis_id"], own, "{name}: its own is told of at its end");
        drop(source);
        check_whole(&server, &run, &name);
        check_reused(&server, &run);
    }
    let left = std::fs::read_dir(setup.dir().join("data/open-columns")).expect("there").count();
    assert_eq!(left, 0, "nothing stays of a recording that has ended");
}

/// Checks that frames are numbered on and led on in time behind each gap, which is told of as it was.
pub fn check_gaps(server: &Server, run: &str) {
    let signals = server.get(&format!("/v1/runs/{run}/signals")).json();
    let signals = signals["signals"].as_array().expect("an array");
    for (at, pair) in signals.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        assert_eq!((&before["frame_index"], &after["frame_index"]), (&json!(at), &json!(at + 1)));
        assert!(before["pts_ms"].as_i64() < after["pts_ms"].as_i64(), "{before} {after}");
    }
    for gap in server.payloads(run, "source_reconnected") {
        let first = gap["frame_index"].as_u64().expect("a number") as usize;
        let times = [first - 1, first].map(|at| signals[at]["pts_ms"].as_i64().expect("a number"));
        let silent = gap["gap_ms"].as_i64().expect("a number");
        assert_eq!(gap["pts_ms"], times[1], "{gap}");
        // The time of media goes on as the clock does: the first connection is tried after a second.
        assert!(silent >= 900 && times[1] - times[0] == silent, "{gap} {times:?}");
        assert_eq!(gap["attempts"].as_u64().map(|tried| tried >= 1), Some(true), "{gap}");
    }
}
