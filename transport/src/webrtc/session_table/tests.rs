//! Tests of sessions and their publishers in virtual time, without sockets. Long because attacks of one peer
//! on another are simulated with both of them.

use std::sync::Mutex;

use super::*;
use crate::{
    rtp::ReceivedUnit,
    webrtc::{
        SessionHandler,
        endpoint::tests::settings,
        sdp::SdpOffer,
        sdp_answer::{self, LocalParameters},
        stats::SharedSessionStats,
        stun::tests as stun,
        test_publisher::{CODEC, Client},
    },
};

#[derive(Default)]
struct Given {
    reached: usize,
    units: Vec<ReceivedUnit>,
    told: Vec<SessionEvent>,
    dropped: bool,
}

struct Record(Arc<Mutex<Given>>);

impl SessionHandler for Record {
    fn on_first_check(&mut self) {
        self.0.lock().expect("not poisoned").reached += 1;
    }

    fn on_access_unit(&mut self, unit: ReceivedUnit) {
        self.0.lock().expect("not poisoned").units.push(unit);
    }

    fn on_event(&mut self, what: SessionEvent) {
        self.0.lock().expect("not poisoned").told.push(what);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.0.lock().expect("not poisoned").dropped = true;
    }
}

/// Time longer than a unit waits for the proof of its marker.
const MARKER_PROOF: Duration = Duration::from_millis(200);

/// Endpoint without a socket, and its clock.
struct World {
    sessions: SessionTable,
    shared: Arc<CommandQueue>,
    identity: Arc<DtlsIdentity>,
    now: Instant,
    next: u64,
}

struct Pair {
    id: u64,
    client: Client,
    path: CandidatePair,
    given: Arc<Mutex<Given>>,
}

impl Pair {
    fn told(&self) -> Vec<SessionEvent> {
        self.given.lock().expect("not poisoned").told.clone()
    }

    fn reached(&self) -> usize {
        self.given.lock().expect("not poisoned").reached
    }

    fn units(&self) -> usize {
        self.given.lock().expect("not poisoned").units.len()
    }
}

fn path(port: u16) -> CandidatePair {
    CandidatePair { remote: ([192, 0, 2, 9], port).into(), local: None }
}

impl World {
    fn new() -> World {
        let now = Instant::now();
        let shared = Arc::new(CommandQueue::new().expect("an event counter"));
        let identity = Arc::new(DtlsIdentity::generate().expect("an identity"));
        let (queue, own) = (Arc::clone(&shared), Arc::clone(&identity));
        let sessions = SessionTable::new(queue, own, settings(), now);
        World { sessions, shared, identity, now, next: 1 }
    }

    fn pair(&mut self, port: u16) -> Pair {
        let pair = self.offered(port, Record);
        self.sessions.handle_command(self.now);
        pair
    }

