//! `sightline demo` with servers that fail, and with the real one where it has been built.

use std::path::{Path, PathBuf};

use clips::pick_one;
use tempfile::TempDir;

use crate::support::{sightline, text};

fn demo(server: &Path, dir: &TempDir, video: &str) -> crate::support::Outcome {
    let server = server.to_str().expect("a UTF-8 path");
    let out = dir.path().to_str().expect("a UTF-8 path");
    sightline(&["demo", "--server-binary", server, "--out", out, video])
}

/// The server beside this binary; `cargo build --workspace --bins` puts it there.
pub fn server() -> Option<PathBuf> {
    let server = Path::new(env!("CARGO_BIN_EXE_sightline")).with_file_name("sightline-server");
    if !server.is_file() {
        let why = format!("no server at {}; build the workspace's binaries", server.display());
        crate::support::skip("the demo", why);
        return None;
    }
    Some(server)
}

#[test]
fn a_server_that_does_not_start_is_named_with_its_log() {
    let dir = TempDir::new().expect("a folder");
    let video = dir.path().join("any.mp4");
    std::fs::write(&video, "x").expect("written");
    let video = video.to_str().expect("a UTF-8 path");
    let died = demo(Path::new("/bin/false"), &dir, video);
    assert_eq!(died.code, 1, "{}", died.stderr);
    assert!(died.stderr.contains("before it was ready"), "{}", died.stderr);
    assert!(died.stderr.contains("server.log"), "{}", died.stderr);
    let missing = demo(Path::new("/nowhere/server"), &dir, video);
    assert_eq!(missing.code, 3, "{}", missing.stderr);
    assert!(missing.stderr.contains("/nowhere/server"), "{}", missing.stderr);
}

#[test]
fn the_server_and_the_command_line_find_the_same() {
    let Some(server) = server() else { return };
    let video = pick_one("motion.mp4", "nature_flower.mp4");
    let title = format!("<h1>{}</h1>", video.file_name().expect("a name").display());
    let clip = text(video);
    let dir = TempDir::new().expect("a folder");
    let outcome = demo(&server, &dir, &clip);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert_eq!(outcome.stdout, sightline(&["analyze", &clip]).stdout);
    let report = std::fs::read_to_string(dir.path().join("report.html")).expect("a report");
    assert!(report.contains(&title));
    assert!(report.matches("<figure").count() >= 5);

    let data = dir.path().join("data");
    let data = data.to_str().expect("a UTF-8 path");
    let verified = sightline(&["log", "verify", data]);
    assert_eq!(verified.code, 0, "{}", verified.stderr);
    let kinds = sightline(&["log", "cat", data, "--kind", "frames_decoded"]).stdout;
    assert_eq!(kinds.lines().count(), 1);

    let refused = demo(&server, &dir, data.strip_suffix("data").expect("it ends so"));
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("not a regular file"), "{}", refused.stderr);
}
