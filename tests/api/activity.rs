//! Episodes of activity: told as events, listed with their stills, by zones, and tried with other thresholds.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    api::{
        analyses::frame,
        camera::{self, ball, watching},
        remote_rtsp::Camera,
        stream::Stream,
    },
    support::{Server, Setup, assert_has, with},
};

/// Both halves of the picture, and a strip below the boxes of [`clips::passing`].
pub fn halves() -> Value {
    json!([
        {"name": "left", "polygon": [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]]},
        {"name": "right", "polygon": [[0.5, 0.0], [1.0, 0.0], [1.0, 1.0], [0.5, 1.0]]},
        {"name": "below", "polygon": [[0.0, 0.8], [1.0, 0.8], [1.0, 1.0], [0.0, 1.0]]},
    ])
}

pub fn start(setup: Setup) -> Server {
    setup.root(clips::passing().parent().expect("a folder")).start()
}

/// Ingests what passes, with `more` fields.
pub fn ingested(server: &Server, run: &str, more: Value) {
    let body = with(json!({"source_uri": "passing.mp4"}), &more);
    server.post_run(run, "ingest", &body).assert_ok();
}

pub fn activity(server: &Server, run: &str, query: &str) -> Vec<Value> {
    let reply = server.get(&format!("/v1/runs/{run}/activity{query}"));
    assert_eq!(reply.status, 200, "{query}: {}", reply.text);
    reply.json()["episodes"].as_array().expect("an array").clone()
}

/// Zones of the recordings of a run.
pub fn watched(server: &Server, run: &str, query: &str) -> Value {
    server.get(&format!("/v1/runs/{run}/activity{query}")).json()["watched"].take()
}

fn ms(episode: &Value, field: &str) -> i64 {
    episode[field].as_i64().unwrap_or_else(|| panic!("no {field}: {episode}"))
}

/// Two episodes, at the right times and places, in these zones.
pub fn assert_passes(episodes: &[Value], zones: [Value; 2]) {
    assert_eq!(episodes.len(), 2, "{episodes:?}");
    for ((episode, zones), start) in episodes.iter().zip(zones).zip([2000, 7000]) {
        assert!((start - 40..=start + 200).contains(&ms(episode, "start_pts_ms")), "{episode}");
        let end = ms(episode, "end_pts_ms");
        assert!((start + 1900..=start + 2900).contains(&end), "{episode}");
        assert_eq!(episode["zones"], zones);
        let side = |name: &str| episode["region"][name].as_f64().expect("a fraction");
        let (left, right) = (side("x"), side("x") + side("width"));
        assert!(if start == 2000 { right < 0.6 } else { left > 0.5 }, "{episode}");
        assert!((0.0015..0.2).contains(&episode["peak_score"].as_f64().expect("a score")));
    }
}

#[test]
fn episodes_are_told_and_listed_and_tried_with_other_thresholds() {
    let server = start(Setup::temporary());
    let run = server.create_run();
    ingested(&server, &run, json!({"zones": halves()}));
    episodes_have_the_zones_that_they_touch(&server, &run);
    other_thresholds_give_other_episodes_without_a_trace(&server, &run);
}