    /// Answers an offer and queues the command that opens the session.
    fn offered<S: SessionHandler + 'static>(
        &mut self,
        port: u16,
        sink: fn(Arc<Mutex<Given>>) -> S,
    ) -> Pair {
        let mut client = Client::new("theirs", self.now);
        let offer = SdpOffer::parse(&client.offer()).expect("an offer");
        let negotiated = sdp_answer::negotiate(&offer).expect("agreed");
        assert_eq!(negotiated.video[0].codec, CODEC);
        let local = random::credentials().expect("random numbers");
        let parts = LocalParameters {
            credentials: &local,
            fingerprint: &self.identity.fingerprint,
            candidates: &[([192, 0, 2, 1], 4000).into()],
            session: 1,
        };
        client.accept(&sdp_answer::write(&offer, &negotiated, &parts));
        let (id, given) = (self.next, Arc::new(Mutex::new(Given::default())));
        self.next += 1;
        self.shared.counts.sessions.fetch_add(1, Relaxed);
        let sink = Box::new(sink(Arc::clone(&given)));
        let state = Arc::new(SharedSessionStats::default());
        let opening = NewSession { id, negotiated, local, sink, state };
        assert!(self.shared.send(EndpointCommand::Open(Box::new(opening))));
        Pair { id, client, path: path(port), given }
    }

    /// Delivers datagrams to the endpoint and its replies to the publisher.
    fn bring(&mut self, pair: &mut Pair, datagrams: Vec<Vec<u8>>) {
        for mut datagram in datagrams {
            self.sessions.datagram(&mut datagram, pair.path, self.now);
        }
        self.sessions.flush_session(self.now);
        let now = self.now;
        self.sessions.send(|path, datagram| {
            if path.remote == pair.path.remote {
                pair.client.read(datagram, now);
            }
        });
    }

    fn pass(&mut self, pair: &mut Pair, time: Duration) {
        self.now += time;
        self.bring(pair, Vec::new());
    }

    fn check(&mut self, pair: &mut Pair, nominates: bool) {
        let check = pair.client.check(nominates);
        self.bring(pair, vec![check]);
    }

    /// Sends a check and completes the handshake; no time passes.
    fn connect(&mut self, pair: &mut Pair) {
        self.check(pair, true);
        for _ in 0..10 {
            let flight = pair.client.send();
            self.bring(pair, flight);
        }
        assert!(pair.client.is_connected, "no time is needed to connect");
    }

    fn picture(&mut self, pair: &mut Pair, keyframe: bool) {
        let packets = pair.client.picture(keyframe, 5000, 3000);
        self.bring(pair, packets);
        self.pass(pair, Duration::from_millis(33));
    }

    fn refused(&self, why: DropReason) -> u64 {
        self.shared.counts.refused(why)
    }
}

#[test]
fn a_publisher_connects_without_waiting_and_its_pictures_come_out() {
    let mut world = World::new();
    // Its first check overtakes the command that opens the session.
    let mut pair = world.offered(1, Record);
    assert_eq!(pair.reached(), 0, "an answer may never arrive");
    for nominates in [false, true] {
        world.check(&mut pair, nominates);
        assert_eq!((pair.reached(), pair.told()), (1, vec![]), "there are no keys");
    }
    world.connect(&mut pair);
    assert_eq!((pair.reached(), pair.told()), (1, vec![SessionEvent::Connected]));
    assert_eq!(world.refused(DropReason::StunUnknownUser), 0);
    assert_eq!(pair.client.keyframes_asked, 1, "a keyframe is asked for with the keys");
    for at in 0..40 {
        world.picture(&mut pair, at == 0);
    }
    {
        let given = pair.given.lock().expect("not poisoned");
        let times: Vec<i64> = given.units.iter().map(|unit| unit.access_unit.pts.ticks).collect();
        let expected: Vec<i64> = (0..40).map(|at| at * 3000).collect();
        assert_eq!(times, expected, "ticks wrap and times do not");
        assert!(given.units[0].access_unit.keyframe && !given.units[1].access_unit.keyframe);
        assert!(given.units.iter().all(|unit| unit.access_unit.data.len() == 5000));
    }
    world.pass(&mut pair, Duration::from_secs(1));
    assert!(pair.client.reports.len() >= 2);
    assert!(pair.client.reports.iter().all(|lost| *lost == 0));
}

#[test]
fn nothing_is_learned_without_the_password() {
    let mut world = World::new();
    let mut pair = world.pair(1);
    let hello = pair.client.send();
    let count = hello.len() as u64;
    world.bring(&mut pair, hello);
    assert_eq!(world.refused(DropReason::UnknownSource), count);
    let right = pair.client.check(true);
    let mut forged = right.clone();
    // The byte is in the peer's user fragment; the fingerprint fails before the integrity.
    forged[35] ^= 1;
    world.bring(&mut pair, vec![forged]);
    assert_eq!(world.refused(DropReason::StunMalformed), 1);
    assert!(world.sessions.addresses.is_empty());
    assert_eq!(pair.reached(), 0);
    world.bring(&mut pair, vec![right]);
    assert_eq!(pair.client.checked, 1);
    assert_eq!(world.sessions.addresses.len(), 1);
}

