//! Thresholds of the gate that a caller chooses: tried without a trace, or recorded.

use serde_json::{Value, json};

use timeline::{Event, Signals};

use crate::{
    api::{analyses::frame, search::write, signals::decoded},
    support::{Server, Setup, assert_has, seed, shared, with},
};

/// Ten frames, of which the fifth flickers below the server's threshold and the eighth is a weak cut.
fn frames() -> Value {
    let scored = |index: u64| match index {
        5 => with(frame(index), &json!({"flicker_score": 0.5})),
        8 => with(frame(index), &json!({"scene_score": 0.4})),
        _ => frame(index),
    };
    (0..10).map(scored).collect()
}

fn analyze(server: &Server, run: &str, more: Value) -> Value {
    let body = with(json!({"model": "qwen3-vl-8b"}), &more);
    server.post_run(run, "analyze", &body).assert_ok().json()
}

/// Types and first frames of markers.
fn outline(answer: &Value) -> Vec<(&str, u64)> {
    let markers = answer["markers"].as_array().expect("an array").iter();
    let of = markers.map(|it| (it["event_type"].as_str(), it["start_frame"].as_u64()));
    of.map(|(name, frame)| (name.expect("a type"), frame.expect("a frame"))).collect()
}

const CALM: &str = "context_observation";

#[test]
fn an_analysis_has_the_thresholds_that_it_is_given_and_records_them() {
    let server = shared();
    let run = server.create_run();
    let server_own = json!({
        "keepalive_frames": 0, "keepalive_ms": 2000, "scene_cut": 0.5, "luma_shift": 0.15, "flicker": 0.55,
        "ghosting": 0.55, "noise": 0.55, "activity_on": 0.0015, "activity_off": 0.0011,
    });
    let plain = [("keyframe_keep", 0), (CALM, 1)];
    let keen = [
        ("keyframe_keep", 0),
        (CALM, 1),
        ("artifact_suspected", 5),
        (CALM, 6),
        ("scene_cut", 8),
        (CALM, 9),
    ];
    let changed = json!({"flicker": 0.5, "scene_cut": 0.25});
    let rows = [
        (json!({}), json!({}), &plain[..]),
        (json!({"gate": {}}), json!({}), &plain),
        (json!({"gate": changed}), changed, &keen),
        (json!({"gate": null}), json!({}), &plain),
    ];
    for (at, (more, changed, expected)) in rows.into_iter().enumerate() {
        let mut more = more;
        more["frames"] = frames();
        let answer = analyze(&server, &run, more);
        assert_eq!(outline(&answer), expected, "{changed}");
        let gate = with(server_own.clone(), &changed);
        assert_eq!(server.payloads(&run, "analysis_generated")[at]["gate"], gate);
        assert!(answer.get("dry_run").is_none());
    }
}

