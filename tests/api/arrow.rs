//! Signals as an Arrow stream, read by pyarrow: the same records as the JSON of the same request.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Server, python, shared, this_test};

const ARROW: &str = "application/vnd.apache.arrow.stream";

fn read(bin: &Path, bytes: &[u8]) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("stream");
    fs::write(&file, bytes).expect("written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arrow/read.py");
    let mut command = Command::new(bin.join("python"));
    command.arg(script).stdin(Stdio::from(fs::File::open(file).expect("there")));
    let output = python::run(&mut command).expect("pyarrow reads it");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A bucket as its columns have it: every reason counted, and a spread of nulls where there is none.
fn as_columns(mut record: Value) -> Value {
    if record.get("reasons").is_some() {
        for spread in ["scene_score", "activity_score"] {
            if record[spread].is_null() {
                record[spread] = json!({"min": null, "max": null, "mean": null});
            }
        }
        for reason in gate::SelectionReason::ALL {
            let count = record["reasons"][reason.as_str()].as_u64().unwrap_or(0);
            record["reasons"][reason.as_str()] = count.into();
        }
    } else if record.get("activity_region").is_none() {
        record["activity_region"] = json!({"x": null, "y": null, "width": null, "height": null});
    }
    record
}

fn as_arrow(server: &Server, path: &str, accept: &str) -> crate::support::Reply {
    server.call("GET", path).header("accept", accept).send()
}

#[test]
fn an_arrow_stream_has_the_records_of_the_json() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arrow");
    let Some(bin) = python::installed(&this_test(), &folder.join("requirements.txt")) else {
        return;
    };
    let server = shared().with_clips();
    let (run, empty) = (server.create_run(), server.create_run());
    let body = json!({"source_uri": "street.mp4", "max_frames": 5000});
    server.post_run(&run, "ingest", &body).assert_ok();
    for (run, query, field) in [
        (&run, "", "signals"),
        (&run, "?from_frame=1&to_frame=1", "signals"),
        (&run, "?from_frame=9&max_points=50", "buckets"),
        (&run, "?max_points=20000", "signals"),
        (&empty, "", "signals"),
    ] {
        let path = format!("/v1/runs/{run}/signals{query}");
        let plain = server.get(&path).json();
        let reply = as_arrow(&server, &path, ARROW);
        assert_eq!((reply.status, reply.header("content-type")), (200, ARROW), "{query}");
        let found = read(&bin, &reply.bytes);
        let expected = plain[field].as_array().expect("records").iter().cloned().map(as_columns);
        assert_eq!(found["rows"], expected.collect::<Value>(), "{query}");
        let about = &found["about"];
        assert_eq!(about["run_id"], json!(run), "{query}");
        assert_eq!(about["frames"], plain["frames"].to_string(), "{query}");
        assert_eq!(about["thresholds"], plain["thresholds"].to_string(), "{query}");
        let index = if field == "signals" { "frame_index" } else { "first_frame" };
        assert_eq!(found["types"][index], "uint64", "{query}");
    }
    let head = server.call("HEAD", &format!("/v1/runs/{run}/signals")).header("accept", ARROW);
    assert_eq!(head.send().header("content-type"), ARROW);
    let path = format!("/v1/runs/{run}/signals?max_points=2");
    for (accept, kind) in [
        ("application/json", "application/json"),
        ("text/html", "application/json"),
        ("*/*", "application/json"),
        ("Application/Vnd.Apache.Arrow.Stream", ARROW),
        ("text/html, application/vnd.apache.arrow.stream;q=0.5, */*;q=0.1", ARROW),
        ("application/json;q=0.9, application/vnd.apache.arrow.stream", ARROW),
        ("application/json, application/vnd.apache.arrow.stream;q=0.9", "application/json"),
        ("*/*, application/vnd.apache.arrow.stream;q=0.5", "application/json"),
        ("application/json;q=0.1, */*, application/vnd.apache.arrow.stream;q=0.5", ARROW),
        ("application/*;q=0.1, */*, application/vnd.apache.arrow.stream;q=0.5", ARROW),
        ("application/vnd.apache.arrow.stream;q=0", "application/json"),
    ] {
        assert_eq!(as_arrow(&server, &path, accept).header("content-type"), kind, "{accept}");
    }
}
