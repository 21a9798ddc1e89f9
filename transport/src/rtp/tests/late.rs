//! Tests of late and lost packets, and of the requests for them.

use std::collections::BTreeMap;

use super::*;

/// Packets per picture; pictures are 33 ms apart.
const PACKETS: u64 = 6;

/// Delay of packet `n` in milliseconds.
type Delay = fn(u64) -> u64;

/// Path, described by its effect on packet `n`.
struct Road {
    delay_ms: Delay,
    is_lost: fn(u64) -> bool,
    /// Time from a request to the retransmission, in ms.
    repeat_ms: u64,
    /// True if retransmissions arrive in a separate stream, as with RTX.
    repeats_apart: bool,
}

#[derive(Debug)]
struct Driven {
    packets: u64,
    /// Requests for each packet, in milliseconds since the arrival of the next one.
    asked: BTreeMap<u64, Vec<u64>>,
    pictures: usize,
    lost: u64,
}

impl Driven {
    /// Returns the requests for packets that were not lost, per hundred packets.
    fn needless(&self, road: &Road) -> f64 {
        let needless = self.asked.iter().filter(|(number, _)| !(road.is_lost)(**number));
        let needless: usize = needless.map(|(_, asked)| asked.len()).sum();
        100.0 * needless as f64 / self.packets as f64
    }
}

/// Returns a pseudo-random number for a packet, the same on each call.
fn chance(packet: u64, of: u64) -> u64 {
    fastrand::Rng::with_seed(packet).u64(..of)
}

/// Simulates ten seconds of pictures over `road`.
fn drive(road: &Road) -> Driven {
    const PICTURES: u64 = 300;
    let mut link = Link::new(Codec::Vp8);
    let mut sent = Vec::new();
    // First arrival of each packet.
    let (mut coming, mut arrivals) = (BTreeMap::new(), BTreeMap::new());
    for picture in 0..PICTURES {
        let payloads = frame(picture % 30 == 0, picture as u8, PACKETS as usize);
        for (part, payload) in (0..).zip(&payloads) {
            let number = sent.len() as u64;
            let packet = link.lose(payload, 3000 * picture as u32, part + 1 == PACKETS);
            if !(road.is_lost)(number) {
                let at = 33 * picture + (road.delay_ms)(number);
                coming.insert((at, sent.len()), (packet.clone(), false));
                arrivals.insert(number, at);
            }
            sent.push(packet);
        }
    }
    let numbers: BTreeMap<u16, u64> =
        (0..).zip(&sent).map(|(number, sent)| (sent.sequence, number)).collect();
    let mut asked: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let units = link.carry(coming, PICTURES * 33 + 1000, |now, sequence| {
        let number = numbers[&sequence];
        let next = arrivals.range(number + 1..).map(|(_, at)| *at).min();
        asked.entry(number).or_default().push(now - next.expect("a later one came"));
        let at = now + road.repeat_ms;
        arrivals.entry(number).and_modify(|first| *first = at.min(*first)).or_insert(at);
        Some((at, sent[number as usize].clone(), road.repeats_apart))
    });
    let (packets, lost) = (sent.len() as u64, link.receiver.counts().lost);
    Driven { packets, asked, pictures: units.len(), lost }
}

#[test]
fn packets_that_are_only_late_are_seldom_asked_for() {
    let never = |_| false;
    let rows: [(&str, Delay); 4] = [
        ("spread over 200 ms", |packet| chance(packet, 201)),
        ("spread over 60 ms", |packet| chance(packet, 61)),
        ("one in ten by another road", |packet| 80 * u64::from(chance(packet, 10) == 0)),
        ("pictures, in order", |packet| chance(packet / PACKETS, 30)),
    ];
    for (name, delay_ms) in rows {
        for (repeat_ms, repeats_apart) in [(20, true), (20, false), (150, true), (150, false)] {
            let road = Road { delay_ms, is_lost: never, repeat_ms, repeats_apart };
            let driven = drive(&road);
            let needless = driven.needless(&road);
            println!("{name}, {repeat_ms} ms, apart {repeats_apart}: {needless:.1} %");
            assert!(needless < 3.0, "{name}, {repeat_ms} ms, {repeats_apart}: {needless} %");
            assert_eq!((driven.lost, driven.pictures), (0, 300), "{name}");
        }
    }
}

