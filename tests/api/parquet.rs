//! `sightline export` against DuckDB, Polars and pandas, and the example of `docs/PARQUET.md`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::json;

use crate::support::{ALICE, Server, python, shared, this_test, whip::sightline};

fn settings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api/parquet")
}

/// A run of two streams, one with cuts in it, and with words that try to be more than words.
fn run(server: &Server) -> String {
    let hostile =
        json!({"label": "a \"quoted\"\u{202e} 'name'; drop table events", "model": "qwen3-vl-8b"});
    let run = server.post("/v1/runs", &hostile).run();
    for (clip, stream, frames) in [("talk.mp4", "door \"1\"", 40), ("film.mp4", "main", 250)] {
        let body = json!({"source_uri": clip, "stream_id": stream, "max_frames": frames});
        server.post_run(&run, "ingest", &body).assert_ok();
        let body = json!({"model": "qwen3-vl-8b", "stream_id": stream});
        server.post_run(&run, "analyze", &body).assert_ok();
    }
    run
}

fn export(sightline: &Path, server: &Server, run: &str, out: &Path) -> Output {
    let mut command = Command::new(sightline);
    command.args(["export", run, "--out"]).arg(out);
    command.env("SIGHTLINE_SERVER", format!("http://{}", server.addr()));
    command.env("SIGHTLINE_API_KEY", server.key(ALICE)).output().expect("it runs")
}

#[test]
fn analysts_read_what_the_api_answers_row_for_row() {
    let Some(sightline) = sightline() else { return };
    let Some(bin) = python::installed(&this_test(), &settings().join("requirements.txt")) else {
        return;
    };
    let server = shared().with_clips();
    let dir = tempfile::tempdir().expect("a directory");
    let (run, out) = (run(&server), dir.path().join("out"));
    let exported = export(&sightline, &server, &run, &out);
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let mut check = Command::new(bin.join("python"));
    check.arg(settings().join("check.py"));
    check.args([&format!("http://{}", server.addr()), &server.key(ALICE), &run]).arg(&out);
    let rows = python::run(&mut check).unwrap_or_else(|said| panic!("{said}")).stdout;
    let rows = String::from_utf8(rows).expect("text");
    assert!(rows.starts_with("frames 290\nmarkers "), "{rows}");

    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/PARQUET.md"));
    let page = page.expect("there");
    let example = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut plot = Command::new(bin.join("python"));
    plot.args(["-c", example.expect("an example")]).current_dir(dir.path());
    python::run(&mut plot).unwrap_or_else(|said| panic!("{said}"));
    let mut look = Command::new(bin.join("python"));
    look.arg(settings().join("check.py")).arg("--picture").arg(out.join("timeline.png"));
    python::run(&mut look).unwrap_or_else(|said| panic!("{said}"));
}
