//! Runs a decoding program in its own sandbox: this binary drops its privileges and executes the program.
//!
//! The program reads its libraries, itself and its pipes, and no other file's contents; it writes no file,
//! opens no socket and starts no process. The kernel kills it with the thread that started it.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use decode::{BackendError, FfmpegPipes, program_arguments};
use media::Codec;
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use crate::{
    EscapeAttempt, WorkerLimits,
    child::Child,
    fork,
    fork_server::Ends,
    program::{library_directories, loader_path},
    sandbox::{ProgramConfinement, become_program},
    sandbox_probe,
};

/// First argument of a process that becomes a decoding program.
pub(crate) const ARGUMENT: &str = "media-program";

/// Time limit of a program's answer to a check, and most bytes of it that are read.
const SAID_WITHIN: Duration = Duration::from_secs(20);
const SAID_BYTES_MAX: u64 = 4096;

/// Task of a program, and its resource limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramRequest {
    pub codec: Codec,
    pub threads: usize,
    /// Limit of private memory in bytes, without the slack for bursts.
    pub memory_bytes: u64,
    /// Limit of the CPU time of all its threads, in seconds.
    pub cpu_seconds: u64,
}

/// Starts `program` for a worker; `ours` is the binary that sandboxes itself and executes the program.
pub(crate) fn start(
    ours: &Path,
    program: &Path,
    errand: &ProgramRequest,
    ends: Ends,
) -> io::Result<Child> {
    let Ends { socket, stderr } = ends;
    let mut command = confined(ours, program, errand.memory_bytes, errand.cpu_seconds);
    command.args(program_arguments(errand.codec, errand.threads));
    command.stdin(socket.try_clone()?).stdout(socket).stderr(stderr);
    Child::spawn(&mut command)
}

/// Returns the command that becomes `program` in its sandbox, still without arguments and descriptors.
fn confined(ours: &Path, program: &Path, memory_bytes: u64, cpu_seconds: u64) -> Command {
    let mut command = Command::new(ours);
    command.arg(ARGUMENT).arg(memory_bytes.to_string()).arg(cpu_seconds.to_string());
    command.arg(std::process::id().to_string()).arg(program);
    command.env_clear();
    command.envs(loader_path().map(|path| ("LD_LIBRARY_PATH", path)));
    command.process_group(0);
    command
}

/// Checks that `program` runs in its sandbox and is an ffmpeg recent enough for our arguments.
pub(crate) fn check(ours: &Path, program: &Path) -> Result<(), BackendError> {
    let said = said_by(ours, program, "-version").unwrap_or_else(|error| error.to_string());
    let said = said.lines().next().unwrap_or_default().to_owned();
    if is_recent(&said) {
        return Ok(());
    }
    let program = program.display();
    Err(BackendError::unsupported(format!(
        "{program} is no ffmpeg of version 5.1 or later: asked for its version it says {said:?}"
    )))
}

/// Attempts forbidden actions in the sandbox of a decoding program, with this binary as the program.
pub(crate) fn probe(ours: &Path) -> io::Result<Vec<EscapeAttempt>> {
    let said = said_by(ours, ours, sandbox_probe::ARGUMENT)?;
    let attempts: Option<Vec<EscapeAttempt>> = said.lines().map(sandbox_probe::attempt).collect();
    attempts.filter(|attempts| !attempts.is_empty()).ok_or_else(|| io::Error::other(said))
}

/// Returns the stdout of `program` in its sandbox, or its stderr if that is empty.
fn said_by(ours: &Path, program: &Path, argument: &str) -> io::Result<String> {
    let mut command =
        confined(ours, program, WorkerLimits::default().memory_bytes, SAID_WITHIN.as_secs());
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let deadline = Instant::now() + SAID_WITHIN;
    while child.try_wait()?.is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    // No effect on a program that has ended; its output is in the pipes.
    child.kill().and_then(|()| child.wait().map(drop))?;
    let mut said = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(SAID_BYTES_MAX).read_to_end(&mut said)?;
    }
    if let Some(complaint) = child.stderr.take().filter(|_| said.is_empty()) {
        complaint.take(SAID_BYTES_MAX).read_to_end(&mut said)?;
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Returns true from 5.1 on, which added `-fps_mode`; repository builds have no number and count as newer.
fn is_recent(said: &str) -> bool {
    let Some(version) = said.strip_prefix("ffmpeg version ") else { return false };
    let number = version.strip_prefix('n').unwrap_or(version);
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (5, 1),
        (Some(Ok(major)), _) => major > 5,
        _ => version.starts_with("N-"),
    }
}

/// Main function of a launcher: returns only if it cannot become the program.
pub(crate) fn launch() -> ExitCode {
    let mut given = std::env::args_os().skip(2);
    let error = match confinement(&mut given) {
        Some(confinement) => execute(&confinement, given),
        None => io::Error::other("wrong arguments"),
    };
    eprintln!("media program: {error}");
    ExitCode::FAILURE
}

/// Takes the arguments before the program's own.
fn confinement(given: &mut impl Iterator<Item = OsString>) -> Option<ProgramConfinement> {
    let mut number = || given.next()?.to_str()?.parse::<u64>().ok();
    Some(ProgramConfinement {
        memory_bytes: number()?,
        cpu_seconds: number()?,
        parent: u32::try_from(number()?).ok()?,
        program: PathBuf::from(given.next()?),
        libraries: library_directories(),
    })
}

fn execute(
    confinement: &ProgramConfinement,
    arguments: impl Iterator<Item = OsString>,
) -> io::Error {
    match fork::close_inherited().and_then(|()| become_program(confinement)) {
        Ok(()) => Command::new(&confinement.program).args(arguments).exec(),
        Err(error) => error,
    }
}

/// Wraps the worker's ends of a program: stdin and stdout on one socket, and stderr, whose reads never block.
pub(crate) fn conversation((socket, said): (OwnedFd, OwnedFd)) -> FfmpegPipes {
    let socket = Arc::new(File::from(socket));
    let (end, ends) = (Arc::clone(&socket), Arc::clone(&socket));
    FfmpegPipes {
        input: Box::new(Input(Arc::clone(&socket))),
        end: Box::new(move || Ok(shutdown(&end, Shutdown::Write)?)),
        output: Box::new(socket),
        said: Box::new(File::from(said)),
        hang_up: Box::new(move || Ok(shutdown(&ends, Shutdown::Both)?)),
    }
}

/// Writes by `send`: a worker's sandbox allows no `write` to a socket.
struct Input(Arc<File>);

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ffmpeg_that_knows_our_arguments_is_used() {
        let rows = [
            ("ffmpeg version 5.1.9-0+deb12u1 Copyright (c) 2000-2026", true),
            ("ffmpeg version n7.1 Copyright", true),
            ("ffmpeg version 8 Copyright", true),
            ("ffmpeg version 10.0.1", true),
            ("ffmpeg version N-118000-gabcdef0 Copyright", true),
            ("ffmpeg version 5.0.3 Copyright", false),
            ("ffmpeg version 4.4.2-0ubuntu0.22.04.1", false),
            ("ffmpeg version 5", false),
            ("ffmpeg version unknown", false),
            ("ffprobe version 7.1", false),
            ("", false),
        ];
        for (said, expected) in rows {
            assert_eq!(is_recent(said), expected, "{said}");
        }
    }
}
