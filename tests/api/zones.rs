//! Zones of recordings: what counts in them, which are refused, and what others would have told.

use media::{RunId, Zone, Zones};
use serde_json::{Value, json};
use timeline::{Event, FramesDecoded, Signals};

use crate::{
    api::{
        activity::{activity, assert_passes, halves, ingested, start, watched},
        search::write,
    },
    support::{Server, Setup, assert_has, seed, with},
};

#[test]
fn only_the_zones_count_where_that_is_asked_for_and_of_two_recordings_the_newer() {
    let dir = tempfile::tempdir().expect("a directory");
    let corners =
        Zones { zones: vec![Zone { name: "door".to_owned(), polygon: Vec::new() }], only: false };
    let older = FramesDecoded {
        zones: corners,
        ..crate::api::signals::decoded(Signals::Inline(Vec::new()))
    };
    write(dir.path(), vec![(1, seed::created("alice")), (1, Event::FramesDecoded(older))]);
    let older = RunId::from_bytes([1; 16]).to_string();
    let server = start(Setup::new(dir.path()));
    other_zones_give_the_episodes_that_they_would_have_had(&server, &older);
    let run = server.create_run();
    ingested(&server, &run, json!({}));
    let all = activity(&server, &run, "");
    assert_passes(&all, [json!([]), json!([])]);
    let right = json!({"zones": [halves()[1]], "activity_zones_only": true});
    ingested(&server, &run, right.clone());
    let found = activity(&server, &run, "");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["zones"], json!(["right"]));
    // The share is that of the cells that count; the peaks may be up to half as much apart, as steps of a score are.
    let score = |episode: &Value| episode["peak_score"].as_f64().expect("a score");
    assert!(score(&found[0]) > 1.4 * score(&all[1]), "{found:?} {all:?}");
    let mut below = right;
    below["zones"] = json!([halves()[2]]);
    below["stream_id"] = json!("below");
    ingested(&server, &run, below);
    assert_eq!(activity(&server, &run, ""), found, "each stream for itself");
    assert!(activity(&server, &run, "?stream_id=below").is_empty());
    // Which zones these were is known later, too.
    let of = |stream: &str, zone: usize| {
        let zones = [halves()[zone].clone()];
        json!({"stream_id": stream, "zones": zones, "activity_zones_only": true})
    };
    let kept = |server: &Server| {
        let rows = [
            ("", json!([of("below", 2), of("main", 1)])),
            ("?stream_id=main&limit=1", json!([of("main", 1)])),
            ("?stream_id=other", json!([])),
        ];
        for (query, expected) in rows {
            assert_eq!(watched(server, &run, query), expected, "{query}");
        }
    };
    kept(&server);
    drop(server);
    let server = start(Setup::new(dir.path()));
    kept(&server);
    ingested(&server, &run, json!({}));
    assert_eq!(watched(&server, &run, ""), json!([of("below", 2)]), "the newest has none");

    let reasoned = server.create_run();
    let source = json!({"source_uri": "passing.mp4", "model": "qwen3-vl-8b"});
    let only = json!({"activity_zones_only": true});
    for (route, source) in
        [("ingest", json!({"source_uri": "passing.mp4"})), ("reason", source.clone())]
    {
        let refused = server.post_run(&reasoned, route, &with(source, &only));
        refused.assert_invalid("activity_zones_only", route);
    }
    server.post_run(&reasoned, "reason", &with(source, &json!({"zones": halves()}))).assert_ok();
    assert_passes(&activity(&server, &reasoned, ""), [json!(["left"]), json!(["right"])]);
}

fn other_zones_give_the_episodes_that_they_would_have_had(server: &Server, older: &str) {
    let run = server.create_run();
    ingested(server, &run, json!({}));
    let asked = |run: &str, more: &Value| {
        server.post_run(run, "analyze", &with(json!({"model": "qwen3-vl-8b"}), more))
    };
    let analyzed = |run: &str, more: &Value| asked(run, more).assert_ok().json();
    let tried = |run: &str, zones: &Value| {
        let mut more = zones.clone();
        more["dry_run"] = json!(true);
        analyzed(run, &more)["dry_run"].take()
    };
    // As a recording with these zones has them.
    let rows = [
        json!({"zones": halves()}),
        json!({"zones": [halves()[1]], "activity_zones_only": true}),
        json!({"zones": [halves()[2]], "activity_zones_only": true}),
        json!({"zones": []}),
    ];
    for zones in &rows {
        let other = server.create_run();
        ingested(server, &other, zones.clone());
        let mut recorded = activity(server, &other, "");
        for episode in &mut recorded {
            episode.as_object_mut().expect("one").remove("image_sha256");
        }
        let told = tried(&run, zones);
        assert_eq!(told["episodes"], json!(recorded), "{zones}");
        assert_eq!(tried(&other, &rows[3])["episode_count"].as_u64() > Some(0), zones != &rows[2]);
    }
    // What a part alone would have changed is recorded, and what comes after is compared with it.
    let right = &rows[1];
    let changed = tried(&run, right)["changed_frames"].clone();
    assert!(changed.as_u64() > Some(0), "{changed}");
    analyzed(&run, right);
    let made = &server.payloads(&run, "analysis_generated")[0];
    assert_eq!((&made["zones"], &made["activity_zones_only"]), (&right["zones"], &json!(true)));
    let again = tried(&run, right);
    assert_has(&again, &json!({"compared_with": made["analysis_id"], "changed_frames": 0}));
    assert_eq!(tried(&run, &json!({}))["changed_frames"], changed);
    let fresh = server.create_run();
    let from = json!({"from_run": run, "zones": halves()});
    assert_passes(
        tried(&fresh, &from)["episodes"].as_array().expect("some"),
        [json!(["left"]), json!(["right"])],
    );
    let frames = json!([crate::api::analyses::frames(0, 1)[0]]);
    let rows = [
        (&*run, json!({"zones": halves(), "frames": frames}), "zones"),
        (&run, json!({"activity_zones_only": true}), "activity_zones_only"),
        (older, json!({"zones": halves(), "dry_run": true}), "zones"),
    ];
    for (run, more, field) in rows {
        asked(run, &more).assert_invalid(field, &more);
    }
}
