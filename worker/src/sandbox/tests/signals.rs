//! Tests that a sandboxed process cannot choose a process for the kernel to signal: tries each command that
//! names a receiver, and some that name none, under every filter.
#![expect(unsafe_code, reason = "no safe wrapper asks for an owner of signals")]

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use rustix::io::Errno;

use super::{
    Filter, program,
    seccomp::{
        of_worker,
        tests::{confinement, under},
    },
};

/// Argument of a command.
#[derive(Clone, Copy)]
enum Given {
    Zero,
    /// Process id of this process.
    Own,
    /// Address of that process id.
    OwnAt,
    /// Address of a `struct f_owner_ex` of this process.
    OwnerAt,
}

/// Commands: true if one sets the receiver or the signal; its name in the manual; the system call.
const COMMANDS: [(bool, &str, i64, u64, Given); 8] = [
    (true, "F_SETOWN", libc::SYS_fcntl, 8, Given::Own),
    (true, "F_SETSIG", libc::SYS_fcntl, 10, Given::Zero),
    (true, "F_SETOWN_EX", libc::SYS_fcntl, 15, Given::OwnerAt),
    (true, "FIOSETOWN", libc::SYS_ioctl, 0x8901, Given::OwnAt),
    (true, "SIOCSPGRP", libc::SYS_ioctl, 0x8902, Given::OwnAt),
    (false, "F_GETFL", libc::SYS_fcntl, libc::F_GETFL as u64, Given::Zero),
    (false, "F_DUPFD_CLOEXEC", libc::SYS_fcntl, libc::F_DUPFD_CLOEXEC as u64, Given::Zero),
    (false, "FIONREAD", libc::SYS_ioctl, libc::FIONREAD, Given::OwnAt),
];

/// Runs a command on `socket`; returns the kernel's result.
fn ask(socket: BorrowedFd<'_>, call: i64, command: u64, given: Given) -> Result<(), Errno> {
    let own = std::process::id();
    let mut number = own;
    // F_OWNER_PID, then the process id.
    let mut owner = [1, own];
    let argument = match given {
        Given::Zero => 0,
        Given::Own => own as usize,
        Given::OwnAt => (&raw mut number).expose_provenance(),
        Given::OwnerAt => (&raw mut owner).expose_provenance(),
    };
    // SAFETY: `argument` points to as many bytes as each command reads or writes, which live until the call
    // returns. A duplicated descriptor is leaked: nothing else has its number.
    let answer = unsafe { libc::syscall(call, socket.as_raw_fd(), command, argument) };
    if answer >= 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).expect("the kernel's"))
}

#[test]
fn nobody_is_named_to_be_signalled() {
    let worker = |has_driver, has_program| of_worker(&confinement(has_driver, has_program));
    // Each filter with those of the two calls that it allows.
    let (fcntl, ioctl) = (libc::SYS_fcntl, libc::SYS_ioctl);
    type Row<'a> = (&'a str, &'a dyn Fn() -> io::Result<Filter>, &'a [i64]);
    let rows: [Row<'_>; 5] = [
        ("a worker", &|| worker(false, false), &[]),
        ("a worker beside a program", &|| worker(false, true), &[]),
        ("a worker with a driver", &|| worker(true, false), &[fcntl, ioctl]),
        ("a worker with a driver beside a program", &|| worker(true, true), &[fcntl, ioctl]),
        ("a program", &program::filter, &[fcntl]),
    ];
    let (socket, _peer) = UnixStream::pair().expect("a pair");
    let socket = socket.as_fd();
    for (owning, name, call, command, given) in COMMANDS {
        assert_eq!(ask(socket, call, command, given), Ok(()), "{name} is the kernel's");
        // The kernel reads only the lower half.
        for command in [command, command | 1 << 32] {
            for (whose, filter, calls) in rows {
                let answer = under(filter().expect("builds"), || ask(socket, call, command, given));
                let is_left = !owning && calls.contains(&call);
                let expected = if is_left { Ok(()) } else { Err(Errno::PERM) };
                assert_eq!(answer, expected, "{name} ({command:#x}) of {whose}");
            }
        }
    }
}
