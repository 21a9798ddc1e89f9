//! The shell lines of `docs/API.md`, run as they stand against a live server.

use std::process::Command;

use crate::support::{ALICE, shared};

#[test]
fn the_examples_of_the_documentation_work() {
    let server = shared().with_clips();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/API.md");
    let page = std::fs::read_to_string(page).expect("there");
    let lines = page.lines().filter_map(|line| line.strip_prefix("    "));
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with(['{', ' ', '"'])).collect();
    assert!(lines.len() > 10, "{lines:?}");
    // A pipe fails with its last command, and each of those fails when nothing came.
    let output = Command::new("sh")
        .args(["-eux", "-c", &lines.join("\n")])
        .env("base", format!("http://{}", server.addr()))
        .env("key", server.key(ALICE))
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_curl_lines_of_the_readme_work() {
    let server = shared().with_clips();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let page = std::fs::read_to_string(page).expect("there");
    let lines = page.lines().skip_while(|line| !line.starts_with("    key=\"x-api-key"));
    let lines: Vec<String> = lines
        .take_while(|line| line.starts_with("    "))
        .map(|line| line.replace("localhost:8080", server.addr()))
        .map(|line| {
            line.replace("/srv/footage/clip.mp4", "talk.mp4").replace("curl -s", "curl -fsS")
        })
        .collect();
    assert!(lines.len() > 6 && lines.iter().any(|line| line.contains("/keyframes")), "{lines:?}");
    let output = Command::new("sh")
        .args(["-eux", "-c", &lines.join("\n")])
        .env("SIGHTLINE_API_KEY", server.key(ALICE))
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("image_sha256"), "a still is listed");
}