#[test]
fn a_dry_run_tells_what_would_change_and_leaves_no_trace() {
    let server = shared();
    let run = server.create_run();
    let dry = |gate: Value| json!({"frames": frames(), "gate": gate, "dry_run": true});
    // There is no analysis yet: the server's own thresholds are what it is compared with.
    let first = analyze(&server, &run, dry(json!({"flicker": 0.5})));
    assert_eq!(first["dry_run"]["compared_with"], Value::Null);
    assert_eq!(server.kinds(&run), ["run_created"]);

    let made = analyze(&server, &run, json!({"frames": frames(), "gate": {"flicker": 0.5}}));
    let before = server.events(&run);
    let answer = analyze(&server, &run, dry(json!({"scene_cut": 0.25})));
    assert_eq!(server.events(&run), before, "nothing is appended");
    let told = &answer["dry_run"];
    assert_eq!(told["compared_with"], made["markers"][0]["analysis_id"]);
    let verdict = |reason: &str, kept: bool| json!({"reason": reason, "kept": kept});
    let (calm, flickers) = (verdict("no_trigger", false), verdict("flicker_suspected", true));
    let expected = json!([
        {"frame_index": 5, "pts_ms": 200, "before": flickers, "after": calm},
        {"frame_index": 8, "pts_ms": 320, "before": calm, "after": verdict("scene_cut", true)},
    ]);
    assert_eq!((&told["differences"], &told["changed_frames"]), (&expected, &json!(2)));
    let counts = |side: &Value| (side["kept"].clone(), side["reasons"]["scene_cut"].clone());
    assert_eq!(counts(&told["before"]), (json!(2), json!(0)));
    assert_eq!(counts(&told["after"]), (json!(2), json!(1)));
    let gates = (&told["before"]["gate"]["flicker"], &told["after"]["gate"]["flicker"]);
    assert_eq!(gates, (&json!(0.5), &json!(0.55)));
    let types = json!({"keyframe_keep": 1, "context_observation": 2, "scene_cut": 1});
    assert_eq!(told["marker_types"], types);
    let expected = [("keyframe_keep", 0), (CALM, 1), ("scene_cut", 8), (CALM, 9)];
    assert_eq!(outline(&answer), expected);
    assert_eq!((&answer["generated"], &answer["metadata"]), (&json!(10), &json!([])));
    // What is made then has the very markers that were told.
    let made = analyze(&server, &run, json!({"frames": frames(), "gate": {"scene_cut": 0.25}}));
    assert_eq!(made["markers"], answer["markers"]);
    // What has ended can be tried, and keeps its analyses.
    assert_eq!(server.post_run(&run, "finish", &json!({})).status, 200);
    let tried = analyze(&server, &run, dry(json!({"scene_cut": 0.25})));
    assert_eq!(tried["dry_run"]["changed_frames"], 0, "the newest analysis has these thresholds");
    server.post_run(&run, "analyze", &json!({"model": "qwen3-vl-8b"})).assert_status(409);
}

#[test]
fn a_recording_keeps_its_own_thresholds_and_an_analysis_of_it_uses_them() {
    let server = shared().with_clips();
    let gate = json!({
        "keepalive_frames": 5, "scene_cut": 1, "luma_shift": 1, "flicker": 1, "ghosting": 1, "noise": 1,
        "activity_on": 1, "activity_off": 1,
    });
    let kept = |run: &str| -> Vec<u64> {
        let stills = server.payloads(run, "keyframe_stored");
        stills.iter().filter_map(|still| still["frame_index"].as_u64()).collect()
    };
    let source = json!({"source_uri": "motion.mp4", "max_frames": 20, "gate": gate});

    let run = server.create_run();
    server.post_run(&run, "ingest", &source).assert_ok();
    assert_eq!(kept(&run), [0, 5, 10, 15]);
    let recorded = json!({
        "keepalive_frames": 5, "scene_cut": 1.0, "luma_shift": 1.0, "flicker": 1.0, "ghosting": 1.0,
        "noise": 1.0, "activity_on": 1.0, "activity_off": 1.0,
    });
    assert_eq!(server.payloads(&run, "frames_decoded")[0]["gate"], recorded);
    analyze(&server, &run, json!({}));
    analyze(&server, &run, json!({"gate": {"keepalive_frames": 7}}));
    let generated = server.payloads(&run, "analysis_generated");
    assert_eq!(generated[0]["gate"], recorded);
    let mut other = recorded.clone();
    other["keepalive_frames"] = json!(7);
    assert_eq!(generated[1]["gate"], other);

    let run = server.create_run();
    let mut source = source;
    source["model"] = json!("qwen3-vl-8b");
    server.post_run(&run, "reason", &source).assert_ok();
    assert_eq!(kept(&run), [0, 5, 10, 15]);
    assert_eq!(server.payloads(&run, "analysis_generated")[0]["gate"], recorded);

    // A keepalive in time alone is in place of the one in frames.
    let run = server.create_run();
    let mut gate = gate;
    gate.as_object_mut().expect("an object").remove("keepalive_frames");
    gate["keepalive_ms"] = json!(200);
    let timed = json!({"source_uri": "motion.mp4", "max_frames": 20, "gate": gate});
    server.post_run(&run, "ingest", &timed).assert_ok();
    let frames = &server.payloads(&run, "frames_decoded")[0];
    let multiples = |at: usize| frames["signals"][at]["pts_ms"].as_i64().expect("a time") / 200;
    let first = |at: &usize| *at == 0 || multiples(*at) > multiples(at - 1);
    assert_eq!(kept(&run), (0..20).filter(first).map(|at| at as u64).collect::<Vec<_>>());
    assert_has(&frames["gate"], &json!({"keepalive_ms": 200, "keepalive_frames": 0}));
}

