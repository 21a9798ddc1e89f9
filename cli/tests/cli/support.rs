//! Runs the binary and says what came of it.
#![expect(clippy::disallowed_methods, reason = "tests take the place of their media from outside")]

#[path = "../../../tests/support/skip.rs"]
mod skip;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub use skip::skip;

/// What a command left behind.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// The binary with a clean environment.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
    command.args(args).stdin(Stdio::null());
    for name in ["SIGHTLINE_SERVER", "SIGHTLINE_API_KEY", "SERVICE_DATA_DIR", "NO_COLOR"] {
        command.env_remove(name);
    }
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
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("data is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
    }
}

/// A real clip, or `None` with a loud line where the folder is missing.
pub fn clip(name: &str) -> Option<String> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/media");
    let folder = std::env::var_os("SIGHTLINE_MEDIA_DIR").map_or(default.into(), PathBuf::from);
    let path = folder.join(name);
    if path.is_file() {
        return Some(path.to_str().expect("a UTF-8 path").to_owned());
    }
    skip(name, format!("no clip at {}; set SIGHTLINE_MEDIA_DIR", path.display()));
    None
}

/// Forty seconds of H.264 in groups of a second, which ffmpeg makes once for all test processes.
pub fn rendered() -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-h264.mp4");
    if !path.exists() {
        // Whole before it has its name: other processes may be looking for it or making it.
        let partial = path.with_file_name(format!("cli-{}.mp4", std::process::id()));
        let output = Command::new("ffmpeg")
            .args(["-v", "error", "-nostdin", "-y", "-f", "lavfi"])
            .args(["-i", "testsrc2=s=960x540:r=25:d=40", "-pix_fmt", "yuv420p"])
            .args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "25"])
            .arg(&partial)
            .output()
            .expect("ffmpeg is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(&partial, &path).expect("a folder of our own");
    }
    path.to_str().expect("a UTF-8 path").to_owned()
}
