//! A decoding program in a sandbox of its own: our binary gives everything up and becomes it.
//!
//! The program reads its libraries, its two ends and nothing else; it writes no file, opens no socket
//! and starts no process. It dies with the thread that started it.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use decode::{BackendError, Conversation, program_arguments};
use media::Codec;
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use crate::{
    Limits, descriptors,
    program::loader_path,
    sandbox::{ProgramConfinement, become_program},
};

/// First argument of a process that is to become a decoding program.
pub(crate) const ARGUMENT: &str = "media-program";

/// Time for a program to say its version, and bytes of it that are looked at.
const VERSION_WITHIN: Duration = Duration::from_secs(5);
const VERSION_BYTES_MAX: u64 = 256;

/// Starts `program` for a stream of `codec`, with `ours` as the binary that becomes it and `end` as both
/// its input and its output.
pub(crate) fn start(
    ours: &Path,
    program: &Path,
    codec: Codec,
    end: OwnedFd,
    limits: &Limits,
) -> io::Result<Child> {
    let mut command = confined(ours, program, limits);
    command.args(program_arguments(codec)).stdin(end.try_clone()?).stdout(end);
    command.spawn()
}

/// What becomes `program` in its sandbox, with no arguments and no ends yet.
fn confined(ours: &Path, program: &Path, limits: &Limits) -> Command {
    let mut command = Command::new(ours);
    command.arg(ARGUMENT).arg(limits.memory_bytes.to_string());
    command.arg(std::process::id().to_string()).arg(program).stderr(Stdio::null());
    command.env_clear();
    command.envs(loader_path().map(|path| ("LD_LIBRARY_PATH", path)));
    command.process_group(0);
    command
}

/// Whether `program` says in its sandbox that it is an ffmpeg that knows our arguments.
pub(crate) fn check(ours: &Path, program: &Path) -> Result<(), BackendError> {
    let said = first_words(ours, program).unwrap_or_else(|error| error.to_string());
    if is_recent(&said) {
        return Ok(());
    }
    Err(BackendError::ProgramVersion { program: program.display().to_string(), said })
}

/// The beginning of the first line of what it says about its version.
fn first_words(ours: &Path, program: &Path) -> io::Result<String> {
    let mut command = confined(ours, program, &Limits::default());
    let mut child = command.arg("-version").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let deadline = Instant::now() + VERSION_WITHIN;
    while child.try_wait()?.is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    // Without effect on one that has ended; what it said is in the pipe.
    child.kill().and_then(|()| child.wait().map(drop))?;
    let mut said = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(VERSION_BYTES_MAX).read_to_end(&mut said)?;
    }
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

/// `-fps_mode` came with 5.1; what is built from a repository has no number and is taken for newer.
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

/// The whole life of a launcher: it ends only where it cannot become the program.
pub(crate) fn launch() -> ExitCode {
    let error = match Launch::from_arguments() {
        Some(launch) => launch.run(),
        None => io::Error::other("wrong arguments"),
    };
    eprintln!("media program: {error}");
    ExitCode::FAILURE
}

struct Launch {
    confinement: ProgramConfinement,
    arguments: Vec<OsString>,
}

impl Launch {
    fn from_arguments() -> Option<Launch> {
        let mut given = std::env::args_os().skip(2);
        let mut number = || given.next()?.to_str()?.parse::<u64>().ok();
        let (memory_bytes, parent) = (number()?, number()?);
        let program = PathBuf::from(given.next()?);
        let directories = loader_path().unwrap_or_default();
        let libraries = std::env::split_paths(&directories).collect();
        let parent = u32::try_from(parent).ok()?;
        let confinement = ProgramConfinement { memory_bytes, parent, program, libraries };
        Some(Launch { confinement, arguments: given.collect() })
    }

    fn run(self) -> io::Error {
        if let Err(error) = descriptors::close_inherited() {
            return error;
        }
        if let Err(error) = become_program(&self.confinement) {
            return error;
        }
        Command::new(&self.confinement.program).args(self.arguments).exec()
    }
}

/// The two ends of a program behind one socket.
pub(crate) fn conversation(end: OwnedFd) -> Conversation {
    let end = Arc::new(end);
    let ends = Arc::clone(&end);
    Conversation {
        input: Box::new(Input(Arc::clone(&end))),
        output: Box::new(Output(end)),
        hang_up: Box::new(move || {
            // A program that has ended has closed them itself.
            shutdown(&ends, Shutdown::Both).ok();
        }),
    }
}

struct Input(Arc<OwnedFd>);

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The end of the program's input.
impl Drop for Input {
    fn drop(&mut self) {
        // A program that has ended has closed it itself.
        shutdown(&self.0, Shutdown::Write).ok();
    }
}

struct Output(Arc<OwnedFd>);

impl Read for Output {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, out)?)
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
