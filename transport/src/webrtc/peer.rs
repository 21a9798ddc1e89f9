//! One session: ICE, DTLS, SRTP, RTCP and its video, as a value.
//!
//! Datagrams and `now` go in, datagrams to send and units for the sink come out. Promises that a
//! session ends once, with one word of what became of it, and that media of a peer without keys
//! costs nothing but a look at its first bytes.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{
    Failure, Told,
    answer::Credentials,
    bucket::{Bucket, Rate},
    codecs::Carries,
    counts::{Refused, SessionState},
    dtls::{Association, Brought, Identity, Trouble},
    feedback::Feedback,
    fingerprint::Fingerprint,
    guarded::Guarded,
    ice::{Agent, Checked},
    intake::Intake,
    outbox::Outbox,
    rtcp::{self, Said},
    shared::Opening,
    socket::Path,
    srtp::{Inbound, Outbound},
    stun::Request,
};
use crate::rtp::{self, Output, Packet};

/// Bytes a second that a peer may send: 32 Mb/s, four times what it is told that it may. What is more
/// goes no further than its decryption.
pub const PEER_BYTES_A_SECOND: u32 = 4_000_000;
/// A second of them may come at once.
const BYTES: Rate =
    Rate { burst: PEER_BYTES_A_SECOND as f32, a_second: PEER_BYTES_A_SECOND as f32 };
/// Least cost of a packet, however short: 8,000 a second.
const PACKET_BYTES_MIN: f32 = 500.0;

/// Longest time of a session to connect and to be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) connect_within: Duration,
    pub(super) lost_after: Duration,
}

/// One session.
pub(super) struct Peer {
    agent: Agent,
    association: Option<Box<Association>>,
    keys: Option<Box<(Inbound, Outbound)>>,
    fingerprints: Vec<Fingerprint>,
    intake: Intake,
    feedback: Feedback,
    /// The header extension that numbers the peer's packets.
    numbers: Option<u8>,
    sink: Guarded,
    bytes: Bucket,
    state: Arc<SessionState>,
    patience: Patience,
    opened_at: Instant,
    heard_at: Instant,
    ended: Option<Told>,
    /// The sink knows that the peer has the answer.
    is_reached: bool,
    /// Packets and bytes since the last settling.
    taken: (u64, u64),
    /// Something came since the last settling.
    pub(super) touched: bool,
}

impl Peer {
    /// A session whose peer has the answer.
    pub(super) fn new(opening: Opening, us: u32, patience: Patience, now: Instant) -> Peer {
        let Opening { agreed, local, sink, state, .. } = opening;
        let feedback = Feedback::new(us, &agreed, now);
        let numbers = agreed.numbers;
        Peer {
            agent: Agent::new(&local),
            association: None,
            keys: None,
            fingerprints: agreed.fingerprints,
            intake: Intake::new(agreed.payloads, agreed.video),
            feedback,
            numbers,
            sink: Guarded::new(sink),
            bytes: Bucket::full(BYTES, now),
            state,
            patience,
            opened_at: now,
            heard_at: now,
            ended: None,
            is_reached: false,
            taken: (0, 0),
            touched: false,
        }
    }

    /// Its ICE agent.
    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns true where there are keys.
    pub(super) fn is_connected(&self) -> bool {
        self.keys.is_some()
    }

    /// Returns its last event, once it is over.
    pub(super) fn ended(&self) -> Option<Told> {
        self.ended
    }

    /// New ICE credentials; returns the user fragment that is no longer one of ours.
    pub(super) fn restart(&mut self, local: &Credentials) -> Option<String> {
        self.agent.restart(local)
    }

    /// Someone wants a keyframe.
    pub(super) fn want_keyframe(&mut self) {
        self.feedback.want_keyframe();
    }

