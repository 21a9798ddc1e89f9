//! `sightline demo` with servers that fail, and with the real one if it has been built.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clips::pick_one;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{sightline, text};

fn demo(server: &Path, dir: &TempDir, video: &str) -> crate::support::Outcome {
    let server = server.to_str().expect("a UTF-8 path");
    let out = dir.path().to_str().expect("a UTF-8 path");
    sightline(&["demo", "--server-binary", server, "--out", out, video])
}

/// The server beside this binary, where `cargo build --workspace --bins` puts it.
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
    died.says(1, "before it was ready");
    assert!(died.stderr.contains("server.log"), "{}", died.stderr);
    demo(Path::new("/nowhere/server"), &dir, video).says(3, "/nowhere/server");
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
    assert!(report.matches("<figure").count() >= 4);

    let data = dir.path().join("data");
    let data = data.to_str().expect("a UTF-8 path");
    let verified = sightline(&["log", "verify", data]);
    assert_eq!(verified.code, 0, "{}", verified.stderr);
    let kinds = sightline(&["log", "cat", data, "--kind", "frames_decoded"]).stdout;
    assert_eq!(kinds.lines().count(), 1);

    kept(&server, &dir, &clip);
    demo(&server, &dir, data.strip_suffix("data").expect("it ends so"))
        .says(5, "not a regular file");
}

/// With `--keep` the server answers at the printed address until SIGINT, which then is no failure.
fn kept(server: &Path, dir: &TempDir, clip: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
    command.args(["demo", "--keep", "--server-binary", text(server.to_owned()).as_str()]);
    command.args(["--out", text(dir.path().to_owned()).as_str(), clip]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let stderr = BufReader::new(child.stderr.take().expect("piped"));
    let line = stderr.lines().map_while(Result::ok).find(|line| line.starts_with("console: "));
    let address = line.expect("an address").split_whitespace().nth(1).expect("a URL").to_owned();
    let (page, key) = address.split_once("#key=").expect("a key");
    let fetched = |url: &str, header: &str| {
        let output = Command::new("curl").args(["-fsS", "-H", header, url]).output().expect("curl");
        assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(fetched(page, "accept: text/html").contains("Sightline"));
    let run = page.replace("/runs/", "/v1/runs/");
    assert!(fetched(&run, &format!("x-api-key: {key}")).contains("\"run_id\""), "the run is there");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it takes signals");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
