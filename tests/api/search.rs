//! Search over HTTP: limits, ownership, what counts as a description, folding, restarts.

use std::path::Path;

use media::{Label, RequestId, RunId, Score};
use serde_json::{Value, json};
use timeline::{
    ActivityEpisode, Event, FindingKind, FindingPayload, KeyframeStored, NewEvent, Pass,
    RunDeleted, SemanticChunkInferred, TokenCounts,
};

use crate::support::{BOB, Server, Setup, seed};

const REQUEST: RequestId = RequestId::from_bytes([1; 8]);

fn run(number: u8) -> RunId {
    RunId::from_bytes([number; 16])
}

fn found(kind: FindingKind, description: &str) -> Event {
    let description = description.to_owned();
    let (session_id, confidence) = (None, Score::ONE);
    Event::Found(
        kind,
        FindingPayload {
            session_id,
            frame_index: 3,
            pts_ms: 120,
            confidence,
            description,
            ..FindingPayload::default()
        },
    )
}

fn still(description: &str) -> Event {
    let description = description.to_owned();
    Event::KeyframeStored(KeyframeStored { description, ..seed::still(1) })
}

fn episode(zones: &[&str]) -> ActivityEpisode {
    ActivityEpisode {
        request_id: REQUEST,
        stream_id: "main".parse().expect("an id"),
        session_id: None,
        start_frame: 2,
        end_frame: None,
        start_pts_ms: 80,
        end_pts_ms: None,
        peak_score: Score::ONE,
        peak_frame: 2,
        region: media::CellBox::default(),
        zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
    }
}

fn chunk(description: &str, summary: &str, index: Option<&str>) -> Event {
    Event::SemanticChunkInferred(answer(description, summary, index))
}

/// Answer of a model about a chunk.
pub fn answer(description: &str, summary: &str, index: Option<&str>) -> SemanticChunkInferred {
    SemanticChunkInferred {
        request_id: REQUEST,
        stream_id: "main".parse().expect("an id"),
        chunk_index: 0,
        provider: None,
        provider_fallback_used: false,
        semantic_fallback_used: false,
        semantic_error: None,
        event_type: media::EventType::SceneCut,
        object_label: None,
        summary: summary.to_owned(),
        description: description.to_owned(),
        confidence: Some(Score::ONE),
        raw_output: "the red raw output".to_owned(),
        output: None,
        tokens: TokenCounts::default(),
        inference_latency_ms: 1,
        tier: Some(Pass::First),
        model: Some("m".to_owned()),
        attempts: Some(1),
        prompt_version: Some("describe-1".to_owned()),
        start_pts_ms: None,
        end_pts_ms: None,
        reused_from_seq: None,
        index_name: index.map(|name| name.parse::<Label>().expect("a label")),
        truncated: false,
    }
}

/// Writes a log as a server with a model would have left it, before the server starts.
pub fn write(data: &Path, events: Vec<(u8, Event)>) {
    let batch = events.into_iter().map(|(number, event)| NewEvent { run: run(number), event });
    seed::log(data).append_wait(batch.collect()).expect("durable");
}

/// Seqs 1 to 18 over two runs of Alice's, a deleted one of hers, and one of Bob's.
fn library() -> Vec<(u8, Event)> {
    use FindingKind::{ClipVlm, StateTransition, Vlm};
    vec![
        (1, seed::created("alice")),
        (2, seed::created("alice")),
        (3, seed::created("alice")),
        (4, seed::created("bob")),
        (1, found(Vlm, "A Red Car on the Straße")),
        (2, found(ClipVlm, "nothing but rain at 273 \u{212a}")),
        (1, still("")),
        (4, found(Vlm, "a red car of Bob's")),
        (3, found(Vlm, "a red car that is deleted")),
        (2, chunk("", "a RED summary", Some("north"))),
        (2, chunk("the description", "a red summary that is not searched", None)),
        (1, still("red still")),
        (1, found(StateTransition, "a red car again")),
        (3, Event::RunDeleted(RunDeleted { request_id: Some(REQUEST), reclaim: None })),
        (1, Event::ActivityStarted(episode(&["Side door"]))),
        (1, Event::ActivityEnded(episode(&["Side door", "Yard"]))),
        (2, Event::ActivityEnded(episode(&[]))),
        (2, found(Vlm, &long())),
    ]
}

fn long() -> String {
    format!("{} Red {}", "é".repeat(100), "日".repeat(100))
}

/// Events of another run of Bob's, the descriptions that their hits carry, and whether these are cut.
fn fogs() -> [(Event, String, bool); 6] {
    use FindingKind::Vlm;
    let padded = |bytes: usize| format!("fog {}", "x".repeat(bytes - 4));
    // 4096 bytes end in the middle of a character.
    let odd = format!("fog{}", "é".repeat(3000));
    let far = format!("{} fog", "x".repeat(9000));
    [
        (found(Vlm, &padded(4096)), padded(4096), false),
        (found(Vlm, &padded(4097)), padded(4096), true),
        (found(Vlm, &odd), format!("fog{}", "é".repeat(2046)), true),
        (found(Vlm, &far), "x".repeat(4096), true),
        (found(Vlm, "a\tfog \u{1}\ncar"), "a\tfog \u{1}\ncar".to_owned(), false),
        (chunk("", "a fog summary", None), "a fog summary".to_owned(), false),
    ]
}

fn seqs(reply: &Value) -> Vec<u64> {
    let hits = reply["hits"].as_array().expect("an array");
    hits.iter().map(|hit| hit["seq"].as_u64().expect("a number")).collect()
}