    /// Answers a check.
    pub(super) fn check(
        &mut self,
        request: &Request<'_>,
        path: Path,
        outbox: &mut Outbox,
        retired: &mut Option<String>,
        now: Instant,
    ) -> Checked {
        let mut checked = Checked::Unauthenticated;
        outbox.write(path, |out| {
            checked = self.agent.check(request, path, out, retired);
            true
        });
        if checked != Checked::Unauthenticated {
            self.heard_at = now;
        }
        if matches!(checked, Checked::Accepted { .. })
            && !std::mem::replace(&mut self.is_reached, true)
            && let Err(failure) = self.sink.call(|sink| sink.reached())
        {
            self.end(Told::Failed(failure));
        }
        checked
    }

    /// Takes a DTLS datagram.
    pub(super) fn dtls(
        &mut self,
        datagram: &[u8],
        path: Path,
        identity: &Identity,
        outbox: &mut Outbox,
        now: Instant,
    ) -> Result<(), Refused> {
        let association = self
            .association
            .get_or_insert_with(|| Box::new(Association::new(identity, datagram, now)));
        let read = association.read(datagram, &self.fingerprints, now);
        association.send(|reply| outbox.push(path, reply));
        match read {
            Ok(Brought::Nothing) => Ok(()),
            Ok(Brought::Keys(keys)) => {
                self.keys = Some(keys);
                self.heard_at = now;
                self.feedback.start(now);
                if let Err(failure) = self.sink.call(|sink| sink.told(Told::Connected)) {
                    self.end(Told::Failed(failure));
                }
                Ok(())
            }
            Ok(Brought::Closed) => {
                self.end(Told::Closed);
                Ok(())
            }
            Err(Trouble::Refused(why)) => Err(why),
            Err(Trouble::Failed(failure)) => {
                self.end(Told::Failed(failure));
                Ok(())
            }
        }
    }

    /// Takes an SRTP or SRTCP datagram, which is decrypted in place. Whether it is the peer's: sound
    /// may be anyone's.
    pub(super) fn media(&mut self, datagram: &mut [u8], now: Instant) -> Result<bool, Refused> {
        let Some(keys) = &mut self.keys else { return Err(Refused::MediaEarly) };
        let [_, kind, ..] = *datagram else { return Err(Refused::MediaMalformed) };
        let cost = (datagram.len() as f32).max(PACKET_BYTES_MIN);
        // RFC 5761 4: these would be RTCP packet types.
        if (192..224).contains(&kind) {
            let packet = keys.0.control(datagram)?;
            if !self.bytes.take(cost, BYTES, now) {
                return Err(Refused::MediaLimited);
            }
            self.heard_at = now;
            let intake = &mut self.intake;
            rtcp::read(packet, |said| match said {
                Said::Report { ssrc, ntp, rtp } => {
                    intake.reported(ssrc, ntp, rtp, now);
                }
                // A source has left, not the peer, which may go on with another (RFC 3550 6.6).
                Said::Goodbye { ssrc } => intake.left(ssrc),
            });
            return Ok(true);
        }
        match self.intake.carries(kind) {
            // Sound is not even decrypted.
            Carries::Audio => return Ok(false),
            Carries::Unknown => return Err(Refused::MediaPayload),
            Carries::Video(_) | Carries::Repair(_) => {}
        }
        let bytes = datagram.len() as u64;
        let packet = keys.0.media(datagram)?;
        // Charged for what is the peer's own: whoever writes its address would starve it else.
        if !self.bytes.take(cost, BYTES, now) {
            return Err(Refused::MediaLimited);
        }
        self.heard_at = now;
        self.taken = (self.taken.0 + 1, self.taken.1 + bytes);
        let number = self.numbers.and_then(|id| rtp::extension(packet, id));
        if let Some(&[high, low]) = number {
            self.feedback.came(u16::from_be_bytes([high, low]), now);
        }
        let packet = Packet::parse(packet).map_err(|_| Refused::MediaMalformed)?;
        self.intake.packet(&packet, now).map(|()| true)
    }