#[test]
fn what_is_no_protocol_of_ours_is_counted() {
    let mut world = World::new();
    let mut pair = world.pair(1);
    world.bring(&mut pair, vec![vec![4; 30], vec![70; 30], vec![200; 30], vec![]]);
    assert_eq!(world.refused(DropReason::Unrecognised), 4);
    world.bring(&mut pair, vec![vec![0x80; 30], vec![0; 30]]);
    assert_eq!(world.refused(DropReason::UnknownSource), 1);
    assert_eq!(world.refused(DropReason::StunMalformed), 1);
    let check = pair.client.check(true);
    world.bring(&mut pair, vec![check, vec![0x80; 30]]);
    assert_eq!(world.refused(DropReason::MediaEarly), 1);
}

#[test]
fn a_source_that_guesses_is_cut_off_and_the_others_are_not() {
    let mut world = World::new();
    let mut pair = world.pair(1);
    let ufrag = world.sessions.users.keys().next().expect("one session").clone();
    let guess = stun::check(&format!("{ufrag}:x"), "guess", &[]);
    for _ in 0..1000 {
        world.sessions.datagram(&mut guess.clone(), path(7), world.now);
    }
    assert_eq!(world.refused(DropReason::StunUnauthenticated), 200);
    assert_eq!(world.refused(DropReason::StunLimited), 800);
    let other =
        CandidatePair { remote: "198.51.100.1:1".parse().expect("an address"), local: None };
    pair.path = other;
    world.connect(&mut pair);
    assert_eq!(pair.told(), [SessionEvent::Connected]);
}

#[test]
fn checks_for_users_that_are_gone_keep_no_one_out() {
    let mut world = World::new();
    let mut pair = world.pair(1);
    let stale = stun::check("gone:x", "password", &[]);
    for _ in 0..1000 {
        world.sessions.datagram(&mut stale.clone(), path(7), world.now);
    }
    assert_eq!(world.refused(DropReason::StunUnknownUser), 1000);
    world.connect(&mut pair);
    assert_eq!(pair.told(), [SessionEvent::Connected], "from the same host");
}

#[test]
fn an_offer_that_nobody_follows_is_reclaimed() {
    let mut world = World::new();
    let mut pair = world.pair(1);
    world.check(&mut pair, true);
    world.pass(&mut pair, Duration::from_secs(29));
    assert_eq!(pair.told(), []);
    world.pass(&mut pair, Duration::from_secs(2));
    assert_eq!(pair.told(), [SessionEvent::NeverConnected]);
    assert!(pair.given.lock().expect("not poisoned").dropped);
    let left = (
        world.sessions.peers.len(),
        world.sessions.users.len(),
        world.sessions.addresses.len(),
        world.sessions.deadline(),
        world.shared.counts.sessions(),
    );
    assert_eq!(left, (0, 0, 0, None, 0));
}

#[test]
fn a_silent_peer_is_lost_and_checks_keep_it() {
    let mut world = World::new();
    let mut pair = world.pair(1);
    world.connect(&mut pair);
    for _ in 0..10 {
        world.pass(&mut pair, Duration::from_secs(5));
        world.check(&mut pair, false);
    }
    assert_eq!(pair.told(), [SessionEvent::Connected], "consent is fresh though no media comes");
    world.pass(&mut pair, Duration::from_secs(11));
    assert_eq!(pair.told(), [SessionEvent::Connected, SessionEvent::Lost]);
}

#[test]
fn a_peer_that_says_goodbye_has_ended() {
    let mut world = World::new();
    let mut closes = world.pair(1);
    world.connect(&mut closes);
    let alert = closes.client.close(world.now);
    world.bring(&mut closes, alert);
    assert_eq!(closes.told(), [SessionEvent::Connected, SessionEvent::Closed]);
    assert_eq!(world.sessions.deadline(), None, "neither its timer nor an earlier one is left");

    let mut pauses = world.pair(2);
    world.connect(&mut pauses);
    world.picture(&mut pauses, true);
    let goodbye = pauses.client.goodbye();
    world.bring(&mut pauses, vec![goodbye]);
    world.pass(&mut pauses, Duration::from_secs(5));
    assert_eq!(pauses.told(), [SessionEvent::Connected], "a source has left, not the peer");
    world.picture(&mut pauses, false);
    world.pass(&mut pauses, MARKER_PROOF);
    assert_eq!(pauses.units(), 2);
}

