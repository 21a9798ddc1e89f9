//! HTTP/2 frames, as far as they carry heads.

use tokio::time::Instant;

const HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

#[derive(Debug, Default)]
pub(super) struct Frames {
    header: [u8; HEADER_BYTES],
    /// Bytes of `header` received.
    have: usize,
    /// Bytes of the frame's payload not yet received.
    left: usize,
    /// True within a field block (HEADERS and CONTINUATION).
    in_block: bool,
}

impl Frames {
    /// Sets `since` while a head, or the first bytes of a frame that may be one, is incomplete.
    pub fn read(&mut self, mut bytes: &[u8], now: Instant, since: &mut Option<Instant>) {
        while !bytes.is_empty() {
            if self.have < HEADER_BYTES {
                since.get_or_insert(now);
                let count = bytes.len().min(HEADER_BYTES - self.have);
                self.header[self.have..self.have + count].copy_from_slice(&bytes[..count]);
                self.have += count;
                bytes = &bytes[count..];
                if self.have < HEADER_BYTES {
                    return;
                }
                let [a, b, c, ..] = self.header;
                self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.in_block |= matches!(self.header[3], HEADERS | CONTINUATION);
            }
            let count = bytes.len().min(self.left);
            self.left -= count;
            bytes = &bytes[count..];
            if self.left == 0 {
                let [.., kind, flags, _, _, _, _] = self.header;
                let is_head = matches!(kind, HEADERS | CONTINUATION);
                self.in_block &= !(is_head && flags & END_HEADERS != 0);
                self.have = 0;
            }
            if !self.in_block {
                *since = None;
            }
        }
    }
}
