//! Models' answers about chunks: the record, the filter by index, pages, and ownership.

use media::{RunId, Score};
use serde_json::{Value, json};
use timeline::{Event, SemanticChunkInferred};

use super::search::answer;
use crate::support::{ALICE, BOB, Server, Setup, seed};

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

fn chunks(answer: &Value) -> Vec<u64> {
    let interactions = answer["interactions"].as_array().expect("an array");
    assert_eq!(answer["count"], interactions.len());
    interactions.iter().map(|one| one["chunk_index"].as_u64().expect("a number")).collect()
}

#[test]
fn interactions_are_what_models_said_each_on_one_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let runs = [1, 3, 4].map(|number| RunId::from_bytes([number; 16]));
    // As a server with a model would have left it.
    let log = seed::log(dir.path());
    let (door, yard) = (Some("door"), Some("yard"));
    let listed = vec![
        chunk(1, door, None),
        chunk(0, door, None),
        chunk(2, door, Some("the backend vllm is rate limited")),
        chunk(3, yard, None),
        chunk(4, None, None),
    ];
    let paged = (0..200).map(|index| chunk(index, None, (!is_said(index)).then_some("timeout")));
    let named = vec![chunk(0, None, None), chunk(1, None, Some("timeout"))];
    for (run, events) in runs.into_iter().zip([listed, paged.collect(), named]) {
        seed::append(&log, run, [seed::created("alice")].into_iter().chain(events));
    }
    drop(log);
    let server = Setup::new(dir.path()).start();
    a_cursor_that_names_no_interaction_is_refused(&server, runs[2]);
    what_models_did_not_say_is_not_listed(&server, runs[0]);
    every_interaction_is_on_one_page(&server, runs[1]);
}

fn what_models_did_not_say_is_not_listed(server: &Server, run: RunId) {
    let path = format!("/v1/runs/{run}/interactions");
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
        assert_eq!(answer["run_id"], run.to_string(), "{query}");
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
    for (path, key) in [(path.clone(), BOB), (path.replace("01", "02"), ALICE)] {
        server.call("GET", &path).key(Some(key)).send().assert_refused(404, "not_found");
    }
}

fn a_cursor_that_names_no_interaction_is_refused(server: &Server, run: RunId) {
    let events = server.events(&run.to_string());
    let [first, answered, failed] = [0, 1, 2].map(|at| events[at]["seq"].as_u64().expect("one"));
    // The run's first event, a chunk without an answer, and nothing at all.
    let rows = [(first, 422), (answered, 200), (failed, 422), (failed + 1, 422), (u64::MAX, 422)];
    for (cursor, status) in rows {
        let reply = server.get(&format!("/v1/runs/{run}/interactions?cursor={cursor}"));
        assert_eq!(reply.status, status, "{cursor}");
        assert!(status == 200 || reply.text.contains("cursor"), "{}", reply.text);
    }
}

/// Returns true for two chunks of three: failures stand between them.
fn is_said(index: u64) -> bool {
    index % 3 != 1
}

fn every_interaction_is_on_one_page(server: &Server, run: RunId) {
    let expected: Vec<u64> = (0..200).filter(|index| is_said(*index)).collect();
    for limit in [1, 7, 133, 134, 1000] {
        let pages = server.pages(&format!("/v1/runs/{run}/interactions?limit={limit}"), || ());
        let found: Vec<u64> = pages.iter().flat_map(|page| chunks(&page.json())).collect();
        assert_eq!(found, expected, "{limit}");
    }
}
