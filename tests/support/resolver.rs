//! A DNS server of the test's own (RFC 1035), whose answers may change from query to query.

use std::{
    collections::HashMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::Path,
};

use super::on_thread;

/// The port that resolvers ask at, which is privileged on many machines.
const PORT: u16 = 53;
/// Addresses of a query for one, by its type.
const A: u8 = 1;
const AAAA: u8 = 28;

/// Answers until the test ends by `answer`, which is given a name and the number of earlier queries of its type; returns its
/// address.
pub fn serve(answer: impl Fn(&str, usize) -> Vec<IpAddr> + Send + 'static) -> io::Result<Ipv4Addr> {
    let mut bound = (1..255).map(|last| {
        let address = Ipv4Addr::new(127, 66, 53, last);
        UdpSocket::bind((address, PORT)).map(|socket| (address, socket))
    });
    // Others may test on this machine.
    let is_free = |bound: &io::Result<_>| !matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
    let (address, socket) = bound.find(is_free).expect("253 others")?;
    on_thread("resolver", move || {
        let (mut query, mut asked) = ([0; 512], HashMap::new());
        while let Ok((_, client)) = socket.recv_from(&mut query) {
            let (name, end) = name(&query);
            let kind = query[end + 1];
            let asked = asked.entry((name.clone(), kind)).or_insert(0);
            let addresses = answer(&name, *asked);
            *asked += 1;
            socket.send_to(&reply(&query[..end + 4], kind, &addresses), client).ok();
        }
    });
    Ok(address)
}

/// The name that is asked for, and the end of its labels.
fn name(query: &[u8]) -> (String, usize) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while query[at] > 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]));
        at = end;
    }
    (labels.join("."), at + 1)
}

/// The answer to `query`, which ends with its question: those addresses that are of its type, for no time at all.
fn reply(query: &[u8], kind: u8, addresses: &[IpAddr]) -> Vec<u8> {
    let of_kind = addresses.iter().filter_map(|address| match (kind, address) {
        (A, IpAddr::V4(address)) => Some(address.octets().to_vec()),
        (AAAA, IpAddr::V6(address)) => Some(address.octets().to_vec()),
        _ => None,
    });
    let records: Vec<Vec<u8>> = of_kind
        .map(|bytes| {
            [&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 0, 0, bytes.len() as u8], &bytes[..]].concat()
        })
        .collect();
    let head = [0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
    [&query[..2], &head, &query[12..], &records.concat()].concat()
}

/// The command of mounts with which names are looked up at `address` alone; its files lie in `dir`.
pub fn mounts(dir: &Path, address: Ipv4Addr) -> String {
    let files = [
        ("resolv.conf", format!("nameserver {address}\nsearch .\n")),
        ("nsswitch.conf", "passwd: files\nhosts: dns\n".to_owned()),
    ];
    let mount = files.map(|(name, text)| {
        let path = dir.join(name);
        fs::write(&path, text).expect("written");
        format!("mount --bind \"{}\" /etc/{name}", path.display())
    });
    mount.join(" && ")
}
