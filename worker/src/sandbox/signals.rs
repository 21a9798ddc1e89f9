//! Tests of the processes that a confined one can have the kernel signal: each command that names a
//! receiver, asked of the kernel under every filter, and some that name none.
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
    /// The number of this process.
    Own,
    /// Address of that number.
    OwnAt,
    /// Address of a `struct f_owner_ex` of this process.
    OwnerAt,
}

/// Commands: true for those that set the receiver or the signal, their manual's name, their call.
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

/// Runs a command on `socket`; returns the kernel's answer.
fn ask(socket: BorrowedFd<'_>, call: i64, command: u64, given: Given) -> Result<(), Errno> {
    let own = std::process::id();
    let mut number = own;
    // F_OWNER_PID, then its number.
    let mut owner = [1, own];
    let argument = match given {
        Given::Zero => 0,
        Given::Own => own as usize,
        Given::OwnAt => (&raw mut number).expose_provenance(),
        Given::OwnerAt => (&raw mut owner).expose_provenance(),
    };
    // SAFETY: what `argument` points to is as large as each command takes it to be, and lives until
    // the call returns. A descriptor that is made is let go: nothing else has its number.
    let answer = unsafe { libc::syscall(call, socket.as_raw_fd(), command, argument) };
    if answer >= 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).expect("the kernel's"))
}

#[test]
fn nobody_is_named_to_be_signalled() {
    let worker = |has_driver, has_program| of_worker(&confinement(has_driver, has_program));
    // Each with the calls that it has at all.
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
        // The kernel looks at the lower half alone.
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