#[test]
fn an_address_that_someone_speaks_from_is_not_taken() {
    let mut world = World::new();
    let (mut victim, mut other) = (world.pair(1), world.pair(1));
    world.connect(&mut victim);
    world.picture(&mut victim, true);
    world.check(&mut other, true);
    assert_eq!(other.client.checked, 1, "it is answered all the same");
    world.picture(&mut victim, false);
    assert_eq!(victim.units(), 2);
    world.pass(&mut victim, Duration::from_secs(3));
    world.connect(&mut other);
    world.picture(&mut other, true);
    world.pass(&mut other, MARKER_PROOF);
    assert_eq!((victim.units(), other.units()), (2, 1), "a silent owner makes room");
}

#[test]
fn forged_checks_take_no_address_from_one_who_is_silent() {
    for (name, has_keys) in [("without keys", false), ("with keys", true)] {
        let mut world = World::new();
        let (mut victim, mut other) = (world.pair(1), world.pair(2));
        world.connect(&mut victim);
        world.picture(&mut victim, true);
        if has_keys {
            world.connect(&mut other);
        }
        let forge = |world: &mut World, seconds: u32| {
            for _ in 0..seconds {
                world.now += Duration::from_secs(1);
                let mut check = other.client.check(false);
                world.sessions.datagram(&mut check, path(1), world.now);
                world.sessions.flush_session(world.now);
                world.sessions.send(|_, _| {});
            }
        };
        let show = |world: &mut World, victim: &mut Pair| {
            world.picture(victim, false);
            world.pass(victim, MARKER_PROOF);
        };
        forge(&mut world, 4);
        show(&mut world, &mut victim);
        assert_eq!(victim.units(), 2, "{name}: media that was never away");
        forge(&mut world, 4);
        world.check(&mut victim, false);
        forge(&mut world, 1);
        show(&mut world, &mut victim);
        assert_eq!(victim.units(), 3, "{name}: after a check of its own");
        forge(&mut world, 4);
        world.sessions.remove(other.id, None, world.now);
        show(&mut world, &mut victim);
        assert_eq!(victim.units(), 4, "{name}: after the other is gone");
        assert_eq!(world.sessions.addresses.len(), 1);
        assert_eq!(victim.told(), [SessionEvent::Connected], "{name}");
    }
}

#[test]
fn an_address_that_nobody_has_proven_is_not_kept_by_checks() {
    let mut world = World::new();
    let (mut late, squatter) = (world.pair(1), world.pair(1));
    for _ in 0..10 {
        world.now += Duration::from_secs(1);
        let mut check = squatter.client.check(true);
        world.sessions.datagram(&mut check, path(1), world.now);
        world.sessions.send(|_, _| {});
    }
    world.check(&mut late, true);
    world.connect(&mut late);
    world.picture(&mut late, true);
    world.pass(&mut late, MARKER_PROOF);
    assert_eq!(late.units(), 1);
}

/// Handler that panics when it receives a unit.
struct Broken(Arc<Mutex<Given>>);

impl SessionHandler for Broken {
    fn on_access_unit(&mut self, _: ReceivedUnit) {
        panic!("a sink that breaks");
    }

    fn on_event(&mut self, what: SessionEvent) {
        self.0.lock().expect("not poisoned").told.push(what);
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        self.0.lock().expect("not poisoned").dropped = true;
        panic!("a sink that breaks when it is dropped");
    }
}

#[test]
fn a_sink_that_panics_ends_its_session_alone() {
    let mut world = World::new();
    let mut whole = world.pair(1);
    let mut broken = world.offered(2, Broken);
    world.connect(&mut whole);
    world.connect(&mut broken);
    assert_eq!(broken.told(), [SessionEvent::Connected]);
    world.picture(&mut broken, true);
    world.picture(&mut whole, true);
    world.pass(&mut broken, MARKER_PROOF);
    assert!(broken.given.lock().expect("not poisoned").dropped);
    assert_eq!(world.shared.counts.sessions(), 1);
    world.picture(&mut whole, false);
    world.pass(&mut whole, MARKER_PROOF);
    assert_eq!(whole.units(), 2);
}

