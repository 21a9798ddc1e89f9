//! Fork of a process that has one thread, and the end of descriptors that one has inherited.
#![expect(unsafe_code, reason = "no library has a safe fork or close_range")]

use std::io;

use rustix::process::Pid;

use crate::sandbox::be_alone;

/// Forks this process; `None` in the child, in which no lock is held by a missing thread.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    be_alone()?;
    // SAFETY: this is the only thread, so the child finds every lock and data structure as this thread left
    // it, and may do whatever this process may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Ends a forked child without running the exit handlers that it inherited.
pub(crate) fn end_copy(code: i32) -> ! {
    // SAFETY: _exit(2) does not return, and the kernel frees the process's resources.
    unsafe { libc::_exit(code) }
}

/// Closes all descriptors but stdin, stdout and stderr. Must be called first in a process's `main`.
pub(crate) fn close_inherited() -> io::Result<()> {
    // SAFETY: a worker's main calls this before it opens anything, so no value of this process
    // owns a descriptor from 3 up, and nothing can use one after it was closed.
    match unsafe { libc::close_range(3, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
