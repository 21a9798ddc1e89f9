//! Attempts actions that the sandbox of a worker or decoding program must refuse, and reports the results.

use std::{
    fs::{self, File},
    io::{self, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::{net::UnixDatagram, process::CommandExt},
    process::Command,
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    net::{SendFlags, send},
    process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit},
};

use crate::protocol::EscapeAttempt;

/// First argument of this binary as a decoding program: it makes the attempts and prints them to stdout.
pub(crate) const ARGUMENT: &str = "media-probe";

type Try = (&'static str, fn() -> io::Result<()>);

/// Prints one line per attempt.
pub(crate) fn say() -> io::Result<()> {
    attempts().into_iter().try_for_each(|EscapeAttempt { what, errno }| match errno {
        Some(errno) => writeln!(io::stdout(), "{errno} {what}"),
        None => writeln!(io::stdout(), "done {what}"),
    })
}

pub(crate) fn attempt(line: &str) -> Option<EscapeAttempt> {
    let (outcome, what) = line.split_once(' ')?;
    let errno = match outcome {
        "done" => None,
        errno => Some(errno.parse().ok()?),
    };
    Some(EscapeAttempt { what: what.to_owned(), errno })
}

/// Makes all attempts. The last one, if it is not refused, replaces the process.
pub(crate) fn attempts() -> Vec<EscapeAttempt> {
    let attempts: [Try; 15] = [
        ("read a file", || File::open("/etc/passwd").map(drop)),
        ("read its own maps", || File::open("/proc/self/maps").map(drop)),
        ("list a directory", || fs::read_dir("/").map(drop)),
        ("stat a path", || fs::metadata("/etc/passwd").map(drop)),
        ("create a file", || File::create("/tmp/sightline-probe").map(drop)),
        ("make a memory file", || Ok(memfd_create("probe", MemfdFlags::empty()).map(drop)?)),
        ("connect over TCP", || TcpStream::connect("127.0.0.1:9").map(drop)),
        ("listen on TCP", || TcpListener::bind("127.0.0.1:0").map(drop)),
        ("open a UDP socket", || UdpSocket::bind("127.0.0.1:0").map(drop)),
        ("open a Unix socket", || UnixDatagram::unbound().map(drop)),
        ("send on another descriptor", || {
            Ok(send(io::stdout(), b"x", SendFlags::empty()).map(drop)?)
        }),
        ("start a process", || Command::new("/bin/true").spawn().map(drop)),
        ("raise a limit", || {
            let more = Rlimit { current: Some(64), maximum: Some(64) };
            Ok(setrlimit(Resource::Nofile, more)?)
        }),
        ("send a signal", || Ok(kill_process(getpid(), Signal::URG)?)),
        ("replace itself", || Err(Command::new("/bin/true").exec())),
    ];
    attempts
        .into_iter()
        .map(|(what, attempt)| EscapeAttempt {
            what: what.to_owned(),
            // Errors without a number come from the library, after a refusal.
            errno: attempt().err().map(|error| error.raw_os_error().unwrap_or(0)),
        })
        .collect()
}
