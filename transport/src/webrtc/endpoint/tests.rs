//! Tests of publishers over loopback, and of the resources left after them. Long because publishers are
//! simulated in full.

use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::Duration,
};

use super::*;
use crate::{
    rtp::ReceivedUnit,
    webrtc::{DropReason, SessionEvent, test_publisher::Client},
};

/// Input of a handler.
#[derive(Debug, PartialEq)]
enum Came {
    Unit,
    Told(SessionEvent),
    Dropped,
}

struct Forward(SyncSender<Came>);

impl Forward {
    fn pass(&self, came: Came) {
        // A test that has ended receives no more.
        self.0.try_send(came).ok();
    }
}

impl SessionHandler for Forward {
    fn on_access_unit(&mut self, _: ReceivedUnit) {
        self.pass(Came::Unit);
    }

    fn on_event(&mut self, what: SessionEvent) {
        self.pass(Came::Told(what));
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.pass(Came::Dropped);
    }
}

struct Deaf;

impl SessionHandler for Deaf {
    fn on_access_unit(&mut self, _: ReceivedUnit) {}
    fn on_event(&mut self, _: SessionEvent) {}
}

pub(in crate::webrtc) fn settings() -> EndpointConfig {
    EndpointConfig {
        bind: ([127, 0, 0, 1], 0).into(),
        public_ips: Vec::new(),
        sessions_max: 20_000,
        connect_within: Duration::from_secs(30),
        lost_after: Duration::from_secs(10),
    }
}

/// Delay until a publisher repeats an unanswered flight.
const AGAIN: Duration = Duration::from_millis(500);

/// Publisher with a socket. No time passes in its handshake: an unanswered flight is repeated unchanged,
/// however slow the machine is.
struct Publisher {
    client: Client,
    began: Instant,
    /// Last flight of the handshake, and the time of sending it.
    flight: Vec<Vec<u8>>,
    sent_at: Instant,
    socket: UdpSocket,
}

impl Publisher {
    fn new() -> Publisher {
        let began = Instant::now();
        let client = Client::new("theirs", began);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        Publisher { client, began, flight: Vec::new(), sent_at: began, socket }
    }

    fn accept(&mut self, answer: &str) {
        self.client.accept(answer);
        self.socket.connect(self.client.candidates[0]).expect("connected");
    }

    fn send(&self, datagrams: &[Vec<u8>]) {
        for datagram in datagrams {
            self.socket.send(datagram).expect("sent");
        }
    }

    /// Reads one datagram, if any, and sends the handshake's reply.
    fn turn(&mut self) {
        let mut buffer = [0u8; 2048];
        if let Ok(bytes) = self.socket.recv(&mut buffer) {
            self.client.read(&buffer[..bytes], self.began);
        }
        let flight = self.client.send();
        if !flight.is_empty() {
            self.flight = flight;
        } else if self.client.has_keys() || self.sent_at.elapsed() < AGAIN {
            return;
        }
        self.sent_at = Instant::now();
        self.send(&self.flight);
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Client) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so(&self.client) {
            assert!(Instant::now() < deadline, "{what} within a minute");
            self.turn();
        }
    }

    fn connect(&mut self) {
        self.send(&[self.client.check(true)]);
        self.until("keys", Client::has_keys);
    }
}

/// Publisher to an endpoint of this process, and the input of its handler.
struct Live {
    publisher: Publisher,
    session: SessionHandle,
    came: Receiver<Came>,
}

impl Live {
    fn new(port: &WebRtcEndpoint) -> Live {
        let mut publisher = Publisher::new();
        let (sender, came) = sync_channel(4096);
        let offer = publisher.client.offer();
        let (session, answer) = port.answer(&offer, Box::new(Forward(sender))).expect("answered");
        publisher.accept(&answer.sdp);
        Live { publisher, session, came }
    }

