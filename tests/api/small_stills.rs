//! Stills scaled down: sizes and versions, and of which run they are.

use serde_json::json;
use worker::Supervisor;

use crate::support::shared;

#[test]
fn a_still_is_scaled_down_to_its_edge_and_never_up() {
    let server = shared().with_clips();
    let run = server.ingested(&json!({"source_uri": "talk.mp4", "max_frames": 2}));
    let listed = server.get(&format!("/v1/runs/{run}/keyframes")).json();
    let hash = listed["keyframes"][0]["image_sha256"].as_str().expect("a hash").to_owned();
    let path = format!("/v1/runs/{run}/keyframes/{hash}");
    let whole = server.get(&path);
    let size = |bytes: &[u8]| {
        let extent = Supervisor::still_extent(bytes).expect("a JPEG");
        (extent.width, extent.height)
    };
    let (width, height) = size(&whole.bytes);
    let longer = width.max(height);
    for edge in [32, 64, 100] {
        let small = server.get(&format!("{path}?max_edge={edge}")).assert_ok();
        assert_eq!(small.header("content-type"), "image/jpeg");
        let (across, down) = size(&small.bytes);
        assert_eq!(across.max(down), edge);
        assert!(
            (across * height).abs_diff(down * width) <= longer,
            "{across}x{down} of {width}x{height}"
        );
        assert!(small.bytes.len() < whole.bytes.len());
        assert_eq!(small.header("etag"), format!("\"{hash}-{edge}\""));
        assert_eq!(small.header("cache-control"), whole.header("cache-control"));
        let again = server.get(&format!("{path}?max_edge={edge}"));
        assert_eq!(again.bytes, small.bytes, "the one that was kept");
        let cached = server.call("GET", &format!("{path}?max_edge={edge}"));
        assert_eq!(cached.header("if-none-match", small.header("etag")).send().status, 304);
        let head = server.call("HEAD", &format!("{path}?max_edge={edge}")).send();
        assert_eq!(head.header("content-length"), small.bytes.len().to_string());
    }
    for edge in [longer, 4096] {
        assert_eq!(server.get(&format!("{path}?max_edge={edge}")).bytes, whole.bytes, "never up");
    }
    let other = server.create_run();
    let elsewhere = format!("/v1/runs/{other}/keyframes/{hash}?max_edge=64");
    assert_eq!(server.get(&elsewhere).status, 404, "kept pictures belong to their runs");
}
