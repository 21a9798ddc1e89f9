//! Closes descriptors that a worker has inherited from the server's process.
#![expect(unsafe_code, reason = "close_range closes descriptors that no Rust value stands for")]

use std::io;

/// Closes all descriptors but stdin, stdout and stderr. Must be called first in a process's `main`.
pub(crate) fn close_inherited() -> io::Result<()> {
    // SAFETY: a worker's main calls this before it opens anything, so no value of this process
    // owns a descriptor from 3 up, and nothing can use one after it was closed.
    match unsafe { libc::close_range(3, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
