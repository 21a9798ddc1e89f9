//! Addresses that may be connected to: globally routable ones, and those that the operator adds.
//!
//! The ranges are those of IANA's special-purpose registries (RFC 6890 and its updates), taken as a whole:
//! the few anycast services in them serve no media. An IPv6 address with an embedded IPv4 address must pass
//! with both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const fn v4(address: [u8; 4], len: u8) -> IpNet {
    let [a, b, c, d] = address;
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), len))
}

const fn v6(groups: [u16; 8], len: u8) -> IpNet {
    let [a, b, c, d, e, f, g, h] = groups;
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), len))
}

/// Special-purpose ranges and their names; the first row that contains an address applies.
const SPECIAL: &[(IpNet, &str)] = &[
    (v4([169, 254, 169, 254], 32), "a cloud's metadata service"),
    // A public address that the host of every virtual machine of that cloud answers.
    (v4([168, 63, 129, 16], 32), "a cloud's metadata service"),
    (v4([100, 100, 100, 200], 32), "a cloud's metadata service"),
    (v4([0, 0, 0, 0], 8), "this network"),
    (v4([10, 0, 0, 0], 8), "a private network"),
    (v4([100, 64, 0, 0], 10), "a carrier's shared network"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    (v4([169, 254, 0, 0], 16), "link-local"),
    (v4([172, 16, 0, 0], 12), "a private network"),
    (v4([192, 0, 0, 0], 24), "reserved for protocols"),
    (v4([192, 0, 2, 0], 24), "documentation"),
    (v4([192, 88, 99, 0], 24), "a 6to4 relay"),
    (v4([192, 168, 0, 0], 16), "a private network"),
    (v4([198, 18, 0, 0], 15), "benchmarking"),
    (v4([198, 51, 100, 0], 24), "documentation"),
    (v4([203, 0, 113, 0], 24), "documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([255, 255, 255, 255], 32), "broadcast"),
    (v4([240, 0, 0, 0], 4), "reserved"),
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), "a cloud's metadata service"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), "IPv4-mapped"),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), "IPv4-translated"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "IPv4-compatible"),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), "NAT64"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "NAT64"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discard-only"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "Teredo"),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), "benchmarking"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "reserved for protocols"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "documentation"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "6to4"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "documentation"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "unique local"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];

/// Space allocated for global unicast so far; the rest is reserved.
const GLOBAL_V6: IpNet = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Returns the special purpose of an address; `None` if it is globally routable.
fn special(address: IpAddr) -> Option<&'static str> {
    let row = SPECIAL.iter().find(|(net, _)| net.contains(&address));
    let is_reserved = address.is_ipv6() && !GLOBAL_V6.contains(&address);
    row.map(|(_, what)| *what).or(is_reserved.then_some("reserved"))
}

/// Returns the embedded IPv4 addresses at which packets to an IPv6 address may end.
fn embedded(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let bytes = address.octets();
    let at = |start: usize| {
        let chunk: &[u8; 4] = bytes[start..].first_chunk().expect("twelve or less of sixteen");
        Ipv4Addr::from(*chunk)
    };
    let found = match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0..=1] => [None, None],
        [0, 0, 0, 0, 0, 0 | 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, ..]
        // ISATAP: an interface identifier in any prefix.
        | [_, _, _, _, 0 | 0x200, 0x5efe, ..] => [Some(at(12)), None],
        // Teredo: the server's address, and the client's with every bit inverted.
        [0x2001, 0, ..] => [Some(at(4)), Some(Ipv4Addr::from_bits(!at(12).to_bits()))],
        [0x2002, ..] => [Some(at(2)), None],
        _ => [None, None],
    };
    found.into_iter().flatten()
}

/// Networks that may be connected to although they are not globally routable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkAllowlist(pub Vec<IpNet>);

impl NetworkAllowlist {
    /// Returns the reason not to connect to `address`; `None` if it may be connected to.
    pub(super) fn blocked_reason(&self, address: IpAddr) -> Option<&'static str> {
        let carried = match address {
            IpAddr::V6(address) => {
                embedded(address).find_map(|inner| self.blocked_reason(inner.into()))
            }
            IpAddr::V4(_) => None,
        };
        let is_allowed = self.0.iter().any(|net| net.contains(&address));
        special(address).filter(|_| !is_allowed).or(carried)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    #[test]
    fn only_global_addresses_are_global() {
        let global = [
            "1.1.1.1",
            "8.8.8.8",
            "192.31.196.1",
            "2001:200::1",
            "2001:db7:ffff::1",
            "2001:db9::",
            "2003::1",
            "2606:4700:4700::1111",
            "2620:4f:8000::1",
            "3ffe:ffff::1",
            "3fff:1000::1",
            "2a00:1450::0:5efe:808:808",
        ];
        for text in global {
            let found = NetworkAllowlist::default().blocked_reason(text.parse().expect(text));
            assert_eq!(found, None, "{text}");
        }
    }

