//! Reasoning where models fail, and where it is stopped: nothing stuck, nothing taken for an answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use scripted_model::Step;
use serde_json::{Value, json};

use super::reason::{LARGE, MODEL, finding, load, reason, state};
use crate::support::{
    Server, Setup, assert_has, is_of_frames,
    model::{Model, prompt},
    wait_until,
};

#[test]
fn what_a_model_gets_wrong_is_told_and_never_taken_for_an_answer() {
    let (long, short) = (60_000, 400);
    // With what a chunk and the run say of it.
    let misfit = ["does not match output_schema", "schema: "];
    let late = ["timeout", "timeout: no complete response within "];
    let rows: [(&str, Step, u64, [&str; 2]); 5] = [
        ("broken JSON", Step::chat("{"), long, misfit),
        ("another shape", Step::chat(r#"{"event_type": 7}"#), long, misfit),
        ("an error", Step::html(502), long, ["status 502", "http 502"]),
        ("no answer", Step::hang(), short, late),
        // Nobody asks for a while after it.
        ("too many questions", Step::rate_limited(Some("2")), long, ["rate limited"; 2]),
    ];
    // Each question holds the name of its row.
    let steps = rows.clone().map(|(name, step, ..)| (name, step));
    let model = Model::start(move |seen| {
        let said = prompt(seen);
        let step = steps.iter().find(|(name, _)| said.contains(&format!("Is it {name}?")));
        step.expect("a row").1.clone()
    });
    let setup = model.behind(Setup::temporary().clips());
    let server = setup.var("SERVICE_REASON_OUTAGE_MS", "0").start();
    for (name, _, timeout_ms, [expected, brief]) in rows {
        let run = server.create_run();
        let more = json!({
            "max_frames": 30, "semantic_timeout_ms": timeout_ms, "semantic_prompt": format!("Is it {name}?"),
        });
        let reply = reason(&server, &run, &more);
        assert_eq!(reply.status, 200, "{name}: {}", reply.text);
        let inferred = server.payloads(&run, "semantic_chunk_inferred");
        assert_eq!(inferred.len(), 1, "{name}");
        let error = inferred[0]["semantic_error"].as_str().unwrap_or_default();
        assert!(error.contains(expected), "{name}: {error}");
        let fields = ["provider", "tier", "model", "description", "confidence"];
        let told = fields.map(|field| inferred[0][field].clone());
        assert_eq!(json!(told), json!(["vllm", "first", MODEL, "", null]), "{name}: who failed");
        assert_eq!(inferred[0]["semantic_fallback_used"], true, "{name}");
        let answer = reply.json();
        let told = answer["semantic"]["error"].as_str().unwrap_or_default();
        assert!(told.starts_with(brief), "{name}: {told}");
        assert_eq!(answer["tokens"]["chunks_analyzed"], 0, "{name}");
        assert_eq!(answer["metadata"][0]["fallback"]["reason"], error, "{name}");
        assert_eq!(answer["metadata"][0]["annotations"]["events"][0]["type"], "keyframe_keep");
        let said = server.get(&format!("/v1/runs/{run}/interactions")).json();
        assert_eq!(said["count"], 0, "{name}");
        assert_eq!(state(&server, &run), "completed", "{name}");
    }
    // A short rest is waited for in the place and the question put once more; no outage is waited for.
    let seen = model.server.seen();
    let asked = seen.iter().filter(|seen| prompt(seen).contains("too many questions")).count();
    assert!((1..=2).contains(&asked), "{asked}");
}

#[test]
fn a_stop_gives_up_what_is_asked_and_keeps_what_is_known() {
    // The first two questions are answered, the others never.
    let model = Model::start(|seen| match seen.number {
        0 | 1 => Step::chat(&finding("van waits", 0.9)),
        _ => Step::hang(),
    });
    let server = model.behind(Setup::temporary().clips()).start();
    for (method, action, last) in [("POST", "/stop", 409), ("DELETE", "", 404)] {
        let (run, asked) = (server.create_run(), model.server.seen().len());
        std::thread::scope(|scope| {
            let asking =
                scope.spawn(|| reason(&server, &run, &json!({"semantic_timeout_ms": 120_000})));
            wait_until("questions are under way", || model.server.seen().len() >= asked + 3);
            let said = || server.payloads(&run, "semantic_chunk_generated").len();
            wait_until("what was said is recorded", || action.is_empty() || said() == 2);
            let stopped = Instant::now();
            let path = format!("/v1/runs/{run}{action}");
            assert_eq!(server.call(method, &path).send().status, 200);
            let reply = asking.join().expect("no panic");
            // The model would keep it for two minutes; it is asked to end within one second.
            let took = stopped.elapsed();
            println!("{action:?} ended the reasoning within {took:?}");
            assert!(took < Duration::from_secs(10), "{action:?} took {took:?}");
            assert_eq!(reply.status, last, "{}", reply.text);
        });
        wait_until("nothing is asked any more", || model.server.in_flight() == 0);
        wait_until("every place comes back", || load(&server) == 0.0);
        if action == "/stop" {
            let kinds = server.kinds(&run);
            assert_eq!(state(&server, &run), "cancelled");
            let count = |kind: &str| kinds.iter().filter(|known| *known == kind).count();
            assert_eq!(count("semantic_chunk_inferred"), 2, "{kinds:?}");
            assert_eq!((count("frames_decoded"), count("run_completed")), (1, 0), "{kinds:?}");
            assert_eq!(count("analysis_generated"), 1, "{kinds:?}");
            let markers = server.get(&format!("/v1/runs/{run}/markers")).json();
            let mut markers = markers["markers"].as_array().expect("an array").iter();
            assert!(markers.any(|marker| marker["event_type"] == "van_waits"), "{kinds:?}");
        }
    }
}

/// Has one reasoning more than there are cores begun, of a model that never answers, looks at them,
/// and stops them.
fn with_reasonings(server: &Server, more: &Value, look: impl FnOnce(&[String])) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runs: Vec<String> = (0..cores + 1).map(|_| server.create_run()).collect();
    std::thread::scope(|scope| {
        for run in &runs {
            scope.spawn(move || reason(server, run, more));
        }
        look(&runs);
        for run in &runs {
            assert_eq!(server.post_run(run, "stop", &json!({})).status, 200);
        }
    });
    wait_until("every place comes back", || load(server) == 0.0);
}

#[test]
fn reasonings_held_back_by_their_models_are_shown_and_hold_up_no_ingest_and_no_other() {
    let model = Model::start(|_| Step::hang());
    let server = model.behind(Setup::temporary().clips()).start();
    // More chunks than are asked about at once, and more frames than a pipe holds: decoding waits for answers.
    let more = json!({
        "source_uri": "street.mp4", "max_frames": 1000, "chunk_size": 5,
        "semantic_timeout_ms": 120_000,
    });
    let mut first = String::new();
    with_reasonings(&server, &more, |runs| {
        let record = |run: &String| server.record(run);
        let is_begun = |run: &&String| !record(run)["source_uri"].is_null();
        wait_until("as many as may have begun", || {
            runs.iter().filter(is_begun).count() == (runs.len() - 2).max(1)
        });
        let begun = runs.iter().find(is_begun).expect("one has begun");
        let shown = record(begun);
        assert_has(&shown, &json!({"source_uri": "street.mp4", "source": "file", "model": MODEL}));
        // A principal has no more under way.
        wait_until("four are asked", || model.server.seen().len() == 4);
        let mut kinds = server.kinds(begun);
        kinds.retain(|kind| !is_of_frames(kind));
        assert_eq!(kinds, ["run_created", "ingest_started"], "the rest is held back");
        first.clone_from(begun);
        let other = server.create_run();
        let ingest = json!({"source_uri": "talk.mp4", "max_frames": 10});
        server.post_run(&other, "ingest", &ingest).assert_ok();
    });
    let decoded = &server.payloads(&first, "frames_decoded")[0]["decoded_frames"];
    assert!(decoded.as_u64().is_some_and(|frames| frames < 1000), "{decoded}");
    // One chunk each: its source is decoded long before a model answers, and makes room for the next.
    let more = json!({"max_frames": 10, "semantic_timeout_ms": 120_000});
    with_reasonings(&server, &more, |runs| {
        wait_until("all have begun", || runs.iter().all(|run| state(&server, run) == "processing"));
    });
}

/// One of the ways in which a model can fail, drawn by the number of the question; now and then it
/// is down for so many questions that nobody asks it any more.
fn weather(number: u64) -> Step {
    let good = finding("van waits", 0.9);
    if number % 150 >= 110 {
        return Step::html(503);
    }
    match fastrand::Rng::with_seed(number).u64(..15) {
        0..=3 => Step::chat(&good),
        4 => Step::html(500),
        5 => Step::rate_limited(Some("0")),
        6 => Step::chat("{"),
        7 => Step::chat(r#"{"event_type": []}"#),
        8 => Step::hang(),
        9 => Step::close(),
        10 => Step::cut(good, 7),
        11 => Step::drip(good, Duration::from_millis(50)),
        12 => Step::raw("not HTTP"),
        13 => Step::chat(&"x".repeat(10_000_000)),
        _ => Step::chat_finished(&good, "length"),
    }
}

/// A run that reasons in bad weather, and its state at the end; stopped midway where `is_stopped`.
fn weathered(server: &Server, more: &Value, is_stopped: bool) -> (String, &'static str) {
    let run = server.create_run();
    let reply = std::thread::scope(|scope| {
        let reasoning = scope.spawn(|| reason(server, &run, more));
        if is_stopped {
            std::thread::sleep(Duration::from_millis(300));
            let stop = server.post_run(&run, "stop", &json!({})).status;
            assert!(matches!(stop, 200 | 409), "{stop}");
        }
        reasoning.join().expect("no panic")
    });
    match (reply.status, is_stopped) {
        (200, _) => (run, "completed"),
        (409, true) => (run, "cancelled"),
        (status, _) => panic!("{status}: {}", reply.text),
    }
}

#[test]
fn no_weather_leaves_a_run_stuck_or_a_place_taken() {
    let seconds = clips::sized(4, 60);
    let (chunk_size, chunks) = clips::sized((30, 3), (10, 9));
    let asked = Arc::new(AtomicUsize::new(0));
    // What is under way at the end is not waited for longer than it takes.
    let is_calm = Arc::new(AtomicBool::new(false));
    let (counted, calm) = (Arc::clone(&asked), Arc::clone(&is_calm));
    let model = Model::start(move |_| match calm.load(Ordering::SeqCst) {
        false => weather(counted.fetch_add(1, Ordering::SeqCst) as u64),
        true => Step::chat(&finding("van waits", 0.9)),
    });
    let setup = model.behind(Setup::temporary().clips());
    let server = setup.var("SERVICE_REASON_OUTAGE_MS", "1000").start();
    let until = Instant::now() + Duration::from_secs(seconds);
    let goes_on = || {
        let is_over = Instant::now() >= until;
        is_calm.fetch_or(is_over, Ordering::SeqCst);
        !is_over
    };
    let question = json!({"model": MODEL, "prompt": "p", "timeout_ms": 400});
    let batch = json!({"requests": vec![question; 8], "max_parallel": 4});
    let runs: Vec<(String, &str)> = std::thread::scope(|scope| {
        let loops: Vec<_> = (0..3_u64)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut runs = Vec::new();
                    while goes_on() {
                        let more = json!({
                            "chunk_size": chunk_size, "semantic_timeout_ms": 300 + 100 * number,
                            "temporal_chain": number == 2,
                            "second_pass_model": LARGE, "second_pass_threshold": 0.95,
                        });
                        runs.push(weathered(server, &more, runs.len() % 7 == 6));
                    }
                    runs
                })
            })
            .collect();
        scope.spawn(|| {
            while goes_on() {
                let reply = server.post("/v1/infer/batch", &batch);
                assert!(matches!(reply.status, 200 | 503), "{}", reply.text);
            }
        });
        loops.into_iter().flat_map(|one| one.join().expect("no panic")).collect()
    });
    let questions = asked.load(Ordering::SeqCst);
    println!("{} runs, {questions} questions in {seconds} s", runs.len());
    for (run, expected) in &runs {
        assert_eq!(state(&server, run), *expected);
        let inferred = server.payloads(run, "semantic_chunk_inferred");
        assert!(inferred.len() == chunks || *expected == "cancelled", "{}", inferred.len());
        for chunk in inferred {
            let failed = chunk["semantic_fallback_used"] == true;
            assert_eq!(chunk["event_type"] == "van_waits", !failed, "{chunk}");
            assert!(!failed || chunk["semantic_error"].is_string(), "{chunk}");
        }
    }
    wait_until("every place comes back", || load(&server) == 0.0);
}