#[test]
fn a_recording_is_judged_by_the_settings_that_it_was_made_with() {
    let dir = tempfile::tempdir().expect("a directory");
    let older = Event::FramesDecoded(decoded(Signals::Inline(Vec::new())));
    write(dir.path(), vec![(1, seed::created("alice")), (1, older)]);
    let older = media::RunId::from_bytes([1; 16]).to_string();
    let server = |keepalive: &str| {
        let setup = Setup::new(dir.path()).root(&crate::support::clips());
        setup.var("SERVICE_GATE_KEEPALIVE_FRAMES", keepalive).start()
    };
    let keepalive = |told: &Value| told["keepalive_frames"].clone();
    let thresholds = |server: &Server, run: &str| {
        keepalive(&server.get(&format!("/v1/runs/{run}/signals")).json()["thresholds"])
    };

    let made = server("5");
    let run = made.create_run();
    let source = json!({"source_uri": "motion.mp4", "max_frames": 20});
    made.post(&format!("/v1/runs/{run}/ingest"), &source).assert_ok();
    let decoded = &made.payloads(&run, "frames_decoded")[0];
    assert_eq!(keepalive(&decoded["gate"]), 5);
    let signals = |server: &Server| {
        let mut told = server.get(&format!("/v1/runs/{run}/signals")).json();
        told["request_id"].take();
        told
    };
    let before = signals(&made);
    assert_eq!(thresholds(&made, &older), 5);
    drop(made);

    let later = server("7");
    assert_eq!(signals(&later), before);
    let tried = analyze(&later, &run, json!({"dry_run": true}))["dry_run"].take();
    let gates = ["before", "after"].map(|side| keepalive(&tried[side]["gate"]));
    assert_eq!((gates, &tried["changed_frames"]), ([json!(5), json!(5)], &json!(0)));
    analyze(&later, &run, json!({}));
    assert_eq!(keepalive(&later.payloads(&run, "analysis_generated")[0]["gate"]), 5);
    assert_eq!(thresholds(&later, &older), 7, "it does not say");
}

#[test]
fn a_mode_is_a_keepalive_that_thresholds_go_before() {
    let server = shared().with_clips();
    let keepalive = |gate: &Value| (gate["keepalive_frames"].clone(), gate["keepalive_ms"].clone());
    let own = (json!(0), json!(2000));
    let rows = [
        (json!({"mode": "custom"}), json!({}), own.clone()),
        (json!({"mode": "detailed"}), json!({}), (json!(30), Value::Null)),
        (json!({"mode": "efficiency"}), json!({"flicker": 1}), (json!(0), json!(10_000))),
        (json!({"mode": "efficiency"}), json!({"keepalive_frames": 7}), (json!(7), Value::Null)),
    ];
    for (mode, gate, expected) in rows {
        let run = server.post("/v1/runs", &mode).run();
        let body = json!({"source_uri": "motion.mp4", "max_frames": 9, "gate": gate});
        server.post_run(&run, "ingest", &body).assert_ok();
        let signals = server.get(&format!("/v1/runs/{run}/signals")).json();
        assert_eq!(keepalive(&signals["thresholds"]), expected, "{mode} {gate}");
        let rows = [
            (json!({}), expected),
            (json!({"mode": "detailed"}), (json!(30), Value::Null)),
            (json!({"mode": "detailed", "gate": {"keepalive_ms": 50}}), (json!(0), json!(50))),
            (json!({"mode": "balanced"}), own.clone()),
        ];
        for (mut more, expected) in rows {
            more["dry_run"] = json!(true);
            let answer = analyze(&server, &run, more.clone());
            let found = keepalive(&answer["dry_run"]["after"]["gate"]);
            assert_eq!(found, expected, "{mode} {gate}, {more}");
        }
    }
}
