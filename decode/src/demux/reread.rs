//! First bytes of an input that can be read only once, kept until it is known that they are not read again.

use std::{
    io::{ErrorKind, Read, Result, Seek, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::ByteSource;

/// Input that can be read from its start again, as long as its bytes are kept.
pub(super) struct Reread {
    input: Box<dyn ByteSource>,
    kept: Vec<u8>,
    /// Position in the kept bytes.
    at: usize,
    is_over: Arc<AtomicBool>,
}

impl Reread {
    /// Keeps the bytes of `input` as they are read, until the flag that is returned is set; an input that can
    /// seek is left as it is.
    pub(super) fn of(mut input: Box<dyn ByteSource>) -> (Box<dyn ByteSource>, Arc<AtomicBool>) {
        let is_over = Arc::<AtomicBool>::default();
        if input.stream_position().is_err() {
            let (kept, is_over) = (Vec::new(), Arc::clone(&is_over));
            input = Box::new(Reread { input, kept, at: 0, is_over });
        }
        (input, is_over)
    }
}

impl Read for Reread {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let left = &self.kept[self.at..];
        if !left.is_empty() {
            let len = left.len().min(out.len());
            out[..len].copy_from_slice(&left[..len]);
            self.at += len;
            return Ok(len);
        }
        let is_over = self.is_over.load(Relaxed);
        if is_over && self.at > 0 {
            // From here on there is no way back.
            (self.kept, self.at) = (Vec::new(), 0);
        }
        let len = self.input.read(out)?;
        if !is_over {
            self.kept.extend_from_slice(&out[..len]);
            self.at = self.kept.len();
        }
        Ok(len)
    }
}

/// Seeks only to the start, as long as its bytes are kept.
impl Seek for Reread {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let is_gone = self.kept.is_empty() && self.is_over.load(Relaxed);
        if to != SeekFrom::Start(0) || is_gone {
            return Err(ErrorKind::Unsupported.into());
        }
        self.at = 0;
        Ok(0)
    }
}
