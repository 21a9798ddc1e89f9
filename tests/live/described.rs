//! Findings of models about live pictures, and their events: a real publisher, a scripted backend
//! that answers by the pictures it is shown.

use scripted_model::{Seen, Step, chat_body};
use serde_json::{Value, json};

use crate::support::{
    Server, Setup,
    model::{Model, prompt},
    wait_until,
    whip::{
        Publication, clip,
        shown::{finding, says, scenes},
        sightline,
    },
};

const FIRST: &str = "qwen3-vl-4b";
const SECOND: &str = "qwen3-vl-32b";
/// Tokens of an answer that uses up the allowance of a session of one token a second.
const LONG: u64 = 3600;
/// Seconds that the last scene goes on: time to describe all before the session ends.
const TAIL: u32 = 60;

/// Answer of the backend in the session of `case`, whose prompt names it.
fn answer(seen: &Seen) -> Step {
    let (asked, scenes) = (prompt(seen), scenes(seen));
    let is_second = seen.json()["model"] == SECOND;
    let alike = format!("the painted wall is that of scene {scenes}");
    if asked.contains("unsure") && !is_second {
        return says("no idea", 0.25);
    }
    if asked.contains("another state") && scenes != "A" {
        return says("nobody stands here any more", 0.9);
    }
    if asked.contains("one token a second") {
        let mut body = chat_body(&finding(&alike, 0.9), "stop");
        body["usage"] =
            json!({"prompt_tokens": 12, "completion_tokens": LONG, "total_tokens": 12 + LONG});
        return Step::json(200, &body);
    }
    says(&alike, 0.9)
}

/// A session: what its prompt says, what is attached beside it, what is sent, and the events that
/// come of it by presentation time.
struct Case {
    prompt: &'static str,
    attach: Value,
    scenes: &'static str,
    events: &'static [(i64, &'static str, &'static str)],
}

const A: &str = "the painted wall is that of scene A";
const B: &str = "the painted wall is that of scene B";
const C: &str = "the painted wall is that of scene C";

fn cases() -> Vec<Case> {
    vec![
        Case {
            prompt: "each scene",
            attach: json!({"index_name": "yard"}),
            scenes: "ABC",
            events: &[(0, "vlm", A), (1000, "vlm", B), (2000, "vlm", C)],
        },
        Case {
            prompt: "unsure of each scene",
            attach: json!({}),
            scenes: "AB",
            events: &[(0, "vlm_tiered", A), (1000, "vlm_tiered", B)],
        },
        Case {
            prompt: "clips",
            attach: json!({"clip_mode": {
                "target_fps": 5, "clip_length_seconds": 0.8, "delay_seconds": 0.2,
            }}),
            scenes: "ABC",
            events: &[
                (0, "clip_vlm", A),
                (0, "vlm", A),
                (1000, "clip_vlm", B),
                (1000, "vlm", B),
                (2000, "clip_vlm", C),
                (2000, "vlm", C),
            ],
        },
        Case {
            prompt: "unsure of clips",
            attach: json!({"clip_mode": {"clip_length_seconds": 0.8, "delay_seconds": 0.2}}),
            scenes: "AB",
            events: &[
                (0, "clip_vlm_tiered", A),
                (0, "vlm_tiered", A),
                (1000, "clip_vlm_tiered", B),
                (1000, "vlm_tiered", B),
            ],
        },
        Case {
            prompt: "another state",
            attach: json!({}),
            scenes: "ABC",
            events: &[
                (0, "vlm", A),
                (1000, "state_transition", "nobody stands here any more"),
                (1000, "vlm", "nobody stands here any more"),
                (2000, "vlm", "nobody stands here any more"),
            ],
        },
        Case {
            prompt: "a loop is told once, and what is said in it once",
            attach: json!({}),
            scenes: "ABABAC",
            events: &[
                (0, "vlm", A),
                (1000, "vlm", B),
                (2000, "vlm", A),
                (3000, "loop_detected", "the picture is again that of frame 25"),
                (5000, "vlm", C),
            ],
        },
        Case {
            prompt: "one token a second",
            attach: json!({"max_output_tokens_per_second": 1}),
            scenes: "ABC",
            events: &[(0, "vlm", A)],
        },
        Case {
            prompt: "the model of the session",
            attach: json!({"model": SECOND}),
            scenes: "A",
            events: &[(0, "vlm", A)],
        },
    ]
}

