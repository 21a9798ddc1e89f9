//! Addresses of this machine that a peer may reach.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

/// Documentation addresses: the route to them is the default route; nothing is sent.
const FAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// Returns the source address of each family's default route, or loopback without a route. The choice by
/// route excludes container bridges and tunnels, which no peer can reach.
pub(super) fn addresses(both: bool) -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::from_iter(leaving(Ipv4Addr::UNSPECIFIED.into(), FAR_V4)?);
    if both {
        found.extend(leaving(Ipv6Addr::UNSPECIFIED.into(), FAR_V6)?);
    }
    if found.is_empty() {
        found.push(Ipv4Addr::LOCALHOST.into());
    }
    Ok(found)
}

/// Returns the source address for `to`. Connecting a UDP socket sends nothing.
fn leaving(from: IpAddr, to: IpAddr) -> io::Result<Option<IpAddr>> {
    // A machine without the family, or without a route in it, has no such address.
    let Ok(socket) = UdpSocket::bind(SocketAddr::new(from, 0)) else { return Ok(None) };
    if socket.connect(SocketAddr::new(to, 9)).is_err() {
        return Ok(None);
    }
    let address = socket.local_addr()?.ip();
    Ok((!address.is_unspecified()).then_some(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_an_address_and_never_an_unspecified_one() {
        for both in [false, true] {
            let found = addresses(both).expect("sockets can be made");
            assert!(!found.is_empty());
            assert!(found.iter().all(|address| !address.is_unspecified()), "{found:?}");
        }
    }
}
