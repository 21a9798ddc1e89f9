//! Datagrams that wait to be sent, in one buffer that is kept.

use super::socket::Path;

/// Datagrams that one round of the port sends.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    entries: Vec<(Path, usize)>,
}

impl Outbox {
    /// Appends a datagram that `write` leaves behind the bytes it is given; none when it leaves
    /// nothing or refuses.
    pub(super) fn write(&mut self, path: Path, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.bytes.len();
        if write(&mut self.bytes) && self.bytes.len() > start {
            self.entries.push((path, self.bytes.len()));
        } else {
            self.bytes.truncate(start);
        }
    }

    /// Appends a datagram.
    pub(super) fn push(&mut self, path: Path, datagram: &[u8]) {
        self.write(path, |bytes| {
            bytes.extend_from_slice(datagram);
            true
        });
    }

    /// Gives out every datagram in order and forgets them.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Path, &[u8])) {
        let mut start = 0;
        for (path, end) in self.entries.drain(..) {
            each(path, &self.bytes[start..end]);
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
        let path = |port| Path { remote: ([192, 0, 2, 1], port).into(), local: None };
        let mut outbox = Outbox::default();
        outbox.push(path(1), b"one");
        outbox.push(path(2), b"");
        outbox.write(path(3), |bytes| {
            bytes.extend_from_slice(b"refused");
            false
        });
        outbox.push(path(4), b"four");
        let mut out = Vec::new();
        outbox.drain(|path, bytes| out.push((path.remote.port(), bytes.to_vec())));
        assert_eq!(out, [(1, b"one".to_vec()), (4, b"four".to_vec())]);
        outbox.drain(|_, _| panic!("nothing is left"));
    }
}
