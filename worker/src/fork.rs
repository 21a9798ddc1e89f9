//! Copies of a process that has one thread.
#![expect(unsafe_code, reason = "no library has a safe fork")]

use std::io;

use rustix::process::Pid;

use crate::sandbox::be_alone;

/// Forks this process: `None` in the copy, which is whole, as no other thread can hold a lock.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    be_alone()?;
    // SAFETY: the only thread is this one, so the copy finds every lock and every list of this process
    // as this thread left it, and may do whatever this one may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Ends a copy: what the process that it was copied from has registered for its end is not run.
pub(crate) fn end_copy(code: i32) -> ! {
    // SAFETY: it returns nowhere, and the kernel takes back what the process holds.
    unsafe { libc::_exit(code) }
}
