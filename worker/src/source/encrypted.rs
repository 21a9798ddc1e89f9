//! Decrypts an AES-128 segment (RFC 8216 5.2): CBC with PKCS #7 padding.

use std::io::{self, Read};

use decode::CbcDecryptor;

use super::{SourceErrorCell, error::RemoteSourceError};

const BLOCK_BYTES: usize = 16;
const READ_BYTES: usize = 64 << 10;

pub(super) struct AesSegmentReader<R> {
    coded: R,
    decryptor: CbcDecryptor,
    trouble: SourceErrorCell,
    /// Decrypted up to `decrypted`, read up to `taken`; the rest is still encrypted.
    buffer: Vec<u8>,
    taken: usize,
    decrypted: usize,
    has_ended: bool,
}

impl<R: Read> AesSegmentReader<R> {
    pub(super) fn new(
        coded: R,
        decryptor: CbcDecryptor,
        trouble: SourceErrorCell,
    ) -> AesSegmentReader<R> {
        let (buffer, taken, decrypted, has_ended) = (Vec::new(), 0, 0, false);
        AesSegmentReader { coded, decryptor, trouble, buffer, taken, decrypted, has_ended }
    }

    fn refill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.decrypted);
        (self.taken, self.decrypted) = (0, 0);
        while !self.has_ended && self.buffer.len() <= BLOCK_BYTES {
            let before = self.buffer.len();
            self.buffer.resize(before + READ_BYTES, 0);
            let read = self.coded.read(&mut self.buffer[before..]);
            self.buffer.truncate(before + read.as_ref().copied().unwrap_or(0));
            self.has_ended = read? == 0;
        }
        if self.has_ended {
            return self.finish();
        }
        // The last block may be padding, so it is kept until more bytes or the end come.
        let whole = (self.buffer.len() - 1) / BLOCK_BYTES * BLOCK_BYTES;
        self.decryptor.decrypt(&mut self.buffer[..whole]);
        self.decrypted = whole;
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let len = self.buffer.len();
        self.decryptor.decrypt(&mut self.buffer);
        let padding = usize::from(self.buffer[len - 1]);
        let is_padded = len.is_multiple_of(BLOCK_BYTES)
            && (1..=BLOCK_BYTES).contains(&padding)
            && self.buffer[len - padding..].iter().all(|&byte| usize::from(byte) == padding);
        if !is_padded {
            return Err(self.trouble.note(RemoteSourceError::Decryption));
        }
        self.buffer.truncate(len - padding);
        self.decrypted = self.buffer.len();
        Ok(())
    }
}

impl<R: Read> Read for AesSegmentReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.decrypted {
            if self.has_ended {
                return Ok(0);
            }
            self.refill()?;
        }
        let len = out.len().min(self.decrypted - self.taken);
        out[..len].copy_from_slice(&self.buffer[self.taken..self.taken + len]);
        self.taken += len;
        Ok(len)
    }
}
