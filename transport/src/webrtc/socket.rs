//! The UDP socket: many datagrams a system call, and replies from the address that was asked.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

/// Kernel buffers in each direction: 20 ms of the packets of 10,000 sessions, and as much as a
/// stalled thread may miss. The kernel caps it at its own limit.
const BUFFER_BYTES: usize = 4 << 20;
/// The largest datagram, which is also the most that the kernel puts together from small ones.
const SLOT_BYTES: usize = 64 * 1024;

/// Source and destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CandidatePair {
    /// The peer, as the socket names it: IPv4 is mapped on a socket of both families.
    pub(super) remote: SocketAddr,
    /// Our address that it used, to answer from the same.
    pub(super) local: Option<IpAddr>,
}

/// The socket and the buffers that are filled from it.
pub(super) struct UdpEndpointSocket {
    socket: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
}

impl UdpEndpointSocket {
    /// Binds without blocking; an unspecified IPv6 address takes IPv4 as well.
    pub(super) fn bind(address: SocketAddr) -> io::Result<UdpEndpointSocket> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
        if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            socket.set_only_v6(false)?;
        }
        socket.set_recv_buffer_size(BUFFER_BYTES)?;
        socket.set_send_buffer_size(BUFFER_BYTES)?;
        // The kernel tells twice of what it grants, for its own bookkeeping (socket(7)).
        let granted = socket.recv_buffer_size()? / 2;
        if granted < BUFFER_BYTES {
            let wanted = BUFFER_BYTES;
            tracing::warn!(granted, wanted, "UDP receive buffer limited by net.core.rmem_max");
        }
        socket.bind(&address.into())?;
        let socket = UdpSocket::from(socket);
        // Sets the socket to not block, and asks for destination addresses and joined datagrams.
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

    /// The bound address.
    pub(super) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Reads what is there and gives out each datagram, to be changed in place. Returns how many
    /// buffers the kernel filled; zero when nothing waits.
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

    /// Sends one datagram between a pair. One that the kernel has no room for is dropped.
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

impl AsFd for UdpEndpointSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