/// Kinds of events that come of models and of what they are shown.
const KINDS: [&str; 6] =
    ["clip_vlm", "clip_vlm_tiered", "loop_detected", "state_transition", "vlm", "vlm_tiered"];

/// The time of the scene that is shown at `pts_ms`: a busy machine may leave out its first frames.
fn scene_ms(pts_ms: i64) -> i64 {
    pts_ms / 1000 * 1000
}

/// Number of items that a busy machine has dropped so far. Where there are any, some events are
/// missing, and those that are there are looked at all the same.
fn left_out(server: &Server) -> f64 {
    let shed = ["pictures", "stills", "keyframes", "clips"]
        .map(|what| server.metric(&format!("service_live_shed_total{{what=\"{what}\"}}")));
    shed.iter().sum::<f64>() + server.metric("service_live_packets_lost_total")
}

/// Events of a run about the pictures before `end_ms`, by presentation time.
fn told(server: &Server, run: &str, end_ms: i64) -> Vec<(i64, String, Value)> {
    let mut told: Vec<_> = server
        .events(run)
        .into_iter()
        .filter_map(|event| {
            let kind = event["kind"].as_str().filter(|kind| KINDS.contains(kind))?.to_owned();
            let payload = event["payload"].clone();
            let pts_ms = payload["pts_ms"].as_i64().filter(|pts_ms| *pts_ms < end_ms)?;
            Some((pts_ms, kind, payload))
        })
        .collect();
    told.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    told
}

/// The fields that every event of a session has, and those of one that a model answered.
fn check_fields(case: &Case, session: &Value, kind: &str, payload: &Value) {
    let name = format!("{}: {kind}: {payload}", case.prompt);
    assert_eq!(&payload["session_id"], session, "{name}");
    // Frames are numbered as they come: a busy machine may leave some out.
    let frame_ms =
        payload["frame_index"].as_i64().map(|frame| frame * 1000 / i64::from(clip::RATE));
    assert!(frame_ms.is_some() && frame_ms <= payload["pts_ms"].as_i64(), "{name}");
    assert_eq!(payload["index_name"], case.attach["index_name"], "{name}");
    assert!(payload["confidence"].as_f64().is_some_and(|sure| sure > 0.0), "{name}");
    if !kind.contains("vlm") {
        assert!(payload["provider"].is_null() && payload["total_tokens"].is_null(), "{name}");
        return;
    }
    let is_second = kind.ends_with("_tiered");
    let named = case.attach["model"].as_str();
    let model = named.unwrap_or(if is_second { SECOND } else { FIRST });
    assert_eq!(
        (&payload["provider"], &payload["model"]),
        (&json!("vllm"), &json!(model)),
        "{name}"
    );
    // A first pass that is not believed has taken its tokens too.
    let (passes, is_long) = (1 + u64::from(is_second), case.prompt.contains("one token"));
    let said = if is_long { LONG } else { 5 };
    let tokens = (&payload["total_tokens"], &payload["completion_tokens"]);
    assert_eq!(tokens, (&json!((12 + said) * passes), &json!(said * passes)), "{name}");
    assert_eq!(payload["confidence"], 0.9, "{name}");
    assert_eq!(payload["event_type"], "wall_painted", "{name}");
    assert_eq!(payload["object_label"], "wall", "{name}");
    assert_eq!(payload["summary"], "a wall", "{name}");
    assert!(payload["inference_latency_ms"].is_u64(), "{name}");
    assert_eq!(payload["attempts"], passes, "{name}");
    assert!(payload["prompt_version"].is_string(), "{name}");
    assert!(payload["semantic_error"].is_null() && payload["reused_from_seq"].is_null(), "{name}");
    let span =
        payload["end_pts_ms"].as_i64().map(|end| end - payload["pts_ms"].as_i64().unwrap_or(0));
    let is_clip = kind.starts_with("clip");
    assert_eq!(span.is_some_and(|span| (600..=800).contains(&span)), is_clip, "{name}");
}

