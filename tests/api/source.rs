//! The bytes of a run's own source: ranges, conditions, and what is never served; and its stills scaled down.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use serde_json::json;
use worker::Supervisor;

use crate::{
    api::uploads::{stored, upload},
    support::{Reply, Server, Setup, clip_bytes, shared},
};

/// A server with a root of its own, and the bytes of the clip in it.
fn served() -> (tempfile::TempDir, Vec<u8>, Server) {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = clip_bytes("motion.mp4");
    let server = Setup::new(dir.path()).own_root().start();
    fs::write(dir.path().join("root/motion.mp4"), &bytes).expect("written");
    (dir, bytes, server)
}

fn ingested(server: &Server, uri: &str) -> String {
    server.ingested(&json!({"source_uri": uri, "max_frames": 2}))
}

fn source(server: &Server, run: &str) -> Reply {
    server.get(&format!("/v1/runs/{run}/source"))
}

#[test]
fn an_owner_reads_the_source_of_its_run_in_ranges_until_it_is_deleted() {
    let (dir, bytes, server) = served();
    let uploaded = upload(&server, "a b.mp4", &bytes);
    let path = dir.path().join("root/motion.mp4").display().to_string();
    let url = format!("file://{path}");
    let stored = uploaded["file_path"].as_str().expect("a path");
    let named = uploaded["file_name"].as_str().expect("a name");
    for (uri, name) in [
        ("motion.mp4", "motion.mp4"),
        (&path, "motion.mp4"),
        (&url, "motion.mp4"),
        (stored, "a b.mp4"),
        (named, "a b.mp4"),
    ] {
        let run = ingested(&server, uri);
        let whole = source(&server, &run);
        assert_eq!((whole.status, whole.bytes == bytes), (200, true), "{uri}");
        assert_eq!(whole.header("content-type"), "video/mp4");
        assert_eq!(whole.header("content-disposition"), format!("inline; filename=\"{name}\""));
        assert_eq!(whole.header("cache-control"), "private, no-cache");
        let at = format!("/v1/runs/{run}/source");
        let ask = |method: &str, headers: &[(&str, &str)]| {
            let call = server.call(method, &at);
            headers.iter().fold(call, |call, (name, value)| call.header(name, value)).send()
        };
        let part = ask("GET", &[("range", "bytes=10-19")]);
        assert_eq!((part.status, &part.bytes[..]), (206, &bytes[10..20]), "{uri}");
        assert_eq!(part.header("content-range"), format!("bytes 10-19/{}", bytes.len()));
        let etag = whole.header("etag");
        assert_eq!(ask("GET", &[("range", "bytes=0-0"), ("if-range", etag)]).status, 206);
        assert_eq!(ask("GET", &[("range", "bytes=0-0"), ("if-range", "\"x\"")]).status, 200);
        let head = ask("HEAD", &[("range", "bytes=0-9")]);
        assert_eq!((head.status, head.bytes.len()), (200, 0));
        assert_eq!(head.header("content-length"), bytes.len().to_string());
        assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
        assert_eq!(source(&server, &run).status, 404, "gone with the run");
    }
    // Only what the run has decoded is served.
    let fresh = server.create_run();
    assert_eq!(source(&server, &fresh).status, 404, "nothing was decoded");
    fs::write(dir.path().join("root/page.html"), "secret").expect("written");
    let page = json!({"source_uri": "page.html"});
    assert_eq!(server.post_run(&fresh, "ingest", &page).status, 422);
    source(&server, &fresh).assert_refused(404, "not_found");
    let run = ingested(&server, "motion.mp4");
    assert_eq!(server.post_run(&run, "ingest", &page).status, 422);
    assert_eq!(source(&server, &run).bytes, bytes, "still the one that was decoded");
}

#[test]
fn links_hidden_files_and_what_took_the_place_of_a_file_are_not_served() {
    let (dir, bytes, server) = served();
    let root = dir.path().join("root");
    symlink("motion.mp4", root.join("link.mp4")).expect("linked");
    symlink(".", root.join("here")).expect("linked");
    fs::create_dir(root.join(".sub")).expect("made");
    for hidden in [".hidden.mp4", ".sub/a.mp4"] {
        fs::write(root.join(hidden), &bytes).expect("written");
    }
    for uri in ["link.mp4", "here/motion.mp4", ".hidden.mp4", ".sub/a.mp4"] {
        let run = ingested(&server, uri);
        let reply = source(&server, &run);
        assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"), "{uri}");
    }
    let run = ingested(&server, "motion.mp4");
    let file = root.join("motion.mp4");
    let secret = dir.path().join("secret");
    fs::write(&secret, "secret").expect("written");
    let replacements: [&dyn Fn(&Path); 5] = [
        &|path| assert!(Command::new("mkfifo").arg(path).status().expect("it runs").success()),
        &|path| symlink("/dev/zero", path).expect("linked"),
        &|path| symlink(&secret, path).expect("linked"),
        &|path| fs::create_dir(path).expect("made"),
        &|path| fs::write(path, "").expect("written"),
    ];
    for (at, replace) in replacements.iter().enumerate() {
        if file.is_dir() {
            fs::remove_dir(&file).expect("removed");
        } else {
            fs::remove_file(&file).expect("removed");
        }
        replace(&file);
        assert_eq!(source(&server, &run).status, 404, "replacement {at}");
    }
    let uploaded = upload(&server, "a.mp4", &bytes);
    let run = ingested(&server, uploaded["file_name"].as_str().expect("a name"));
    let kept = stored(dir.path()).pop().expect("the upload");
    fs::write(&kept, "another").expect("written");
    assert_eq!(source(&server, &run).status, 500, "not the file that was uploaded");
    fs::remove_file(&kept).expect("removed");
    assert_eq!(source(&server, &run).status, 404);
    assert_eq!(server.get("/v1/health").status, 200);
}

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
