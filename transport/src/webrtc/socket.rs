//! UDP socket: batched reads, and replies from the address that received the request, which wait in a buffer
//! whose memory is reused.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

/// Kernel buffer per direction, in bytes: 20 ms of packets of 10,000 sessions, enough for a short stall of
/// the thread. The kernel caps it.
const BUFFER_BYTES: usize = 4 << 20;
/// Largest datagram, also the most that the kernel coalesces from small ones.
const SLOT_BYTES: usize = 64 * 1024;

/// Source and destination address of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CandidatePair {
    /// Address of the peer as the socket reports it; a dual-stack socket maps IPv4.
    pub(super) remote: SocketAddr,
    /// Local address that received the datagram; replies are sent from it.
    pub(super) local: Option<IpAddr>,
}

/// Socket with its receive buffers.
pub(super) struct UdpEndpointSocket {
    pub(super) socket: UdpSocket,
    state: UdpSocketState,
    pub(super) local: SocketAddr,
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
}

impl UdpEndpointSocket {
    /// Binds a non-blocking socket; an unspecified IPv6 address also accepts IPv4.
    pub(super) fn bind(address: SocketAddr) -> io::Result<UdpEndpointSocket> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
        if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            socket.set_only_v6(false)?;
        }
        socket.set_recv_buffer_size(BUFFER_BYTES)?;
        socket.set_send_buffer_size(BUFFER_BYTES)?;
        // The kernel reports twice the granted size, for its own bookkeeping (socket(7)).
        let granted = socket.recv_buffer_size()? / 2;
        if granted < BUFFER_BYTES {
            let wanted = BUFFER_BYTES;
            tracing::warn!(granted, wanted, "UDP receive buffer limited by net.core.rmem_max");
        }
        socket.bind(&address.into())?;
        let socket = UdpSocket::from(socket);
        // Makes the socket non-blocking and enables destination addresses and GRO.
        let state = UdpSocketState::new((&socket).into())?;
        let local = socket.local_addr()?;
        let bytes = vec![0; SLOT_BYTES * BATCH_SIZE];
        Ok(UdpEndpointSocket {
            socket,
            state,
            local,
            bytes,
            metas: [RecvMeta::default(); BATCH_SIZE],
        })
    }

    /// Reads the waiting datagrams and passes each to `each`, which may change it in place. Returns the
    /// number of buffers filled; zero if nothing waits.
    pub(super) fn receive(
        &mut self,
        mut each: impl FnMut(&mut [u8], CandidatePair),
    ) -> io::Result<usize> {
        let mut slots = self.bytes.chunks_mut(SLOT_BYTES);
        let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        let filled = match self.state.recv((&self.socket).into(), &mut buffers, &mut self.metas) {
            Ok(filled) => filled,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        };
        for (meta, buffer) in self.metas.iter().zip(&mut buffers).take(filled) {
            let pair = CandidatePair { remote: meta.addr, local: meta.dst_ip };
            for datagram in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
                each(datagram, pair);
            }
        }
        Ok(filled)
    }

    /// Sends one datagram between a pair; the datagram is dropped if the kernel's buffer is full.
    pub(super) fn send(&self, pair: CandidatePair, contents: &[u8]) -> io::Result<()> {
        self.state.try_send(
            (&self.socket).into(),
            &Transmit {
                destination: pair.remote,
                ecn: None,
                contents,
                segment_size: None,
                src_ip: pair.local,
            },
        )
    }
}

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
