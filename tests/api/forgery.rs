//! Addresses that nobody outside may reach (SSRF), in every spelling, behind names, and by every way that leads there: sockets
//! on this machine that must hear nothing.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use serde_json::json;

use crate::{
    api::{
        remote::{ingest, setup},
        webhooks,
    },
    support::{
        Reply, can_mount, clip_bytes,
        host::{Answer, Certificate, Host},
        on_thread, resolver, skip, this_test,
    },
};

/// Address of this machine that is not allowed, where the traps are.
const TRAP: Ipv4Addr = Ipv4Addr::new(127, 66, 6, 6);

/// Addresses that are not public, of each kind.
const PRIVATE: [Ipv4Addr; 11] = [
    TRAP,
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(172, 16, 0, 1),
    Ipv4Addr::new(192, 168, 1, 1),
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(100, 64, 0, 1),
    Ipv4Addr::new(198, 18, 0, 1),
    Ipv4Addr::new(192, 0, 0, 1),
    Ipv4Addr::new(224, 0, 0, 1),
    Ipv4Addr::new(255, 255, 255, 255),
    Ipv4Addr::new(0, 0, 0, 0),
];

/// Hosts as a URL may spell them: each address in every form, and what is only IPv6 or a name.
fn spellings() -> Vec<String> {
    let of = |address: Ipv4Addr| {
        let [a, b, c, d] = address.octets();
        let (number, half) = (address.to_bits(), u16::from_be_bytes([c, d]));
        let (high, rest) = (number >> 16, number & 0xff_ffff);
        let wide = |digit: char| char::from_u32(digit as u32 + 0xfee0).expect("a wide digit");
        [
            format!("{a}.{b}.{c}.{d}"),
            format!("{a}.{b}.{c}.{d}."),
            number.to_string(),
            format!("{number:#x}"),
            format!("{number:#X}"),
            format!("0{number:o}"),
            format!("{a}.{rest}"),
            format!("{a}.{b}.{half}"),
            format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
            format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
            format!("{a:#x}.0{b:o}.{c}.{d}"),
            format!("000{a:o}.{b}.{c}.{d}"),
            format!("%{:02x}{}", address.to_string().as_bytes()[0], &address.to_string()[1..]),
            a.to_string().chars().map(wide).chain(format!(".{b}.{c}.{d}").chars()).collect(),
            format!("{a}\u{3002}{b}\u{ff0e}{c}\u{ff61}{d}"),
            format!("[::ffff:{a}.{b}.{c}.{d}]"),
            format!("[::ffff:{high:x}:{half:x}]"),
            format!("[0:0:0:0:0:FFFF:{high:X}:{half:X}]"),
            format!("[::{a}.{b}.{c}.{d}]"),
            format!("[64:ff9b::{a}.{b}.{c}.{d}]"),
            format!("[2002:{high:x}:{half:x}::1]"),
            format!("somebody:secret@{a}.{b}.{c}.{d}"),
            format!("93.184.216.34@{a}.{b}.{c}.{d}"),
        ]
    };
    let others = [
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[fe80::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[100::1]",
        "[fec0::1]",
        "[::1%25lo]",
        "0",
        "0x0",
        "metadata.google.internal",
    ];
    let others = others.map(str::to_owned).into_iter();
    PRIVATE.into_iter().flat_map(of).chain(others).collect()
}

/// Listeners where nothing may come, on one port of each family.
struct Traps {
    port: u16,
    sprung: Arc<AtomicUsize>,
}

impl Traps {
    /// On a port of this number, or on any where that is 0.
    fn set(port: u16) -> Traps {
        let (first, sprung) = (TcpListener::bind((TRAP, port)).expect("a port"), Arc::default());
        let port = first.local_addr().expect("an address").port();
        let loopback = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        // Without IPv6 nothing can come that way.
        for trap in [Some(first), TcpListener::bind(loopback).ok()].into_iter().flatten() {
            let sprung: Arc<AtomicUsize> = Arc::clone(&sprung);
            let wait = move || {
                for _ in trap.incoming() {
                    sprung.fetch_add(1, Relaxed);
                }
            };
            on_thread("trap", wait);
        }
        Traps { port, sprung }
    }
}

/// A refusal in words that say why, before anything was sent.
fn is_refusal(reply: &Reply) -> bool {
    let answer = reply.json();
    let message = answer["error"]["details"][0]["message"].as_str().unwrap_or_default();
    let known = [
        "blocked address",
        "dns:",
        "malformed url",
        "redirects to nowhere",
        "user or password",
        "are followed",
    ];
    reply.status == 422 && known.iter().any(|known| message.contains(known))
}

#[track_caller]
fn refused(way: &str, place: &str, reply: &Reply) {
    assert!(is_refusal(reply), "{way} {place}: {} {}", reply.status, reply.text);
}

#[test]
fn no_spelling_of_an_address_and_no_way_to_it_reaches_what_is_not_public() {
    let (certificate, traps) = (Certificate::new(), Traps::set(0));
    let port = traps.port;
    let spellings = spellings();
    assert!(spellings.len() >= 150, "{}", spellings.len());
    let listed = spellings.clone();
    let host = Host::start(&certificate, move |asked, out| {
        let (way, place) = asked.path[1..].split_once('/').expect("two parts");
        // The worker asks for the segment beside what is spelled.
        let place = place.split('.').next().and_then(|place| place.parse::<usize>().ok());
        let Some(place) = place else { return out.whole(&[0; 188]) };
        let url = format!("https://{}:{port}/a.mp4", listed[place]);
        let mut playlist = String::from("#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n");
        let media = match way {
            "to" => return out.redirect(&url),
            "segment" => format!("#EXTINF:1,\n{url}\n#EXT-X-ENDLIST\n"),
            "key" => format!(
                "#EXT-X-KEY:METHOD=AES-128,URI=\"{url}\"\n#EXTINF:1,\nkept.ts\n#EXT-X-ENDLIST\n"
            ),
            "map" => format!("#EXT-X-MAP:URI=\"{url}\"\n#EXTINF:1,\nkept.m4s\n#EXT-X-ENDLIST\n"),
            _ => format!("#EXT-X-STREAM-INF:BANDWIDTH=1\n{url}\n"),
        };
        write!(playlist, "{media}").expect("a string");
        out.whole(playlist.as_bytes())
    });
    let allowed = setup(&certificate).var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.1/32");
    let server = allowed.var("SERVICE_ALLOW_REMOTE_HLS", "true").start();
    let run = server.create_run();
    // A worker reads a playlist: not all of them where there is little time.
    let step = clips::sized(7, 1);
    for (place, spelling) in spellings.iter().enumerate() {
        let url = |scheme: &str| format!("{scheme}://{spelling}:{port}/a.mp4");
        refused("https", spelling, &ingest(&server, &run, &url("https")));
        let hook = server.post("/v1/webhooks", &json!({ "url": url("https") }));
        refused("webhook", spelling, &hook);
        let to = host.url(&format!("/to/{place}.a.mp4"));
        refused("to", spelling, &ingest(&server, &run, &to));
        if place % step == 0 {
            refused("rtsps", spelling, &ingest(&server, &run, &url("rtsps")));
            for way in ["segment", "key", "map", "variant"] {
                let list = host.url(&format!("/{way}/{place}.m3u8"));
                refused(way, spelling, &ingest(&server, &run, &list));
            }
        }
    }
    assert_eq!(traps.sprung.load(Relaxed), 0, "something came to a trap");
}

/// Each address that is spelled, once: those of IPv4, what carries them in IPv6, and what is only IPv6.
fn addresses() -> Vec<IpAddr> {
    let address = |spelling: &String| -> Option<IpAddr> {
        let url = reqwest::Url::parse(&format!("https://{spelling}/")).ok()?;
        url.host_str()?.trim_matches(['[', ']']).parse().ok()
    };
    let once: BTreeSet<IpAddr> = spellings().iter().filter_map(address).collect();
    once.into_iter().collect()
}

/// Addresses of a name by its first words, at the query after so many others.
fn led_to(private: &[IpAddr], name: &str, before: usize) -> Vec<IpAddr> {
    let (allowed, trap) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(TRAP));
    let mut words = name.split(['.', '-']);
    match (words.next(), words.next().and_then(|place| place.parse::<usize>().ok())) {
        (Some("steady"), _) => vec![allowed],
        (Some("turning"), _) => vec![if before == 0 { allowed } else { trap }],
        (Some("private"), Some(place)) => vec![private[place]],
        (Some("both"), Some(place)) => vec![allowed, private[place]],
        _ => Vec::new(),
    }
}

