//! A browser publishes its camera to the server: every codec, and what changes while it does.
//!
//! The camera is Chromium's fake one: green with a clock and a brighter disc that fills clockwise
//! from the right, over and over.

use std::path::Path;

use serde_json::Value;

use crate::support::{
    Server, Setup, eventually,
    whip::{
        browser::{Page, chromium},
        picture::{Picture, is_near},
        servers::{Neighbour, USER},
    },
};

/// A server that the page may publish to, and that keeps every tenth frame.
fn setup(page: &Page) -> Setup {
    let setup = Setup::temporary().var("SERVICE_CORS_ALLOWED_ORIGINS", page.origin());
    setup.var("SERVICE_GATE_KEEPALIVE_FRAMES", "10")
}

/// The stills of a run, each of which must show what the camera shows.
fn stills(server: &Server, run: &str) -> Vec<Picture> {
    let stills = server.payloads(run, "keyframe_stored").into_iter().map(|still| {
        let reply = server.get(still["image_ref"].as_str().expect("a path"));
        assert_eq!((reply.status, reply.header("content-type")), (200, "image/jpeg"));
        Picture::of(&reply.bytes)
    });
    let stills: Vec<Picture> = stills.collect();
    for (number, still) in stills.iter().enumerate() {
        for (x, y) in [(0.2, 0.5), (0.8, 0.5), (0.5, 0.85), (0.5, 0.2)] {
            let found = still.at(x, y);
            assert!(is_near(found, [0, 135, 0]), "still {number} at {x}, {y}: {found:?}");
        }
        let clock = (0..1000).map(|at| (0.14 + 0.36 * f64::from(at % 50) / 50.0, at / 50));
        let clock = clock.map(|(x, row)| still.at(x, 0.07 + 0.06 * f64::from(row) / 20.0));
        assert!(clock.into_iter().any(|pixel| pixel[1] > 190), "still {number} has no clock");
    }
    // The disc is away for a moment in each turn: not in three stills, a third of a second apart.
    let disc = stills.iter().filter(|still| is_near(still.at(0.65, 0.508), [75, 255, 30]));
    assert!(disc.count() > 0 || stills.len() < 3, "the disc of {} stills", stills.len());
    stills
}

