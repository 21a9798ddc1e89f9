//! Wall times at which streams began: told by containers, by arrival, or not at all.

use std::path::Path;

use media::RunId;
use serde_json::{Value, json};
use timeline::{Event, KeyframeStored};

use crate::support::{Server, Setup, seed};

const LIVE: RunId = RunId::from_bytes([5; 16]);
/// 2024-02-29T12:00:01Z.
const RECORDED_MS: i64 = 1_709_208_001_000;
const ARRIVED_MS: i64 = 1_700_000_000_123;

/// A live run of Alice's as a server of then left it: its first still came when its first picture did.
fn seed(dir: &Path) {
    let log = seed::log_at(dir, ARRIVED_MS);
    let still = |frame_index| {
        let still = KeyframeStored { pts_ms: 40, ..seed::still(frame_index) };
        Event::KeyframeStored(still)
    };
    let created = seed::session_created("alice");
    seed::append(&log, LIVE, [created, still(0), still(30)]);
}

fn ingest(server: &Server, run: &str, clip: &Path, stream: &str) {
    let body = json!({"source_uri": clip.display().to_string(), "stream_id": stream});
    server.post_run(run, "ingest", &body).assert_ok();
}

#[test]
fn a_stream_tells_when_it_began_where_that_is_known() {
    let source = "-f lavfi -i testsrc2=size=64x64:rate=10:duration=1 -pix_fmt yuv420p -c:v libx264";
    let dated = format!("{source} -metadata creation_time=2024-02-29T12:00:01Z");
    let dated = clips::rendered("dated.mp4", &dated);
    let undated = clips::rendered("undated.mp4", source);
    let dir = tempfile::tempdir().expect("a directory");
    seed(dir.path());
    let roots =
        [&dated, &undated].map(|clip| clip.parent().expect("a folder").display().to_string());
    let setup = Setup::new(dir.path()).var("SERVICE_INGEST_FILE_ROOTS", &roots.join(","));
    let mut server = setup.start();
    let run = server.create_run();
    assert_eq!(server.record(&run)["wall_start_ms"], json!({}));
    ingest(&server, &run, &dated, "a");
    assert_eq!(server.record(&run)["wall_start_ms"], json!({"a": RECORDED_MS}));
    ingest(&server, &run, &undated, "b");
    let decoded = server.payloads(&run, "frames_decoded");
    let told: Vec<_> =
        decoded.iter().map(|payload| payload.get("wall_start_ms").cloned()).collect();
    assert_eq!(told, [Some(json!(RECORDED_MS)), Some(Value::Null)], "null, and not absent");
    for is_restarted in [false, true] {
        if is_restarted {
            server.restart(&setup);
        }
        let expected = json!({"a": RECORDED_MS, "b": null});
        assert_eq!(server.record(&run)["wall_start_ms"], expected);
        let live = server.record(&LIVE.to_string());
        assert_eq!(live["wall_start_ms"], json!({"main": ARRIVED_MS}));
        assert_eq!(server.get("/v1/runs").json()[0]["wall_start_ms"], expected);
    }
}
