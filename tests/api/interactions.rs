//! Models' answers about chunks: the record, the filter by index, pages, and ownership.

use std::path::Path;

use media::{RunId, Score};
use serde_json::{Value, json};
use timeline::{Event, SemanticChunkInferred};

use super::search::answer;
use crate::support::{BOB, Setup, seed};

const RUN: RunId = RunId::from_bytes([1; 16]);

/// Event of chunk `index`, with a finding or an error.
fn chunk(index: u64, index_name: Option<&str>, error: Option<&str>) -> Event {
    let (description, summary) = (format!("description {index}"), format!("summary {index}"));
    Event::SemanticChunkInferred(SemanticChunkInferred {
        chunk_index: index,
        provider: error.is_none().then(|| "vllm".to_owned()),
        semantic_fallback_used: error.is_some(),
        semantic_error: error.map(str::to_owned),
        event_type: media::EventType::from_name("van_turns"),
        object_label: Some("van".to_owned()),
        confidence: Some(Score::from_millionths(750_000)),
        start_pts_ms: Some(index as i64 * 1000),
        end_pts_ms: Some(index as i64 * 1000 + 960),
        ..answer(&description, &summary, index_name)
    })
}

/// Writes a log as a server with a model would have left it, before the server starts.
fn write(data: &Path, events: Vec<Event>) {
    seed::append(&seed::log(data), RUN, events);
}

fn chunks(answer: &Value) -> Vec<u64> {
    let interactions = answer["interactions"].as_array().expect("an array");
    assert_eq!(answer["count"], interactions.len());
    interactions.iter().map(|one| one["chunk_index"].as_u64().expect("a number")).collect()
}

#[test]
fn what_models_said_is_listed_without_what_they_did_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let (door, yard) = (Some("door"), Some("yard"));
    let events = vec![
        seed::created("alice"),
        chunk(1, door, None),
        chunk(0, door, None),
        chunk(2, door, Some("the backend vllm is rate limited")),
        chunk(3, yard, None),
        chunk(4, None, None),
    ];
    write(dir.path(), events);
    let server = Setup::new(dir.path()).start();
    let path = format!("/v1/runs/{RUN}/interactions");
    let rows: [(&str, &[u64]); 7] = [
        ("", &[0, 1, 3, 4]),
        ("?index=door", &[0, 1]),
        ("?index=yard", &[3]),
        ("?index=gate", &[]),
        ("?limit=1", &[0]),
        ("?limit=2&cursor=2&other=1", &[1, 3]),
        ("?index=yard&cursor=2", &[3]),
    ];
    for (query, expected) in rows {
        let reply = server.get(&format!("{path}{query}"));
        assert_eq!(reply.status, 200, "{query}: {}", reply.text);
        let answer = reply.json();
        assert_eq!(chunks(&answer), expected, "{query}");
        assert_eq!(answer["run_id"], RUN.to_string(), "{query}");
        assert!(answer.get("request_id").is_none(), "{query}: {answer}");
    }
    let first = &server.get(&path).json()["interactions"][1];
    let expected = json!({
        "chunk_index": 1, "seq": 2, "start_pts_ms": 1000, "end_pts_ms": 1960,
        "event_type": "van_turns", "object_label": "van", "summary": "summary 1",
        "description": "description 1", "confidence": 0.75, "provider": "vllm",
        "index_name": "door",
    });
    assert_eq!(*first, expected);
    let fresh = server.create_run();
    let none = server.get(&format!("/v1/runs/{fresh}/interactions")).json();
    assert_eq!(none, json!({"run_id": fresh, "count": 0, "interactions": []}));
    for (path, key) in [(path.as_str(), Some(BOB)), (&path.replace("01", "02"), None)] {
        let call = server.call("GET", path);
        let reply = key.map_or_else(|| server.call("GET", path), |key| call.key(Some(key))).send();
        assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"), "{path}");
    }
    for query in ["index=", "limit=0", "cursor=x"] {
        assert_eq!(server.get(&format!("{path}?{query}")).status, 422, "{query}");
    }
}

#[test]
fn a_cursor_that_names_no_interaction_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    write(
        dir.path(),
        vec![seed::created("alice"), chunk(0, None, None), chunk(1, None, Some("timeout"))],
    );
    let server = Setup::new(dir.path()).start();
    // The run's first event, a chunk without an answer, and nothing at all.
    for (cursor, status) in [(1, 422), (2, 200), (3, 422), (4, 422), (u64::MAX, 422)] {
        let reply = server.get(&format!("/v1/runs/{RUN}/interactions?cursor={cursor}"));
        assert_eq!(reply.status, status, "{cursor}");
        if status == 422 {
            assert!(reply.text.contains("cursor"), "{}", reply.text);
        }
    }
}

#[test]
fn every_interaction_is_on_one_page() {
    let dir = tempfile::tempdir().expect("a directory");
    // More than are read at a time, with failures between them.
    let said = |index: u64| index % 3 != 1;
    let all = (0..200).map(|index| chunk(index, None, (!said(index)).then_some("timeout")));
    write(dir.path(), [seed::created("alice")].into_iter().chain(all).collect());
    let server = Setup::new(dir.path()).start();
    let expected: Vec<u64> = (0..200).filter(|index| said(*index)).collect();
    for limit in [1, 7, 133, 134, 1000] {
        let pages = server.pages(&format!("/v1/runs/{RUN}/interactions?limit={limit}"), || ());
        let found: Vec<u64> = pages.iter().flat_map(|page| chunks(&page.json())).collect();
        assert_eq!(found, expected, "{limit}");
    }
}
