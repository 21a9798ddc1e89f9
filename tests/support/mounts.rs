//! Mounts that a server alone sees.

use std::process::Command;

use crate::support::skip;

/// Runs what follows as root of mounts that nobody else sees.
pub fn namespace() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount"]);
    command
}

/// Returns true if servers can have a disk of their own here; see [`skip`].
pub fn can_mount(test: &str) -> bool {
    match namespace().args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            skip(test, format!("cannot mount: {}", String::from_utf8_lossy(&output.stderr)));
            false
        }
        Err(error) => {
            skip(test, format!("no unshare: {error}"));
            false
        }
    }
}