    fn next_told(&self) -> SessionEvent {
        loop {
            match self.came.recv_timeout(Duration::from_secs(60)).expect("something comes") {
                Came::Told(told) => return told,
                Came::Unit => {}
                Came::Dropped => panic!("dropped without a word"),
            }
        }
    }
}

fn wait_until_free(port: &WebRtcEndpoint) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while port.counts().sessions() > 0 {
        assert!(Instant::now() < deadline, "every session is freed within two minutes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn there_is_always_an_address_and_never_an_unspecified_one() {
    for both in [false, true] {
        let found = reachable(both).expect("sockets can be made");
        assert!(!found.is_empty());
        assert!(found.iter().all(|address| !address.is_unspecified()), "{found:?}");
    }
}

#[test]
fn handles_refuse_what_they_cannot_do() {
    let port =
        WebRtcEndpoint::open(EndpointConfig { sessions_max: 1, ..settings() }).expect("opened");
    let client = Client::new("theirs", Instant::now());
    let (session, answer) = port.answer(&client.offer(), Box::new(Deaf)).expect("answered");
    assert_eq!(port.answer(&client.offer(), Box::new(Deaf)).err(), Some(OfferError::Full(1)));
    let half = "a=ice-ufrag:other\r\na=ice-pwd:a-password-of-the-client\r\n";
    assert_eq!(session.patch(half, Some(b"*")).err(), Some(SdpFragError::OtherSession));
    let other = "a=ice-ufrag:other\r\na=ice-pwd:0123456789012345678901\r\n";
    let restarted = session.patch(other, Some(answer.etag.as_bytes())).expect("restarted");
    let restarted = restarted.expect("an answer");
    assert_ne!(restarted.etag, answer.etag);
    assert!(
        restarted.sdpfrag.contains("a=ice-ufrag:") && restarted.sdpfrag.contains("a=candidate:")
    );
    let again = session.patch(other, Some(restarted.etag.as_bytes())).expect("the current one");
    assert!(again.is_none(), "nothing is new in it");
    session.request_keyframe();
    drop(session);
    wait_until_free(&port);
    port.answer(&client.offer(), Box::new(Deaf)).expect("there is room again");
}

#[test]
fn a_port_that_is_dropped_ends_its_sessions_and_its_thread() {
    let port = WebRtcEndpoint::open(settings()).expect("opened");
    let (mut live, half_open) = (Live::new(&port), Live::new(&port));
    live.publisher.connect();
    assert_eq!(live.next_told(), SessionEvent::Connected);
    drop(port);
    for live in [&live, &half_open] {
        let expected = SessionEvent::Failed(crate::webrtc::SessionFailure::PortEnded);
        assert_eq!(live.next_told(), expected);
    }
    assert_eq!(live.session.patch("candidate:", None).err(), Some(SdpFragError::Ended));
}

#[test]
fn a_thread_that_fails_says_so_to_everyone() {
    let port = WebRtcEndpoint::open(settings()).expect("opened");
    let mut live = Live::new(&port);
    live.publisher.connect();
    assert_eq!(live.next_told(), SessionEvent::Connected);
    assert!(port.0.shared.send(EndpointCommand::Fail));
    assert_eq!(live.next_told(), SessionEvent::Failed(crate::webrtc::SessionFailure::PortEnded));
    let waited = async { tokio::time::timeout(Duration::from_secs(60), port.ended()).await };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(waited).expect("gone within a minute");
    assert_eq!(port.counts().sessions(), 0);
    UdpSocket::bind(port.local_addr()).expect("its address is free");
    let offer = Client::new("theirs", Instant::now()).offer();
    assert_eq!(port.answer(&offer, Box::new(Deaf)).err(), Some(OfferError::Ended));
    assert_eq!(live.session.patch("candidate:", None).err(), Some(SdpFragError::Ended));
}

#[test]
fn offers_that_nobody_follows_are_reclaimed() {
    let within = Duration::from_secs(2);
    let port = WebRtcEndpoint::open(EndpointConfig { connect_within: within, ..settings() })
        .expect("opened");
    let offer = Client::new("theirs", Instant::now()).offer();
    // The peak of open sessions may grow from round to round on a busy machine; a leak per offer grows in
    // every round.
    half_open(&port, &offer);
    let rounds = std::iter::repeat_with(|| {
        let before = resident_bytes();
        half_open(&port, &offer);
        resident_bytes() - before
    });
    assert!(rounds.take(6).any(|added| added < 4 << 20), "every round adds memory");
}

/// Opens 10,000 sessions without a peer and waits until they are reclaimed.
fn half_open(port: &WebRtcEndpoint, offer: &str) {
    let before = resident_bytes();
    let mut sessions = Vec::new();
    while sessions.len() < 10_000 {
        match port.answer(offer, Box::new(Deaf)) {
            Ok((session, _)) => sessions.push(session),
            // The thread is behind: retry as a client would.
            Err(OfferError::Busy) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    println!("{} bytes for each half-open offer", (resident_bytes() - before) / 10_000);
    wait_until_free(port);
    assert!(sessions.iter().all(|session| session.patch("candidate:", None).is_err()));
}

/// Returns the anonymous memory of this process in bytes.
fn resident_bytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux");
    line.trim().trim_end_matches(" kB").parse::<i64>().expect("a number") * 1024
}

#[test]
fn connecting_and_leaving_leaves_nothing_behind() {
    const CYCLES: usize = 100;
    let port = WebRtcEndpoint::open(settings()).expect("opened");
    let files = || std::fs::read_dir("/proc/self/fd").expect("Linux").count();
    let (mut early, files_before) = (0, files());
    for cycle in 0..CYCLES {
        let mut live = Live::new(&port);
        live.publisher.connect();
        assert_eq!(live.next_told(), SessionEvent::Connected);
        if cycle == CYCLES / 2 {
            early = resident_bytes();
        }
    }
    wait_until_free(&port);
    assert_eq!(files(), files_before);
    let grown = resident_bytes() - early;
    println!("{grown} bytes more after the second half of {CYCLES} cycles");
    assert!(grown < 8 << 20, "{grown} bytes more");
}

/// Returns datagrams of all distinguishable kinds that belong to no session.
fn garbage() -> Vec<Vec<u8>> {
    let of_kind = |kind: u8| [&[kind, 1, 0, 80][..], &[0x5A; 96]].concat();
    [0, 22, 70, 0x80, 255].map(of_kind).to_vec()
}

#[test]
fn a_flood_of_garbage_costs_a_session_none_of_its_pictures() {
    let port = WebRtcEndpoint::open(settings()).expect("opened");
    let Live { mut publisher, session, came } = Live::new(&port);
    publisher.connect();
    let to = port.local_addr();
    let flood = std::thread::Builder::new()
        .name("flood".to_owned())
        .spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let kinds = garbage();
            for at in 0..50_000 {
                // A full send queue does not matter here.
                socket.send_to(&kinds[at % kinds.len()], to).ok();
            }
        })
        .expect("a thread");
    for at in 0..30 {
        let packets = publisher.client.picture(at == 0, 3000, 3000);
        publisher.send(&packets);
        publisher.until("a picture's time", |_| session.counts().units > at);
    }
    flood.join().expect("flooded");
    let counts = port.counts();
    assert!(counts.refused(DropReason::UnknownSource) > 0);
    assert!(counts.refused(DropReason::Unrecognised) > 0);
    assert!(counts.refused(DropReason::StunMalformed) > 0);
    assert_eq!(session.counts().units, 30);
    publisher.until("a request for a keyframe", |client| client.keyframes_asked > 0);
    drop(session);
    let came = std::iter::from_fn(|| came.recv_timeout(Duration::from_secs(60)).ok());
    let told: Vec<Came> = came.filter(|came| *came != Came::Unit).collect();
    let expected = [Came::Told(SessionEvent::Connected), Came::Dropped];
    assert_eq!(told, expected, "closing from this side tells nothing");
}

mod figures;
