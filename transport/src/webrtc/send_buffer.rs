//! Buffer of datagrams to be sent; its memory is reused.

use super::socket::CandidatePair;

/// Datagrams to be sent in one round of the endpoint.
#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    entries: Vec<(CandidatePair, usize)>,
}

impl SendBuffer {
    /// Appends the datagram that `write` appends to the given bytes; no datagram if `write` appends nothing
    /// or returns false.
    pub(super) fn write(&mut self, pair: CandidatePair, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.bytes.len();
        if write(&mut self.bytes) && self.bytes.len() > start {
            self.entries.push((pair, self.bytes.len()));
        } else {
            self.bytes.truncate(start);
        }
    }

    pub(super) fn push(&mut self, pair: CandidatePair, datagram: &[u8]) {
        self.write(pair, |bytes| {
            bytes.extend_from_slice(datagram);
            true
        });
    }

    /// Passes all datagrams in order to `each` and clears the buffer.
    pub(super) fn drain(&mut self, mut each: impl FnMut(CandidatePair, &[u8])) {
        let mut start = 0;
        for (pair, end) in self.entries.drain(..) {
            each(pair, &self.bytes[start..end]);
            start = end;
        }
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_come_out_as_they_went_in() {
        let pair = |port| CandidatePair { remote: ([192, 0, 2, 1], port).into(), local: None };
        let mut send_buffer = SendBuffer::default();
        send_buffer.push(pair(1), b"one");
        send_buffer.push(pair(2), b"");
        send_buffer.write(pair(3), |bytes| {
            bytes.extend_from_slice(b"refused");
            false
        });
        send_buffer.push(pair(4), b"four");
        let mut out = Vec::new();
        send_buffer.drain(|pair, bytes| out.push((pair.remote.port(), bytes.to_vec())));
        assert_eq!(out, [(1, b"one".to_vec()), (4, b"four".to_vec())]);
        send_buffer.drain(|_, _| panic!("nothing is left"));
    }
}
