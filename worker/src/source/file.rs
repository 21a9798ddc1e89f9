//! A file read through its descriptor at its own position, as the server shares the open file's position.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::FileExt,
};

pub(super) struct FileInput {
    file: File,
    len: u64,
    at: u64,
}

impl FileInput {
    /// Reads the first `len` bytes of `file`.
    pub(super) fn new(file: File, len: u64) -> FileInput {
        FileInput { file, len, at: 0 }
    }
}

impl Read for FileInput {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // Bytes appended while the job runs are not part of the input.
        let left = self.len.saturating_sub(self.at);
        let want = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let len = self.file.read_at(&mut out[..want], self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for FileInput {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