fn episodes_have_the_zones_that_they_touch(server: &Server, run: &str) {
    let episodes = activity(server, run, "");
    assert_passes(&episodes, [json!(["left"]), json!(["right"])]);
    let stills = server.payloads(run, "keyframe_stored");
    let of_frame: HashMap<u64, &Value> = stills
        .iter()
        .map(|still| (still["frame_index"].as_u64().expect("a frame"), &still["image_sha256"]))
        .collect();
    let ended = server.payloads(run, "activity_ended");
    for (episode, ended) in episodes.iter().zip(&ended) {
        let peak = episode["peak_frame"].as_u64().expect("a frame");
        assert_eq!(&episode["image_sha256"], of_frame[&peak], "the peak has a still");
        for (field, value) in episode.as_object().expect("an object") {
            assert!(field == "image_sha256" || ended[field] == *value, "{field}: {ended}");
        }
        let start = episode["start_frame"].as_u64().expect("a frame");
        let still = stills.iter().find(|still| still["frame_index"] == start).expect("a still");
        assert_eq!(still["reason"], "activity_started");
    }
    let reasons: Vec<&str> = stills.iter().filter_map(|still| still["reason"].as_str()).collect();
    assert_eq!(reasons.iter().filter(|reason| **reason == "activity_settled").count(), 2);
    let decoded = server.payloads(run, "frames_decoded");
    assert_eq!(decoded[0]["zones"], halves());
    // The events of a zone, by their kinds and page by page; `search.rs` finds them by its name.
    let rows = [
        ("zone=left", vec!["activity_started", "activity_ended"]),
        ("zone=left&kind=activity_ended", vec!["activity_ended"]),
        ("zone=right&limit=1", vec!["activity_started"]),
        ("zone=right&kind=frames_decoded", vec![]),
        ("zone=below", vec![]),
        ("zone=lef", vec![]),
    ];
    for (query, expected) in rows {
        let reply = server.get(&format!("/v1/runs/{run}/events?{query}"));
        let events = reply.json()["events"].as_array().expect("an array").clone();
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
        assert_eq!(kinds, expected, "{query}");
        assert_eq!(reply.header("link").is_empty(), !query.contains("limit"), "{query}");
    }
    // Pages, times, streams.
    let path = format!("/v1/runs/{run}/activity?limit=1");
    let page = server.get(&path);
    assert_eq!(page.json()["episodes"], json!([episodes[0]]));
    let page = server.get(&page.next_page().expect("a link"));
    assert_eq!(page.json()["episodes"], json!([episodes[1]]));
    let told = page.json();
    assert!(told["request_id"].is_string() && told["run_id"] == json!(run));
    let rows = [
        ("?from=-5", &episodes[..]),
        ("?from=5000", &episodes[1..]),
        ("?from=60000", &[]),
        ("?stream_id=main", &episodes),
        ("?stream_id=other", &[]),
    ];
    for (query, expected) in rows {
        assert_eq!(activity(server, run, query), expected, "{query}");
    }
    assert!(activity(server, &server.create_run(), "").is_empty());
}

fn other_thresholds_give_other_episodes_without_a_trace(server: &Server, run: &str) {
    let before = server.events(run);
    let tried = |more: &Value| {
        let body = with(json!({"model": "qwen3-vl-8b", "dry_run": true}), more);
        server.post_run(run, "analyze", &body).assert_ok().json()["dry_run"].take()
    };
    // `zones.rs` tries the recording's own.
    let deaf = tried(&json!({"gate": {"activity_on": 1, "activity_off": 0.5}}));
    assert_has(&deaf, &json!({"episode_count": 0, "episodes": []}));
    assert_eq!(deaf["after"]["reasons"]["activity_started"], 0);
    assert!(deaf["changed_frames"].as_u64().is_some_and(|changed| changed >= 4));
    // Signals of a caller may tell of it too.
    let scored = |index: u64| {
        let score = if (10..20).contains(&index) { 0.1 } else { 0.0 };
        with(frame(index), &json!({"pts_ms": index * 100, "activity_score": score}))
    };
    let frames: Value = (0..50).map(scored).collect();
    let told = tried(&json!({ "frames": frames }));
    let expected = json!({"start_frame": 10, "end_frame": 19, "region": null});
    assert_has(&told["episodes"][0], &expected);
    assert_eq!(server.events(run), before);
}

#[test]
fn a_camera_tells_of_an_episode_while_it_lasts() {
    let camera = Camera::start("none", &[ball("")]);
    let server = watching().start();
    let whole = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];
    let all = json!([{"name": "all", "polygon": whole}]);
    let run = camera::begin(&server, camera.port, "ingest", &json!({ "zones": all }));
    let mut stream = Stream::open(&server, &format!("/v1/runs/{run}/events/stream"), None);
    let started = Instant::now();
    let told = loop {
        assert!(started.elapsed() < Duration::from_secs(30), "nothing moves");
        let event = stream.event();
        if event.event == "activity_started" {
            break event.data["payload"].clone();
        }
    };
    assert_eq!(told["zones"], json!(["all"]));
    let lasting = activity(&server, &run, "");
    assert_eq!(lasting.len(), 1, "{lasting:?}");
    assert_eq!(watched(&server, &run, "")[0]["zones"], all, "while it grows");
    let start = &told["start_frame"];
    assert_has(&lasting[0], &json!({"start_frame": start, "end_frame": null, "end_pts_ms": null}));
    assert!(lasting[0]["image_sha256"].is_string(), "{lasting:?}");
    server.post_run(&run, "stop", &json!({})).assert_ok();
    server.wait_for_event(&run, "activity_ended");
    let over = activity(&server, &run, "");
    assert_eq!(over.len(), 1, "{over:?}");
    assert!(over[0]["end_frame"].is_u64() && over[0]["image_sha256"].is_string(), "{over:?}");
}
