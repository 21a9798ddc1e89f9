//! Episodes of activity of a live session, in the zones that its publisher names.

use serde_json::{Value, json};

use crate::support::{
    Setup, eventually,
    whip::{Publication, sightline},
};

#[test]
fn a_live_session_tells_of_the_episodes_in_its_zones() {
    let Some(sightline) = sightline() else { return };
    let server = Setup::temporary().start();
    let half = |name: &str, left: f64| {
        let right = left + 0.5;
        json!({"name": name, "polygon": [[left, 0.0], [right, 0.0], [right, 1.0], [left, 1.0]]})
    };
    let halves = json!([half("left", 0.0), half("right", 0.5)]);
    let attach = json!({"mode": "efficiency", "zones": halves});
    let clip = clips::passing();
    let publication = Publication::start(&sightline, &server, &clip, &attach, &[]);
    let run = publication.run.clone();
    let started = eventually("something moves", || {
        server.payloads(&run, "activity_started").into_iter().next()
    });
    assert_eq!(started["zones"], json!(["left"]));
    assert!(started["session_id"].is_string(), "{started}");
    let answer = || server.get(&format!("/v1/runs/{run}/activity")).json();
    let listed = || answer()["episodes"].clone();
    let lasting = listed();
    assert_eq!(answer()["watched"][0]["zones"], halves, "while it is live");
    assert_eq!(lasting[0]["start_frame"], started["start_frame"]);
    publication.finish();
    server.wait_for_event(&run, "run_completed");
    let episodes = listed();
    let zones: Vec<&Value> =
        episodes.as_array().expect("an array").iter().map(|episode| &episode["zones"]).collect();
    assert_eq!(zones, [&json!(["left"]), &json!(["right"])], "{episodes}");
    for episode in episodes.as_array().expect("an array") {
        assert!(episode["end_frame"].is_u64() && episode["image_sha256"].is_string(), "{episode}");
    }
    let decoded = server.payloads(&run, "frames_decoded");
    assert_eq!((&decoded[0]["zones"], &answer()["watched"][0]["zones"]), (&halves, &halves));
    assert_eq!(decoded[0]["gate"]["keepalive_ms"], 10_000);
    assert_eq!(server.get(&format!("/v1/runs/{run}")).json()["mode"], "efficiency");
}
