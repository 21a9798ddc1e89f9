//! Health of sessions: over an even path, over bad ones, and in silence.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Server, Setup, eventually,
    whip::{Publication, clip, sightline},
};

fn health(server: &Server, run: &str) -> Value {
    server.get(&format!("/v1/runs/{run}/health")).assert_ok().json()
}

fn number(health: &Value, name: &str) -> f64 {
    health[name].as_f64().unwrap_or_else(|| panic!("no {name}: {health}"))
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
            is_over.then(|| {
                let is_told = found["rule"].to_string().contains(words);
                assert!(is_told && found["word"] != "good", "{found}");
            })
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