/// Stages that the page reports, which all went well.
fn stages(told: &Value) -> Vec<Value> {
    assert!(told["error"].is_null(), "{told}");
    let stages = told["stages"].as_array().expect("stages").clone();
    for stage in &stages {
        assert_eq!(stage["state"], "connected", "{told}");
    }
    stages
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[test]
fn every_codec_of_a_browser_is_decoded() {
    let Some(chromium) = chromium() else { return };
    let page = Page::serve();
    let server = setup(&page).start();
    for codec in ["H264", "VP8", "VP9", "AV1"] {
        let told = page.publish(&chromium, &server, &[("codecs", codec), ("ms", "1500")]);
        let stage = &stages(&told)[0];
        assert_eq!(stage["codec"], format!("video/{codec}"), "{told}");
        let run = told["run"].as_str().expect("a run");
        let shown = stills(&server, run);
        let last = shown.last().unwrap_or_else(|| panic!("{codec}: {:?}", server.kinds(run)));
        assert_eq!(last.width * 3, last.height * 4, "{codec}");
        let frames = count(&server.payloads(run, "run_completed")[0]["frames"]);
        // Those of the last moment may be under way when the session ends; it is long on a busy
        // machine.
        let sent = count(&stage["frames"]);
        assert!(frames > 0 && 2 * frames >= sent, "{codec}: {frames} frames of {sent}");
    }
    assert_eq!(server.metric("service_live_pictures_damaged_total"), 0.0);
}

#[test]
fn a_browser_publishes_by_any_page_and_path_and_changes_both_within_a_session() {
    let Some(chromium) = chromium() else { return };
    let page = Page::serve();
    let server = setup(&page).start();
    changed(&chromium, &page, &server);
    estimated(&chromium, &page, &server);
    behind_a_prefix(&chromium, &page, &server);
    documented(&chromium, &page, &server);
}

/// The page of the documentation publishes a camera.
fn documented(chromium: &Path, page: &Page, server: &Server) {
    let newest = || server.get("/v1/runs").json()[0]["run_id"].clone();
    let before = newest();
    let _browser = page.open_documented(chromium, server);
    let run = eventually("a run with a still", || {
        let run = Some(newest()).filter(|run| *run != before)?.as_str()?.to_owned();
        (!server.payloads(&run, "keyframe_stored").is_empty()).then_some(run)
    });
    assert!(!stills(server, &run).is_empty());
}

/// A browser changes size, codec and path within a session.
fn changed(chromium: &Path, page: &Page, server: &Server) {
    let parameters = [("codecs", "VP8,VP9"), ("steps", "halve,recode,restart"), ("ms", "1500")];
    let told = page.publish(chromium, server, &parameters);
    let stages = stages(&told);
    let [begun, halved, recoded, restarted] = &stages[..] else { panic!("{told}") };
    assert_eq!(count(&begun["width"]), 2 * count(&halved["width"]), "{told}");
    assert_eq!((&begun["codec"], &recoded["codec"]), (&"video/VP8".into(), &"video/VP9".into()));
    assert_ne!(recoded["ufrag"], restarted["ufrag"], "{told}");
    assert!(count(&restarted["packets"]) > count(&recoded["packets"]), "{told}");
    let run = told["run"].as_str().expect("a run");
    let widths: Vec<usize> = stills(server, run).iter().map(|still| still.width).collect();
    let (whole, half) = (count(&begun["width"]) as usize, count(&halved["width"]) as usize);
    assert!(widths.starts_with(&[whole]) && widths.ends_with(&[half]), "{widths:?}: {told}");
    let kinds = server.kinds(run);
    assert_eq!(kinds.last().map(String::as_str), Some("run_completed"), "{kinds:?}");
    let indices: Vec<u64> = server
        .payloads(run, "keyframe_stored")
        .iter()
        .map(|still| count(&still["frame_index"]))
        .collect();
    assert!(indices.is_sorted_by(|one, next| one < next), "{indices:?}");
    assert_eq!(server.metric("service_live_pictures_damaged_total"), 0.0);
}

/// A browser finds out what its path carries.
fn estimated(chromium: &Path, page: &Page, server: &Server) {
    let parameters = [("codecs", "VP8"), ("steps", "estimate"), ("ms", "500")];
    let told = page.publish(chromium, server, &parameters);
    // Less than the 8 Mb/s that the server names: what the browser found by when its packets came.
    let found = stages(&told)[1]["foundBits"].as_f64().expect("an estimate");
    assert!(found > 500_000.0 && found < 8_000_000.0, "{told}");
}

#[test]
fn a_browser_reaches_the_server_by_a_relay_alone() {
    let Some(chromium) = chromium() else { return };
    let Some(relay) = Neighbour::relay() else { return };
    let page = Page::serve();
    // The page learns of the relay from the headers of the answer.
    let url = format!("turn:{}?transport=udp", relay.address());
    let server = setup(&page)
        .var("SERVICE_WEBRTC_TURN_URL", &url)
        .var("SERVICE_WEBRTC_TURN_USERNAME", USER.0)
        .var("SERVICE_WEBRTC_TURN_CREDENTIAL", USER.1)
        .start();
    let parameters = [("codecs", "H264"), ("relay", ""), ("ms", "1500")];
    let told = page.publish(&chromium, &server, &parameters);
    assert_eq!(stages(&told)[0]["path"], "relay", "{told}");
    let shown = stills(&server, told["run"].as_str().expect("a run"));
    assert!(!shown.is_empty(), "{told}");
}

/// A browser finds its session behind the prefix of a proxy.
fn behind_a_prefix(chromium: &Path, page: &Page, server: &Server) {
    let Some(proxy) = Neighbour::proxy(server.addr()) else { return };
    let base = format!("http://{}/video", proxy.address());
    // A restart and the end are asked for at the address that the answer names.
    let parameters = [("codecs", "VP8"), ("steps", "restart"), ("ms", "1000")];
    let told = page.publish_to(chromium, &base, &parameters);
    assert_eq!(stages(&told).len(), 2, "{told}");
    let session = told["session"].as_str().unwrap_or_default();
    assert!(session.starts_with(&format!("{base}/v1/stream/whip/sess-")), "{told}");
    let run = told["run"].as_str().expect("a run");
    assert!(!stills(server, run).is_empty(), "{told}");
    assert_eq!(server.kinds(run).last().map(String::as_str), Some("run_completed"));
}