#[test]
fn losses_are_asked_for_at_once_where_nothing_is_late() {
    let is_lost = |packet| packet > 20 && packet < 1700 && chance(packet, 20) == 0;
    for (name, delay_ms) in [
        ("a clean path", (|_| 0) as Delay),
        ("jitter that keeps the order", |packet| 30 * (packet / PACKETS % 2)),
    ] {
        let road = Road { delay_ms, is_lost, repeat_ms: 30, repeats_apart: true };
        let driven = drive(&road);
        assert!(driven.asked.len() > 50, "{name}");
        for (packet, asked) in &driven.asked {
            assert_eq!(asked[..], [10], "{name}: packet {packet}");
        }
        assert_eq!((driven.lost, driven.pictures), (0, 300), "{name}");
    }
}

#[test]
fn second_copies_of_what_was_asked_for_are_not_late() {
    // Longer than the wait after a first request: lost packets are requested twice and arrive twice.
    let is_lost = |packet| packet > 20 && packet < 1700 && chance(packet, 20) == 0;
    let road = Road { delay_ms: |_| 0, is_lost, repeat_ms: 120, repeats_apart: false };
    let driven = drive(&road);
    assert!(driven.asked.values().any(|asked| asked.len() > 1), "some came twice");
    for (packet, asked) in &driven.asked {
        assert_eq!(asked[0], 10, "packet {packet}");
    }
    assert_eq!((driven.lost, driven.pictures), (0, 300));
}

#[test]
fn losses_are_repaired_on_a_path_that_reorders() {
    let delay_ms = |packet| chance(packet, 201);
    let is_lost = |packet| packet > 20 && packet < 1700 && chance(packet + 9999, 20) == 0;
    for repeats_apart in [true, false] {
        let road = Road { delay_ms, is_lost, repeat_ms: 60, repeats_apart };
        let driven = drive(&road);
        let needless = driven.needless(&road);
        assert!(needless < 3.0, "{needless} %");
        assert_eq!((driven.lost, driven.pictures), (0, 300), "apart {repeats_apart}");
    }
}

#[test]
fn a_request_is_repeated_after_a_round_trip() {
    // One packet of each picture is lost and repaired.
    let mut link = Link::started(Codec::Vp8);
    let mut asked = Vec::new();
    let mut repaired = 0;
    for picture in 2..32_u32 {
        let payloads = frame(false, picture as u8, 2);
        let missing = link.lose(&payloads[0], 3000 * picture, false);
        link.send(&payloads[1], 3000 * picture, true);
        for step in 0..200 {
            let nacks =
                link.poll().into_iter().filter(|one| matches!(one, ReceiverOutput::Nack(_)));
            asked.extend(nacks.map(|_| (picture, step)));
            // Each repair arrives 70 ms after its request; the last one is lost once.
            if step == if picture == 31 { 190 } else { 80 } {
                link.deliver_again(&missing);
                repaired += 1;
            }
            link.pass(ms(1));
        }
    }
    assert_eq!(repaired, 30);
    let of = |picture| asked.iter().filter(move |(of, _)| *of == picture).map(|(_, step)| *step);
    assert_eq!(of(2).collect::<Vec<u64>>(), [10, 60], "the round trip is not known");
    for picture in 3..31 {
        assert_eq!(of(picture).collect::<Vec<u64>>(), [10], "picture {picture}");
    }
    assert_eq!(of(31).collect::<Vec<u64>>(), [10, 115], "one and a half times 70 ms later");
}
