//! Memory and threads of a process, as the kernel tells them.

use std::{
    fs::File,
    io::{Read, Seek},
};

/// Resources of a process at a moment.
pub(super) struct Usage {
    /// Resident or swapped out.
    pub(super) memory_bytes: u64,
    pub(super) threads: u64,
}

impl Usage {
    /// Of the process with this `/proc/<pid>/status`; `None` once it is gone.
    pub(super) fn of(mut status: &File) -> Option<Usage> {
        // Its user's groups stand before what is looked for, and may be many.
        let mut text = Vec::with_capacity(4096);
        status.rewind().ok()?;
        status.read_to_end(&mut text).ok()?;
        let field = |name: &[u8]| status_field(&text, name).unwrap_or(0);
        let memory_bytes = (field(b"VmRSS:") + field(b"VmSwap:")) << 10;
        Some(Usage { memory_bytes, threads: field(b"Threads:") })
    }
}

/// The number behind `name` in a `/proc/<pid>/status`.
fn status_field(status: &[u8], name: &[u8]) -> Option<u64> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    let digits = line.trim_ascii_start();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}
