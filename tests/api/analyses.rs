//! Analyses: their names, markers of the newest of a stream unless another is asked for, what they refuse, and what they say of
//! recorded frames.

use media::{EventType, Marker, RunId};
use serde_json::{Value, json};
use timeline::Event;

use crate::support::{Reply, Server, Setup, seed, shared};

/// A calm frame, of 25 a second.
pub fn frame(index: u64) -> Value {
    json!({
        "frame_index": index, "pts_ms": index * 40, "perceptual_hash": "00000000000000ff",
        "luma_mean": 0.5, "flicker_score": 0.1, "ghosting_score": 0.1,
        "noise_variance_score": 0.1, "scene_score": 0.0,
    })
}

/// Calm frames from `first` on, of which each second index is skipped: each has a marker of its own.
pub fn frames(first: u64, count: u64) -> Value {
    (first..first + count).map(|index| frame(index * 2)).collect()
}

fn analyze(server: &Server, run: &str, stream: &str, frames: &Value) -> Vec<Value> {
    let body = json!({"model": "qwen3-vl-8b", "stream_id": stream, "frames": frames});
    array(&server.post_run(run, "analyze", &body))
}

fn array(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()["markers"].as_array().expect("an array").clone()
}

fn made_by(markers: &[Value]) -> String {
    let id = markers[0]["analysis_id"].as_str().expect("a name").to_owned();
    assert!(id.strip_prefix("an-").is_some_and(|hex| hex.len() == 16), "{id}");
    assert!(markers.iter().all(|marker| marker["analysis_id"] == id), "{markers:?}");
    id
}

fn ids(markers: &[Value]) -> Vec<String> {
    let mut ids: Vec<_> = markers.iter().map(|marker| marker["marker_id"].to_string()).collect();
    ids.sort();
    ids
}

#[test]
fn markers_are_those_of_the_newest_analysis_unless_another_is_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    seed(dir.path());
    let setup = Setup::new(dir.path());
    let mut server = setup.start();
    let run = server.create_run();
    let path = format!("/v1/runs/{run}/markers");
    assert_eq!(array(&server.get(&path)), Vec::<Value>::new());
    let first = analyze(&server, &run, "main", &frames(0, 6));
    let other = analyze(&server, &run, "door", &frames(0, 2));
    // The same frames, and two more: what is alike gets other names.
    let second = analyze(&server, &run, "main", &frames(0, 8));
    let names = [made_by(&first), made_by(&other), made_by(&second)];
    let [one, two, three] = &names;
    assert!(one != two && two != three && one != three, "{names:?}");
    let listed = |query: &str| ids(&array(&server.get(&format!("{path}?{query}"))));
    let of = |all: &[&[Value]]| ids(&all.concat());
    assert_eq!(listed(""), of(&[&other, &second]));
    assert_eq!(listed(&format!("analysis_id={one}")), of(&[&first]));
    assert_eq!(listed(&format!("analysis_id={two}")), of(&[&other]));
    assert_eq!(listed("analysis_id=all"), of(&[&first, &other, &second]));
    assert_eq!(listed("analysis_id=an-0123456789abcdef"), Vec::<String>::new());
    for name in ["", "an-", "an-0123456789ABCDEF", "mk-0123456789abcdef", "newest"] {
        server.get(&format!("{path}?analysis_id={name}")).assert_invalid("analysis_id", name);
    }
    for query in ["cursor=1", "cursor=1.2.mk-1", "cursor=a.b.c"] {
        assert_eq!(server.get(&format!("{path}?{query}")).status, 422, "{query}");
    }
    let told = server.payloads(&run, "analysis_generated");
    assert!(told.iter().map(|payload| &payload["analysis_id"]).eq(&names), "{told:?}");

    server.restart(&setup);
    assert_eq!(ids(&array(&server.get(&path))), of(&[&other, &second]));
    let third = analyze(&server, &run, "main", &frames(0, 6));
    assert!(!names.contains(&made_by(&third)), "the count goes on where it was");
    assert_eq!(ids(&array(&server.get(&path))), of(&[&other, &third]));
    markers_of_older_logs_are_those_of_an_analysis_before_all_others(&server);
}

#[test]
fn analyses_at_once_share_no_name() {
    let server = shared();
    let run = server.create_run();
    let analyze = |count| {
        let body = json!({"model": "qwen3-vl-8b", "frames": frames(0, count)});
        server.post_run(&run, "analyze", &body)
    };
    // One at a time is taken; the others are told so, or wait their turn.
    let taken: Vec<String> = std::thread::scope(|scope| {
        let analyze = &analyze;
        let asks: Vec<_> = (1..9).map(|count| scope.spawn(move || analyze(count))).collect();
        let replies = asks.into_iter().map(|ask| ask.join().expect("answered"));
        let taken = replies.filter(|reply| reply.status == 200);
        taken.map(|reply| made_by(&array(&reply))).collect()
    });
    let mut names = taken.clone();
    names.sort();
    names.dedup();
    assert!(!names.is_empty() && names.len() == taken.len(), "{taken:?}");
}

#[test]
fn a_reasonings_markers_carry_the_name_that_its_analysis_has() {
    let server = shared().with_clips();
    let run = server.create_run();
    let body = json!({"source_uri": "motion.mp4", "model": "qwen3-vl-8b", "max_frames": 20});
    let reply = server.post_run(&run, "reason", &body);
    let markers = array(&reply);
    let told = server.payloads(&run, "analysis_generated");
    assert_eq!(told[0]["analysis_id"], made_by(&markers));
    assert_eq!(array(&server.get(&format!("/v1/runs/{run}/markers"))), markers);
}