    #[test]
    fn every_special_range_is_refused_by_name_at_both_ends() {
        let rows = [
            ("0.0.0.0", "0.255.255.255", "this network"),
            ("10.0.0.0", "10.255.255.255", "a private network"),
            ("100.64.0.0", "100.127.255.255", "a carrier's shared network"),
            ("100.100.100.200", "100.100.100.200", "a cloud's metadata service"),
            ("127.0.0.0", "127.255.255.255", "loopback"),
            ("168.63.129.16", "168.63.129.16", "a cloud's metadata service"),
            ("169.254.0.0", "169.254.255.255", "link-local"),
            ("169.254.169.254", "169.254.169.254", "a cloud's metadata service"),
            ("172.16.0.0", "172.31.255.255", "a private network"),
            ("192.0.0.0", "192.0.0.255", "reserved for protocols"),
            ("192.0.2.0", "192.0.2.255", "documentation"),
            ("192.88.99.0", "192.88.99.255", "a 6to4 relay"),
            ("192.168.0.0", "192.168.255.255", "a private network"),
            ("198.18.0.0", "198.19.255.255", "benchmarking"),
            ("198.51.100.0", "198.51.100.255", "documentation"),
            ("203.0.113.0", "203.0.113.255", "documentation"),
            ("224.0.0.0", "239.255.255.255", "multicast"),
            ("240.0.0.0", "255.255.255.254", "reserved"),
            ("255.255.255.255", "255.255.255.255", "broadcast"),
            ("::", "::", "unspecified"),
            ("::1", "::1", "loopback"),
            ("::2", "::ffff:ffff", "IPv4-compatible"),
            ("::ffff:0:0", "::ffff:255.255.255.255", "IPv4-mapped"),
            ("::ffff:8.8.8.8", "::ffff:8.8.8.8", "IPv4-mapped"),
            ("::ffff:0:0:0", "::ffff:0:8.8.8.8", "IPv4-translated"),
            ("64:ff9b::", "64:ff9b::8.8.8.8", "NAT64"),
            ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "NAT64"),
            ("100::", "100::ffff:ffff:ffff:ffff", "discard-only"),
            ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "Teredo"),
            ("2001:1::1", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved for protocols"),
            ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", "benchmarking"),
            ("2001:10::", "2001:2f:ffff::", "reserved for protocols"),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
            ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "6to4"),
            ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
            ("5f00::", "5f00:ffff::", "reserved"),
            ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "unique local"),
            ("fd00:ec2::254", "fd00:ec2::254", "a cloud's metadata service"),
            ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link-local"),
            ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "site-local"),
            ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast"),
            ("1000::", "1fff::", "reserved"),
            ("4000::", "fbff::", "reserved"),
            ("2a00:1450::5efe:a00:1", "2a00:1450::200:5efe:a00:1", "a private network"),
        ];
        for (first, last, expected) in rows {
            for text in [first, last] {
                let found = NetworkAllowlist::default().blocked_reason(text.parse().expect(text));
                assert_eq!(found, Some(expected), "{text}");
            }
        }
        let v4 = |text: &str| text.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits);
        let ranges: Vec<RangeInclusive<u32>> =
            rows.iter().filter_map(|(first, last, _)| Some(v4(first)?..=v4(last)?)).collect();
        let ends = ranges.iter().flat_map(|range| {
            [range.start().checked_sub(1), range.end().checked_add(1)].into_iter().flatten()
        });
        for beside in ends.filter(|bits| !ranges.iter().any(|range| range.contains(bits))) {
            let beside = IpAddr::from(Ipv4Addr::from_bits(beside));
            assert_eq!(NetworkAllowlist::default().blocked_reason(beside), None, "{beside}");
        }
    }

    #[test]
    fn an_allowed_network_opens_itself_and_nothing_that_it_carries() {
        let parse = |nets: &[&str]| {
            NetworkAllowlist(nets.iter().map(|net| net.parse().expect("a network")).collect())
        };
        let rows = [
            (&["127.0.0.0/8"][..], "127.0.0.1", true),
            (&["127.0.0.0/8"], "10.0.0.1", false),
            (&["127.0.0.0/8"], "::ffff:127.0.0.1", false),
            (&["127.0.0.0/8", "::ffff:0:0/96"], "::ffff:127.0.0.1", true),
            (&["64:ff9b::/96"], "64:ff9b::8.8.8.8", true),
            (&["64:ff9b::/96"], "64:ff9b::10.0.0.1", false),
            (&["64:ff9b::/96", "10.0.0.0/8"], "64:ff9b::10.0.0.1", true),
            (&["2002::/16"], "2002:a00:1::1", false),
            (&["2002::/16"], "2002:808:808::1", true),
            (&["2001::/32"], "2001:0:808:808:0:0:f7f7:f7f7", true),
            (&["2001::/32"], "2001:0:a00:1:0:0:f7f7:f7f7", false),
            (&["2001::/32"], "2001:0:808:808:0:0:f5ff:fffe", false),
            (&["::1/128"], "::1", true),
        ];
        for (nets, text, expected) in rows {
            let found = parse(nets).blocked_reason(text.parse().expect(text));
            assert_eq!(found.is_none(), expected, "{nets:?} {text}: {found:?}");
        }
    }
}