#[test]
fn descriptions_of_the_callers_runs_are_found_within_bounds_until_they_are_deleted() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut events = library();
    events.push((5, seed::created("bob")));
    events.extend(fogs().map(|(event, ..)| (5, event)));
    write(dir.path(), events);
    let setup = Setup::new(dir.path());
    let mut server = setup.start();
    for is_restarted in [false, true] {
        if is_restarted {
            // What is found then is what was found before.
            server.restart(&setup);
        }
        check_queries(&server);
        check_hits(&server);
        check_descriptions(&server);
    }
    check_bounds(&server);
    let path = format!("/v1/runs/{}", run(1));
    assert_eq!(server.call("DELETE", &path).send().status, 200);
    let reply = server.post("/v1/search", &json!({"query": "red"})).json();
    assert_eq!((seqs(&reply), &reply["scanned"]), (vec![10, 18], &json!(4)), "at once");
    let body = json!({"query": "red", "run_id": run(1).to_string()});
    assert_eq!(server.post("/v1/search", &body).status, 404);
}

fn check_queries(server: &Server) {
    // Query, run, seqs of the hits, descriptions scanned.
    let rows: [(&str, Option<u8>, &[u64], u64); 12] = [
        ("red", None, &[5, 10, 12, 18], 8),
        ("  RED\t", None, &[5, 10, 12, 18], 8),
        ("e", None, &[5, 10, 11, 12, 15, 16, 18], 8),
        ("STRASSE", None, &[5], 8),
        ("k", None, &[6], 8),
        ("red", Some(1), &[5, 12], 4),
        ("red", Some(2), &[10, 18], 4),
        ("not searched", None, &[], 8),
        ("raw output", None, &[], 8),
        ("side DOOR", None, &[15, 16], 8),
        ("yard", Some(1), &[16], 4),
        ("yard", Some(2), &[], 4),
    ];
    for (query, only, expected, scanned) in rows {
        let mut body = json!({"query": query});
        if let Some(number) = only {
            body["run_id"] = json!(run(number).to_string());
        }
        let reply = server.post("/v1/search", &body);
        assert_eq!(reply.status, 200, "{query}: {}", reply.text);
        let reply = reply.json();
        assert_eq!(seqs(&reply), expected, "{query} {only:?}");
        let counts = (&reply["scanned"], &reply["total_hits"]);
        assert_eq!(counts, (&json!(scanned), &json!(expected.len())), "{query} {only:?}");
    }
    let body = json!({"query": "a", "limit": 2});
    let reply = server.post("/v1/search", &body).json();
    assert_eq!((seqs(&reply), &reply["total_hits"]), (vec![5, 6], &json!(4)));
    let bobs = server.call("POST", "/v1/search").key(Some(BOB)).json(&json!({"query": "red"}));
    assert_eq!(seqs(&bobs.send().json()), [8]);
}

/// A hit tells where it is and shows the text as it was written.
fn check_hits(server: &Server) {
    let reply = server.post("/v1/search", &json!({"query": "red"}));
    assert_eq!(reply.header("content-type"), "application/json");
    let reply = reply.json();
    assert!(reply["request_id"].as_str().is_some_and(|id| id.starts_with("req-")));
    let (one, two) = (run(1).to_string(), run(2).to_string());
    // 80 bytes before the match are half a character: it is left out.
    let snippet = format!("{} Red {}", "é".repeat(39), "日".repeat(26));
    assert_eq!(
        reply["hits"],
        json!([
            {"seq": 5, "run_id": one, "pts_ms": 120, "kind": "vlm",
             "description": "A Red Car on the Straße", "snippet": "A Red Car on the Straße"},
            {"seq": 10, "run_id": two, "pts_ms": null, "kind": "semantic_chunk_inferred",
             "index_name": "north", "description": "a RED summary", "snippet": "a RED summary"},
            {"seq": 12, "run_id": one, "pts_ms": 40, "kind": "keyframe_stored",
             "description": "red still", "snippet": "red still"},
            {"seq": 18, "run_id": two, "pts_ms": 120, "kind": "vlm", "description": long(),
             "snippet": snippet},
        ])
    );
}

/// A hit carries its description up to 4 KiB.
fn check_descriptions(server: &Server) {
    let asked = server.call("POST", "/v1/search").key(Some(BOB)).json(&json!({"query": "fog"}));
    let reply = asked.send().json();
    let (hits, rows) = (reply["hits"].as_array().expect("an array"), fogs());
    assert_eq!(hits.len(), rows.len(), "{reply}");
    for (hit, (_, description, is_truncated)) in hits.iter().zip(&rows) {
        assert_eq!(hit["description"], *description);
        let told = hit.get("description_truncated");
        assert_eq!(told, is_truncated.then_some(&Value::Bool(true)), "{hit}");
        assert!(hit["snippet"].as_str().is_some_and(|part| part.contains("fog")), "{hit}");
    }
}

/// A query is bounded in bytes once white space around it is gone; `limits.rs` has the rest.
fn check_bounds(server: &Server) {
    let rows = [
        (format!("\u{3000} {}\n", "a".repeat(1024)), 200),
        ("ΐ".repeat(512), 200),
        ("é".repeat(513), 422),
        (" \t\u{a0}".to_owned(), 422),
    ];
    for (query, status) in rows {
        server.post("/v1/search", &json!({ "query": query })).assert_status(status);
    }
}
