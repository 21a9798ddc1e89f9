//! Health of sessions: over an even path, over bad ones, in silence, and whose it is.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    BOB, Server, Setup, eventually,
    whip::{Publication, clip, sightline},
};

fn health(server: &Server, run: &str) -> Value {
    let reply = server.get(&format!("/v1/runs/{run}/health")).assert_ok();
    let health = reply.json();
    check(&health);
    health
}

fn number(health: &Value, name: &str) -> f64 {
    health[name].as_f64().unwrap_or_else(|| panic!("no {name}: {health}"))
}

/// A session says what its figures say.
fn check(health: &Value) {
    let bounds = [("lost_percent", 1.0), ("jitter_ms", 30.0), ("behind_ms", 1000.0)];
    let over = bounds.map(|(name, bound)| number(health, name) / bound);
    let count = over.iter().filter(|times| **times >= 1.0).count();
    let is_far = over.iter().any(|times| *times >= 5.0);
    let is_near = over.iter().any(|times| (times - 1.0).abs() < 0.1 || (times - 5.0).abs() < 0.1);
    let expected = match (health["since_packet_ms"].as_u64(), count) {
        (None, _) => "silent",
        (Some(5000..), _) => "silent",
        (_, 0) => "good",
        (_, 1) if !is_far => "fair",
        _ => "poor",
    };
    // What is shown is rounded.
    assert!(is_near || health["word"] == expected, "not {expected}: {health}");
    assert!(!health["rule"].as_str().unwrap_or_default().is_empty(), "{health}");
}

#[test]
fn a_session_says_how_it_is_doing_and_why() {
    let Some(sightline) = sightline() else { return };
    let file = clip::scenes("AB", 2);
    let server = Setup::temporary().start();
    let publish = |options: &[&str]| {
        Publication::start(&sightline, &server, &file, &json!({}), &[&["--loop"], options].concat())
    };
    let even = publish(&[]);
    let (lossy, uneven) = (publish(&["--loss", "20"]), publish(&["--jitter", "400"]));
    let named = |run: &str, figure: &str, bound: f64, words: &str| {
        eventually(words, || {
            let found = health(&server, run);
            let is_over = number(&found, figure) >= 2.0 * bound;
            is_over.then(|| assert!(found["rule"].to_string().contains(words), "{found}"))
        });
    };
    named(&lossy.run, "lost_percent", 1.0, "% of packets are lost");
    named(&uneven.run, "jitter_ms", 30.0, "jitter is");
    let found = eventually("figures of a while", || {
        let found = health(&server, &even.run);
        (number(&found, "window_ms") >= 3000.0 && number(&found, "frames_per_second") > 0.0)
            .then_some(found)
    });
    assert!(number(&found, "bits_per_second") > 1000.0, "{found}");
    assert_eq!(number(&found, "lost_percent"), 0.0, "{found}");
    assert!(found["session_id"].as_str().is_some_and(|id| id.starts_with("sess-")), "{found}");

    // The same pictures in short, while they come.
    let list = server.get("/v1/runs?include=summary").json();
    let runs = list.as_array().expect("an array");
    let record = runs.iter().find(|record| record["run_id"] == even.run).expect("listed");
    let summary = &record["summary"];
    assert!(summary["counts"]["frames"].as_u64() > Some(0), "{summary}");
    assert!(summary["shape"]["luma_mean"][0].is_number(), "{summary}");
    assert!(summary["still_sha256"].is_string() && summary["width"].is_u64(), "{summary}");

    let path = format!("/v1/runs/{}/health", even.run);
    assert_eq!(server.call("GET", &path).key(Some(BOB)).send().status, 404, "it is Alice's");
    even.signal(Signal::STOP);
    let silent = eventually("silence", || {
        Some(health(&server, &even.run)).filter(|found| found["word"] == "silent")
    });
    let rule = silent["rule"].as_str().expect("a sentence");
    assert!(rule.contains("dropped after 10 s"), "{rule}");
    let over = eventually("the end of the session", || {
        Some(server.get(&path)).filter(|reply| reply.status != 200)
    })
    .assert_refused(409, "conflict");
    assert!(over.text.contains("no live session"), "{}", over.text);
}