#[test]
fn no_name_leads_to_what_is_not_public_also_where_its_addresses_change() {
    if !can_mount() {
        return;
    }
    let addresses = addresses();
    assert!(addresses.len() >= 60, "{}", addresses.len());
    let private = addresses.clone();
    let resolver = match resolver::serve(move |name, before| led_to(&private, name, before)) {
        Ok(address) => address,
        Err(error) => return skip(&this_test(), format!("no port 53: {error}")),
    };
    let certificate = Certificate::new();
    let clip = clip_bytes("motion.mp4");
    let host = Host::start(&certificate, move |asked, out| {
        let port = asked.header("host").rsplit(':').next().unwrap_or_default().to_owned();
        match asked.path[1..].split_once('/') {
            Some(("to", name)) => {
                out.redirect(&format!("https://{name}.example.com:{port}/a.mp4"))?;
            }
            Some((_, name)) => {
                let name = name.trim_end_matches(".m3u8");
                let url = format!("https://{name}.example.com:{port}/a.ts");
                let head = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,";
                out.whole(format!("{head}\n{url}\n#EXT-X-ENDLIST\n").as_bytes())?;
            }
            None => out.whole(&clip)?,
        }
        // The next request of this name needs its address again.
        Err(io::ErrorKind::ConnectionReset.into())
    });
    let traps = Traps::set(host.port());
    let server = setup(&certificate)
        .var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.1/32")
        .var("SERVICE_ALLOW_REMOTE_HLS", "true")
        .resolving_at(resolver)
        .start();
    let run = server.create_run();
    let port = host.port();
    let url = |name: &str, path: &str| format!("https://{name}.example.com:{port}/{path}");
    ingest(&server, &run, &url("steady", "motion.mp4")).assert_ok();

    // As in the test of spellings, not all of them by a worker.
    let step = clips::sized(7, 1);
    for (place, address) in addresses.iter().enumerate() {
        for name in [format!("private-{place}"), format!("both-{place}")] {
            let reply = ingest(&server, &run, &url(&name, "a.mp4"));
            refused("https", &name, &reply);
            assert!(reply.text.contains("blocked address"), "{address}: {}", reply.text);
            let hook = json!({ "url": url(&name, "hook") });
            refused("webhook", &name, &webhooks::create(&server, &run, &hook));
            let to = url("steady", &format!("to/{name}"));
            refused("to", &name, &ingest(&server, &run, &to));
            if place % step == 0 {
                let rtsps = url(&name, "a").replace("https", "rtsps");
                refused("rtsps", &name, &ingest(&server, &run, &rtsps));
                let segment = url("steady", &format!("segment/{name}.m3u8"));
                refused("segment", &name, &ingest(&server, &run, &segment));
            }
        }
    }
    // Asked twice for one connection, the second answer would be connected to.
    let before = host.connections();
    let reply = ingest(&server, &run, &url("turning-file", "motion.mp4"));
    assert!(reply.status == 200 || is_refusal(&reply), "{} {}", reply.status, reply.text);
    for (way, name) in [("to", "turning-to"), ("segment", "turning-segment.m3u8")] {
        let first = url(name.trim_end_matches(".m3u8"), &format!("{way}/{name}"));
        refused(way, name, &ingest(&server, &run, &first));
    }
    assert!(host.connections() >= before + 3, "each was let in by its first address");
    let run = server.create_run();
    let hook = webhooks::hook(&server, &run, &url("turning-hook", "hook"));
    webhooks::events(&server, &run, 1);
    let found = webhooks::wait_for_status(&server, &run, &hook["webhook_id"], "failing");
    let told = found["last_error"]["message"].as_str().expect("a text");
    assert!(told.contains("blocked address"), "{told}");
    assert_eq!(traps.sprung.load(Relaxed), 0, "something came to a trap");
}