#[test]
fn what_is_told_of_live_pictures() {
    let Some(sightline) = sightline() else { return };
    let model = Model::start(answer);
    let setup = model.behind(Setup::temporary());
    let server = setup
        .var("SERVICE_LIVE_SECOND_PASS_MODEL", SECOND)
        .var("SERVICE_LIVE_MODEL", FIRST)
        .var("SERVICE_GATE_KEEPALIVE_FRAMES", "0")
        .start();
    let cases = cases();
    // The worker that all of them share starts with the first.
    let first = clip::scenes("A", TAIL);
    let warm = Publication::start(&sightline, &server, &first, &json!({}), &[]);
    let stills = || server.payloads(&warm.run, "keyframe_stored").len();
    wait_until("a worker that runs", || stills() > 0);
    let started = cases.iter().map(|case| {
        let file = clip::scenes(case.scenes, TAIL);
        let mut attach = case.attach.clone();
        attach["prompt"] = json!(case.prompt);
        Publication::start(&sightline, &server, &file, &attach, &[])
    });
    let published: Vec<Publication> = started.collect();
    let shed = |what: &str| server.metric(&format!("service_live_shed_total{{what=\"{what}\"}}"));
    wait_until("what one token a second and a loop leave out", || {
        let is_all = shed("token_rate") >= 2.0 && shed("repeats") >= 2.0;
        is_all || left_out(&server) > 0.0
    });
    drop(warm);
    for (case, publication) in cases.iter().zip(published) {
        check(&server, case, publication);
    }
    let (tokens, repeats, left_out) = (shed("token_rate"), shed("repeats"), left_out(&server));
    let is_all = (tokens, repeats) == (2.0, 2.0);
    assert!(is_all || left_out > 0.0, "{tokens} by tokens, {repeats} repeats");
    println!("{left_out} pictures, packets and what is made of them were left out");
}

/// Ends the session of `case` once all is told that is expected, and checks it.
fn check(server: &Server, case: &Case, publication: Publication) {
    let (run, end_ms) = (publication.run.clone(), 1000 * case.scenes.len() as i64);
    wait_until(case.prompt, || {
        let is_told = told(server, &run, end_ms).len() >= case.events.len();
        let stills = server.payloads(&run, "keyframe_stored");
        let is_kept = stills.len() >= case.scenes.len();
        // The last scene is described: nothing more comes of the others.
        let is_over = told(server, &run, end_ms).last().map(|told| scene_ms(told.0) + 1000);
        let is_over = is_over == Some(end_ms) && left_out(server) > 0.0;
        is_told && is_kept || is_over
    });
    publication.interrupt();
    assert_eq!(publication.finish().1["connected"], 1, "{}", case.prompt);
    let told = told(server, &run, end_ms);
    let short: Vec<_> = told
        .iter()
        .map(|(pts, kind, payload)| {
            (scene_ms(*pts), kind.as_str(), payload["description"].as_str().expect("text"))
        })
        .collect();
    let is_all = left_out(server) == 0.0;
    assert!(!is_all || short == case.events, "{}: {short:?} {:?}", case.prompt, server.kinds(&run));
    assert!(!short.is_empty(), "{}: {:?}", case.prompt, server.kinds(&run));
    let session = &server.get(&format!("/v1/runs/{run}")).json()["session_id"];
    for (_, kind, payload) in &told {
        check_fields(case, session, kind, payload);
    }
    let stills = server.payloads(&run, "keyframe_stored").len();
    assert!(!is_all || stills == case.scenes.len(), "{}: {stills}, one a scene", case.prompt);
    assert_eq!(server.kinds(&run).last().map(String::as_str), Some("run_completed"));
}

#[test]
fn what_ends_before_it_is_described_is_counted() {
    let Some(sightline) = sightline() else { return };
    // Longer than what is left to a session that has ended.
    let model = Model::start(|_| Step::hang());
    let server = model
        .behind(Setup::temporary())
        .var("SERVICE_LIVE_MODEL", FIRST)
        .var("SERVICE_GATE_KEEPALIVE_FRAMES", "0")
        .start();
    let file = clip::scenes("ABCA", TAIL);
    let publication = Publication::start(&sightline, &server, &file, &json!({}), &[]);
    let run = publication.run.clone();
    let shed = |what: &str| server.metric(&format!("service_live_shed_total{{what=\"{what}\"}}"));
    let selected = || server.metric("service_pipeline_gate_keyframes_selected_total");
    wait_until("four scenes", || selected() >= 4.0);
    let progress = &server.get(&format!("/v1/runs/{run}/state")).json()["progress"];
    assert!(progress["frames"].as_u64().is_some_and(|frames| frames > 75), "{progress}");
    publication.interrupt();
    publication.finish();
    assert_eq!(server.kinds(&run).last().map(String::as_str), Some("run_completed"));
    // One was asked about, two waited, and the others made room.
    assert_eq!(server.metric("service_pipeline_keyframes_total"), 1.0);
    assert_eq!(shed("ended"), 3.0);
    assert_eq!(shed("keyframes") + shed("ended") + shed("stills"), selected());
}
