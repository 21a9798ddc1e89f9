//! Memory and threads of a process, as reported by the kernel.

use std::{
    fs::File,
    io::{Read, Seek},
};

/// Resource usage of a process.
pub(super) struct Usage {
    /// Resident or swapped-out bytes.
    pub(super) memory_bytes: u64,
    pub(super) threads: u64,
}

impl Usage {
    /// Reads the usage from a `/proc/<pid>/status`; `None` once the process is gone.
    pub(super) fn of(mut status: &File) -> Option<Usage> {
        // The user's groups stand before the fields read here, and may be many.
        let mut text = Vec::with_capacity(4096);
        status.rewind().ok()?;
        status.read_to_end(&mut text).ok()?;
        let field = |name: &[u8]| status_field(&text, name).unwrap_or(0);
        let memory_bytes = (field(b"VmRSS:") + field(b"VmSwap:")) << 10;
        Some(Usage { memory_bytes, threads: field(b"Threads:") })
    }
}

/// Returns the number after `name` in a `/proc/<pid>/status`.
fn status_field(status: &[u8], name: &[u8]) -> Option<u64> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    let digits = line.trim_ascii_start();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}
