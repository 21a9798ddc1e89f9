//! Runs the binary and returns its results.

#[path = "../../../tests/support/sandbox.rs"]
mod sandbox;
#[path = "../../../tests/support/skip.rs"]
mod skip;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

pub use skip::skip;

/// Result of a command.
pub struct Outcome {
    command: String,
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Asserts that the command ended with this code and these words among its messages.
    #[track_caller]
    pub fn says(&self, code: i32, words: &str) {
        let Outcome { command, stdout, stderr, .. } = self;
        assert_eq!(self.code, code, "{command}: {stdout}{stderr}");
        assert!(stderr.contains(words), "{command} does not say {words:?}: {stdout}{stderr}");
    }

    /// Returns the JSON that the command printed.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).expect("one JSON value")
    }

    /// Returns the check of this area and name that `doctor --json` printed.
    pub fn check(&self, area: &str, name: &str) -> Value {
        let found = self.json();
        let mut checks = found["checks"].as_array().expect("a list").iter();
        let check = checks.find(|check| check["area"] == area && check["name"] == name);
        check.unwrap_or_else(|| panic!("no check of {name}: {}", self.stdout)).clone()
    }
}

/// Returns a command of the binary with a clean environment.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
    command.args(args).stdin(Stdio::null());
    for name in ["SIGHTLINE_SERVER", "SIGHTLINE_API_KEY", "SERVICE_DATA_DIR", "NO_COLOR"] {
        command.env_remove(name);
    }
    // Setting that a user of this machine would need.
    command.env("SERVICE_SANDBOX", sandbox::policy(env!("CARGO_BIN_EXE_sightline")).as_str());
    command
}

/// Returns a `doctor` command without FFmpeg, as trying each codec with it takes most of the time.
pub fn doctor(args: &[&str]) -> Command {
    let mut command = command(&["doctor"]);
    command.args(args).env("SERVICE_FFMPEG_PATH", "/nowhere/ffmpeg");
    command
}

/// Runs the binary to its end.
pub fn sightline(args: &[&str]) -> Outcome {
    finish(command(args))
}

/// Runs a prepared command to its end.
pub fn finish(mut command: Command) -> Outcome {
    let output = command.output().expect("the binary starts");
    Outcome {
        command: format!("{command:?}"),
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("data is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
    }
}

/// Writes a program of the shell.
pub fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

/// The path of a clip as an argument.
pub fn text(clip: PathBuf) -> String {
    clip.into_os_string().into_string().expect("a UTF-8 path")
}

/// Renders forty seconds of H.264 in one-second GOPs.
pub fn rendered() -> String {
    text(clips::rendered(
        "cli.mp4",
        "-f lavfi -i testsrc2=s=960x540:r=25:d=40 -pix_fmt yuv420p -c:v libx264 -preset ultrafast -g 25",
    ))
}