#[test]
fn a_peer_that_sends_more_than_anyone_may_is_cut() {
    let mut world = World::new();
    let mut pair = world.pair(1);
    world.connect(&mut pair);
    for _ in 0..1000 {
        let packets = pair.client.picture(true, 8000, 30);
        world.bring(&mut pair, packets);
    }
    let limited = world.refused(DropReason::MediaLimited);
    assert!((3000..5000).contains(&limited), "of 8 MB at once 4 MB are taken: {limited}");
    world.pass(&mut pair, Duration::from_secs(1));
    world.picture(&mut pair, true);
    assert_eq!(world.refused(DropReason::MediaLimited), limited);
}

#[test]
fn a_stranger_with_the_password_gets_no_keys() {
    let mut world = World::new();
    let mut pair = world.pair(1);
    let mut check = pair.client.check(true);
    // The next client knows the answer, but its certificate is not the offered one.
    pair.client = Client::new("theirs", world.now);
    world.sessions.datagram(&mut check, pair.path, world.now);
    for _ in 0..10 {
        let flight = pair.client.send();
        for mut datagram in flight {
            world.sessions.datagram(&mut datagram, pair.path, world.now);
        }
        world.sessions.flush_session(world.now);
        let now = world.now;
        world.sessions.send(|_, datagram| {
            if (20..64).contains(&datagram[0]) {
                pair.client.read(datagram, now);
            }
        });
    }
    assert_eq!(pair.told(), [SessionEvent::Failed(SessionFailure::Fingerprint)]);
}

#[test]
fn a_lost_packet_is_asked_for_and_a_flood_of_forgeries_takes_nothing() {
    let mut world = World::new();
    let mut pair = world.pair(1);
    world.connect(&mut pair);
    world.picture(&mut pair, true);
    let mut packets = pair.client.picture(false, 5000, 3000);
    let lost = packets.remove(2);
    world.bring(&mut pair, packets);
    for _ in 0..20 {
        world.pass(&mut pair, Duration::from_millis(10));
    }
    assert_eq!(pair.units(), 1);
    assert!(!pair.client.missing.is_empty(), "it is asked for");
    world.bring(&mut pair, vec![lost.clone()]);
    assert_eq!(pair.units(), 2, "what comes again completes the picture");
    // Under the peer's own SSRC they would exceed its rate limit of a second.
    let forged: Vec<Vec<u8>> = (0xf000_0000..0xf000_2710u32)
        .map(|at| {
            let mut forged = lost.clone();
            forged[8..12].copy_from_slice(&at.to_be_bytes());
            forged
        })
        .collect();
    world.bring(&mut pair, forged);
    assert_eq!(world.refused(DropReason::MediaUnauthenticated), 10_000);
    world.bring(&mut pair, vec![lost]);
    assert_eq!(world.refused(DropReason::MediaReplayed), 1);
    world.picture(&mut pair, false);
    assert_eq!(pair.units(), 3);
}

#[test]
fn a_restart_moves_to_a_new_address_and_media_never_stops() {
    let mut world = World::new();
    let mut pair = world.pair(1);
    world.connect(&mut pair);
    world.picture(&mut pair, true);
    let fragment = pair.client.restart("newer");
    assert!(fragment.contains("newer"));
    let local = random::credentials().expect("random numbers");
    let text = format!("a=ice-ufrag:{}\r\na=ice-pwd:{}\r\n", local.ufrag, local.pwd);
    assert!(world.shared.send(EndpointCommand::Restart { id: pair.id, local }));
    world.sessions.handle_command(world.now);
    world.picture(&mut pair, false);
    pair.client.accept(&text);
    pair.path = path(2);
    world.check(&mut pair, true);
    world.picture(&mut pair, false);
    assert_eq!(pair.units(), 3);
    assert_eq!(world.sessions.users.len(), 1, "the old user fragment is retired");
    world.pass(&mut pair, Duration::from_secs(1));
    assert!(!pair.client.reports.is_empty(), "feedback goes to the new address");
}
