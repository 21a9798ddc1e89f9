//! Mounts that a server alone sees.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::support::{Running, skip, this_test};

/// Runs what follows as root of mounts that nobody else sees.
pub fn namespace() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount"]);
    command
}

/// Runs what follows with the mounts that the process `pid` sees.
pub fn namespace_of(pid: u32) -> Command {
    let mut command = Command::new("nsenter");
    let pid = pid.to_string();
    command.args(["--target", &pid, "--user", "--mount", "--preserve-credentials"]);
    command
}

/// Returns true if servers can have a disk of their own here; see [`skip`].
pub fn can_mount() -> bool {
    match namespace().args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            skip(&this_test(), format!("cannot mount: {said}"));
            false
        }
        Err(error) => {
            skip(&this_test(), format!("no unshare: {error}"));
            false
        }
    }
}

/// A small file system that outlives its servers.
pub struct SmallDisk(Running);

impl SmallDisk {
    pub fn new(mib: u32) -> SmallDisk {
        let script = format!("mount -t tmpfs -o size={mib}m tmpfs /mnt && echo && exec sleep inf");
        let mut command = namespace();
        command.args(["sh", "-c", &script]).stdout(Stdio::piped());
        let mut keeper = Running(command.spawn().expect("it starts"));
        let stdout = keeper.0.stdout.take().expect("piped");
        let mounted = BufReader::new(stdout).lines().next();
        assert!(mounted.is_some_and(|line| line.is_ok()), "it is mounted");
        SmallDisk(keeper)
    }

    /// Folder of a server's data, as the server sees it.
    pub fn data(&self) -> PathBuf {
        PathBuf::from("/mnt/data")
    }

    /// Process that keeps it.
    pub fn pid(&self) -> u32 {
        self.0.0.id()
    }

    /// Fills it to the last byte, with a file that is returned.
    pub fn fill(&self) -> PathBuf {
        let ballast = PathBuf::from(format!("/proc/{}/root/mnt/ballast", self.pid()));
        let copied = io::copy(&mut io::repeat(1), &mut File::create(&ballast).expect("made"));
        assert_eq!(copied.expect_err("full").kind(), io::ErrorKind::StorageFull);
        ballast
    }
}
