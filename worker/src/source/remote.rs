//! A remote file as a seekable byte stream: a pipe from the server, opened anew for a seek if need be.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use decode::{PLAYLIST_HEAD_BYTES, is_playlist};

use super::{Line, SourceErrorCell, error::RemoteSourceError};
use crate::Resource;

/// First bytes that are kept, so that detecting the format does not open the source again.
const HEAD_BYTES: usize = 4 << 10;

/// Longest seek forward that reads the bytes between, as they are on their way already.
const READ_ON_BYTES_MAX: u64 = 1 << 20;

/// Most reopenings at a server without byte ranges: for an index at the end, and for a second attempt at
/// damaged media.
const AGAIN_MAX: u32 = 4;

pub(super) struct RemoteInput {
    line: Line,
    trouble: SourceErrorCell,
    url: String,
    opened: Resource<File>,
    /// Number of reopenings at a server that always begins at the first byte.
    again: u32,
    /// Position of the pipe, and of the reader.
    pipe_at: u64,
    at: u64,
    head: Vec<u8>,
}

impl RemoteInput {
    pub(super) fn open(
        line: Line,
        url: &str,
        trouble: SourceErrorCell,
    ) -> Result<RemoteInput, RemoteSourceError> {
        let opened = line.open(url, 0).map_err(RemoteSourceError::Asking)?;
        let (url, again, pipe_at, at, head) = (url.to_owned(), 0, 0, 0, Vec::new());
        Ok(RemoteInput { line, trouble, url, opened, again, pipe_at, at, head })
    }

    /// Returns true if the bytes begin like a playlist.
    pub(super) fn is_playlist(&mut self) -> Result<bool, RemoteSourceError> {
        let mut first = Vec::new();
        let mut head = self.by_ref().take(PLAYLIST_HEAD_BYTES as u64);
        head.read_to_end(&mut first).map_err(RemoteSourceError::Reading)?;
        self.at = 0;
        Ok(is_playlist(&first))
    }

    /// Returns true if the length is unknown and the source cannot be read again.
    pub(super) fn is_endless(&self) -> bool {
        self.opened.size.is_none() && !self.opened.seekable
    }

    /// Returns the requested URL, and the URL after redirects.
    pub(super) fn urls(&self) -> (&str, &str) {
        (&self.url, &self.opened.url)
    }

    /// Moves the pipe to the reader's position.
    fn follow(&mut self) -> io::Result<()> {
        if self.pipe_at <= self.at && self.at - self.pipe_at <= READ_ON_BYTES_MAX {
            return self.read_on();
        }
        self.again += u32::from(!self.opened.seekable);
        if self.again > AGAIN_MAX {
            return Err(self.trouble.note(RemoteSourceError::NoRanges));
        }
        let opened = self.line.open(&self.url, self.at)?;
        if opened.size != self.opened.size {
            return Err(self.trouble.note(RemoteSourceError::Changed));
        }
        (self.opened, self.pipe_at) = (opened, self.at);
        Ok(())
    }

    /// Skips the bytes before the reader's position.
    fn read_on(&mut self) -> io::Result<()> {
        let skipped = self.at - self.pipe_at;
        let read = io::copy(&mut (&self.opened.bytes).take(skipped), &mut io::sink())?;
        self.pipe_at += read;
        if read < skipped { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl Read for RemoteInput {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(kept) = usize::try_from(self.at).ok().and_then(|at| self.head.get(at..))
            && !kept.is_empty()
        {
            let len = kept.len().min(out.len());
            out[..len].copy_from_slice(&kept[..len]);
            self.at += len as u64;
            return Ok(len);
        }
        if out.is_empty() || self.opened.size.is_some_and(|size| self.at >= size) {
            return Ok(0);
        }
        self.follow()?;
        let len = (&self.opened.bytes).read(out)?;
        if len == 0 && self.opened.size.is_some() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.at == self.head.len() as u64 {
            let room = HEAD_BYTES.saturating_sub(self.head.len()).min(len);
            self.head.extend_from_slice(&out[..room]);
        }
        self.at += len as u64;
        self.pipe_at = self.at;
        Ok(len)
    }
}

/// Input of unknown length can only seek to the start.
impl Seek for RemoteInput {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(0) => Some(0),
            _ if self.is_endless() => return Err(io::ErrorKind::Unsupported.into()),
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.opened.size.and_then(|size| size.checked_add_signed(by)),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