const RUN: RunId = RunId::from_bytes([9; 16]);

/// A log of before analyses had names, with two analyses that gave one marker each.
fn seed(dir: &std::path::Path) {
    let log = seed::log(dir);
    let mut events = vec![seed::created("alice")];
    for number in 1..=2 {
        events.push(Event::AnalysisGenerated(seed::analysis("main")));
        let marker = seed::marker(RUN, EventType::SceneCut, number);
        events.push(Event::MarkerEmitted(Marker { origin: None, ..marker }));
    }
    seed::append(&log, RUN, events);
}

fn markers_of_older_logs_are_those_of_an_analysis_before_all_others(server: &Server) {
    let path = format!("/v1/runs/{RUN}/markers");
    let old = array(&server.get(&path));
    assert_eq!(old.len(), 2);
    assert!(old.iter().all(|marker| marker.get("analysis_id").is_none()), "{old:?}");
    let new = analyze(server, &RUN.to_string(), "main", &frames(0, 3));
    assert_eq!(array(&server.get(&path)), new);
    assert_eq!(array(&server.get(&format!("{path}?analysis_id=all"))).len(), 5);
}

#[test]
fn a_run_that_has_ended_is_a_conflict_before_its_frames_are_looked_for() {
    let server = shared();
    let run = server.create_run();
    let analyze = |model: &str| server.post_run(&run, "analyze", &json!({ "model": model }));
    assert_eq!(analyze("qwen3-vl-8b").fields(), ["frames"]);
    let unknown = json!({"model": "no-such-model", "frames": frames(0, 1)});
    server.post_run(&run, "analyze", &unknown).assert_invalid("model", "no such one");
    server.post_run(&run, "stop", &json!({})).assert_ok();
    analyze("qwen3-vl-8b").assert_status(409);
    assert_eq!(analyze("").status, 422, "the body comes first");
}

#[test]
fn a_name_that_is_none_of_a_list_is_answered_with_where_the_list_is() {
    let server = shared();
    let query = json!({"run_id": server.create_run(), "kind": "markers"});
    let kinds = server.post("/v1/query", &query).assert_invalid("kind", "a list's name").text;
    assert!(kinds.contains("marker_emitted") && kinds.contains("run_created"), "{kinds}");
    let models = server.post("/v1/runs", &json!({"model": "gpt"})).assert_invalid("model", "gpt");
    assert!(models.text.contains("GET /v1/models lists them"), "{}", models.text);
}

#[test]
fn recorded_frames_are_reported_as_they_were_decoded() {
    let server = shared().with_clips();
    let run = server.ingested(&json!({"source_uri": "motion.mp4", "sampling_policy": "fixed", "fixed_fps": 2, "max_frames": 6, "stream_id": "cam"}));
    let rows = [
        (json!({}), ""),
        (json!({"stream_id": "cam"}), ""),
        (json!({"stream_id": "other"}), "stream_id"),
        (json!({"sampling_policy": "fixed", "fixed_fps": 2}), ""),
        (json!({"sampling_policy": "fixed", "fixed_fps": 3}), "fixed_fps"),
        (json!({"sampling_policy": "fixed"}), "fixed_fps"),
        (json!({"sampling_policy": "source_fps_adaptive"}), "sampling_policy"),
    ];
    for (mut body, field) in rows {
        body["model"] = json!("qwen3-vl-8b");
        let reply = server.post_run(&run, "analyze", &body);
        assert_eq!(reply.fields().first().map_or("", |field| field), field, "{body}");
        assert_eq!(reply.status, if field.is_empty() { 200 } else { 422 }, "{body}");
        if field.is_empty() {
            let metadata = &reply.json()["metadata"][0];
            let found = (&metadata["sampling_policy"], &metadata["sample_fps"]);
            assert_eq!(found, (&json!("fixed"), &json!(2.0)), "{body}");
        }
    }
    let analysed = server.payloads(&run, "analysis_generated");
    assert_eq!(analysed.len(), 3);
    assert!(analysed.iter().all(|payload| payload["sampling_policy"] == "fixed"));
}

/// Metadata of an analysis without what names the run, the request and where the frames come from.
fn common(server: &Server, run: &str, body: &Value) -> Vec<Value> {
    let mut answer = server.post_run(run, "analyze", body).assert_ok().json();
    let metadata = answer["metadata"].as_array_mut().expect("an array");
    for frame in &mut *metadata {
        for name in ["run_id", "ordering_key", "trace"] {
            frame.as_object_mut().expect("an object").remove(name).expect("there");
        }
        frame["window"]["source"].take();
    }
    metadata.clone()
}

#[test]
fn frames_of_a_caller_are_told_as_those_of_an_ingest_are() {
    let server = shared().with_clips();
    let source = json!({"source_uri": "motion.mp4", "max_frames": 12,
        "sampling_policy": "fixed", "fixed_fps": 5});
    let run = server.ingested(&source);
    let mut body = json!({"model": "qwen3-vl-8b", "sampling_policy": "fixed", "fixed_fps": 5});
    let ingested = common(&server, &run, &body);
    body["frames"] = server.payloads(&run, "frames_decoded")[0]["signals"].take();
    assert_eq!(common(&server, &server.create_run(), &body), ingested);
}
