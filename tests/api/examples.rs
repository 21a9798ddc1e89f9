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
