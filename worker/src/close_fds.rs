//! Closes what a server's process may have left open for its children.
#![expect(unsafe_code, reason = "close_range closes descriptors that no Rust value stands for")]

use std::io;

/// Leaves stdin, stdout and stderr. Only for the first moment of a process's `main`.
pub(crate) fn close_inherited() -> io::Result<()> {
    // SAFETY: a worker's main calls this before it opens anything, so no value of this process
    // owns a descriptor from 3 up, and nothing can use one after it was closed.
    match unsafe { libc::close_range(3, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