    /// Gives the sink what is ready, sends what is due, and ends what has taken too long. Called
    /// after each batch of datagrams and at each [`Peer::deadline`].
    pub(super) fn settle(&mut self, outbox: &mut Outbox, now: Instant) {
        self.touched = false;
        if self.ended.is_some() {
            return;
        }
        let (packets, bytes) = std::mem::take(&mut self.taken);
        if packets > 0 {
            self.state.came(now);
        }
        self.state.packets.fetch_add(packets, Relaxed);
        self.state.bytes.fetch_add(bytes, Relaxed);
        while let Some(output) = self.intake.poll(now) {
            match output {
                Output::Unit(unit) => {
                    self.state.units.fetch_add(1, Relaxed);
                    if unit.access_unit.keyframe {
                        self.feedback.has_keyframe();
                    }
                    if let Err(failure) = self.sink.call(|sink| sink.unit(unit)) {
                        return self.end(Told::Failed(failure));
                    }
                }
                Output::Nack(missing) => self.feedback.want(&missing),
                Output::NeedKeyframe => self.feedback.want_keyframe(),
            }
        }
        self.state.lost.store(self.intake.lost(), Relaxed);
        self.state.repaired.store(self.intake.repaired(), Relaxed);
        self.state.jitter_us.store(self.intake.jitter_us(), Relaxed);
        let path = self.agent.selected();
        if let (Some(path), Some(keys)) = (path, &mut self.keys) {
            let (feedback, intake, state) = (&mut self.feedback, &mut self.intake, &self.state);
            outbox.write(path, |out| {
                let start = out.len();
                let ssrc = intake.ssrc();
                let Some(written) = feedback.write(out, ssrc, || intake.block(now), now) else {
                    return false;
                };
                state.nacks.fetch_add(written.missing as u64, Relaxed);
                state.keyframes_asked.fetch_add(u64::from(written.keyframe), Relaxed);
                keys.1.control(out, start)
            });
        }
        if let (Some(path), Some(association)) = (path, &mut self.association) {
            association.advance(now);
            association.send(|datagram| outbox.push(path, datagram));
        }
        if let Some(told) = self.overdue(now) {
            self.end(told);
        }
    }

    /// Returns the event of the timeout that has passed.
    fn overdue(&self, now: Instant) -> Option<Told> {
        if self.limit() > now {
            None
        } else if self.is_connected() {
            Some(Told::Lost)
        } else {
            Some(Told::NeverConnected)
        }
    }

    /// Returns the time of the next timeout.
    fn limit(&self) -> Instant {
        match self.keys {
            Some(_) => self.heard_at + self.patience.lost_after,
            None => self.opened_at + self.patience.connect_within,
        }
    }

    /// Returns the time to settle next, even if nothing comes.
    pub(super) fn deadline(&self) -> Instant {
        let association = self.association.as_ref().and_then(|one| one.deadline());
        let feedback = self.keys.as_ref().and_then(|_| self.feedback.deadline());
        [association, feedback, self.intake.timeout()]
            .into_iter()
            .flatten()
            .fold(self.limit(), Instant::min)
    }

    fn end(&mut self, told: Told) {
        if self.ended.is_none() {
            self.ended = Some(told);
        }
    }

    /// Says goodbye to the peer, and to the sink what became of it: nothing when this side closed
    /// it. The session is not used after that.
    pub(super) fn close(&mut self, told: Option<Told>, outbox: &mut Outbox, now: Instant) {
        self.state.ended.store(true, Relaxed);
        if let (Some(path), Some(association)) = (self.agent.selected(), &mut self.association) {
            association.close(now);
            association.send(|datagram| outbox.push(path, datagram));
        }
        if let Some(told) = told
            && self.sink.call(|sink| sink.told(told)).is_err()
        {
            tracing::debug!(?told, "the end of a WebRTC session is not told");
        }
    }

    /// Ends it because the port ends.
    pub(super) fn end_with_port(&mut self) {
        self.end(Told::Failed(Failure::PortEnded));
    }
}
