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
    SessionEvent, SessionFailure,
    codecs::PayloadKind,
    command_queue::NewSession,
    dtls::{DtlsError, DtlsIdentity, DtlsOutcome, DtlsTransport},
    fingerprint::CertificateFingerprint,
    ice::{CheckOutcome, IceAgent},
    panic_guard::PanicGuardedHandler,
    rtcp::{self, RtcpEvent},
    rtcp_feedback::RtcpFeedback,
    sdp_answer::IceCredentials,
    send_buffer::SendBuffer,
    socket::CandidatePair,
    srtp::{SrtcpSender, SrtpReceiver},
    stats::{DropReason, SharedSessionStats},
    stun::BindingRequest,
    token_bucket::{BucketRate, TokenBucket},
    video_track::VideoTrack,
};
use crate::rtp::{self, ReceiverOutput, RtpPacket};

/// Bytes a second that a peer may send: 32 Mb/s, four times what it is told that it may. What is more
/// goes no further than its decryption.
pub const PEER_BYTES_A_SECOND: u32 = 4_000_000;
/// A second of them may come at once.
const BYTES: BucketRate =
    BucketRate { burst: PEER_BYTES_A_SECOND as f32, a_second: PEER_BYTES_A_SECOND as f32 };
/// Least cost of a packet, however short: 8,000 a second.
const PACKET_BYTES_MIN: f32 = 500.0;

/// Longest time of a session to connect and to be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionTimeouts {
    pub(super) connect_within: Duration,
    pub(super) lost_after: Duration,
}

/// One session.
pub(super) struct SessionHandle {
    agent: IceAgent,
    association: Option<Box<DtlsTransport>>,
    keys: Option<Box<(SrtpReceiver, SrtcpSender)>>,
    fingerprints: Vec<CertificateFingerprint>,
    video: VideoTrack,
    feedback: RtcpFeedback,
    /// The header extension that numbers the peer's packets.
    numbers: Option<u8>,
    sink: PanicGuardedHandler,
    bytes: TokenBucket,
    state: Arc<SharedSessionStats>,
    timeouts: SessionTimeouts,
    opened_at: Instant,
    heard_at: Instant,
    ended: Option<SessionEvent>,
    /// The sink knows that the peer has the answer.
    is_reached: bool,
    /// Packets and bytes since the last settling.
    taken: (u64, u64),
    /// Something came since the last settling.
    pub(super) touched: bool,
}

impl SessionHandle {
    /// A session whose peer has the answer.
    pub(super) fn new(
        opening: NewSession,
        us: u32,
        timeouts: SessionTimeouts,
        now: Instant,
    ) -> SessionHandle {
        let NewSession { negotiated, local, sink, state, .. } = opening;
        let feedback = RtcpFeedback::new(us, &negotiated, now);
        let numbers = negotiated.numbers;
        SessionHandle {
            agent: IceAgent::new(&local),
            association: None,
            keys: None,
            fingerprints: negotiated.fingerprints,
            video: VideoTrack::new(negotiated.payloads, negotiated.video),
            feedback,
            numbers,
            sink: PanicGuardedHandler::new(sink),
            bytes: TokenBucket::full(BYTES, now),
            state,
            timeouts,
            opened_at: now,
            heard_at: now,
            ended: None,
            is_reached: false,
            taken: (0, 0),
            touched: false,
        }
    }

    /// Its ICE agent.
    pub(super) fn agent(&self) -> &IceAgent {
        &self.agent
    }

    /// Returns true where there are keys.
    pub(super) fn is_connected(&self) -> bool {
        self.keys.is_some()
    }

    /// Returns its last event, once it is over.
    pub(super) fn ended(&self) -> Option<SessionEvent> {
        self.ended
    }

    /// New ICE credentials; returns the user fragment that is no longer one of ours.
    pub(super) fn restart(&mut self, local: &IceCredentials) -> Option<String> {
        self.agent.restart(local)
    }

    /// Someone wants a keyframe.
    pub(super) fn want_keyframe(&mut self) {
        self.feedback.want_keyframe();
    }

    /// Answers a check.
    pub(super) fn check(
        &mut self,
        request: &BindingRequest<'_>,
        pair: CandidatePair,
        send_buffer: &mut SendBuffer,
        retired: &mut Option<String>,
        now: Instant,
    ) -> CheckOutcome {
        let mut checked = CheckOutcome::Unauthenticated;
        send_buffer.write(pair, |out| {
            checked = self.agent.check(request, pair, out, retired);
            true
        });
        if checked != CheckOutcome::Unauthenticated {
            self.heard_at = now;
        }
        if matches!(checked, CheckOutcome::Accepted { .. })
            && !std::mem::replace(&mut self.is_reached, true)
            && let Err(failure) = self.sink.call(|sink| sink.on_first_check())
        {
            self.end(SessionEvent::Failed(failure));
        }
        checked
    }

    /// Takes a DTLS datagram.
    pub(super) fn dtls(
        &mut self,
        datagram: &[u8],
        pair: CandidatePair,
        identity: &DtlsIdentity,
        send_buffer: &mut SendBuffer,
        now: Instant,
    ) -> Result<(), DropReason> {
        let association = self
            .association
            .get_or_insert_with(|| Box::new(DtlsTransport::new(identity, datagram, now)));
        let read = association.read(datagram, &self.fingerprints, now);
        association.send(|reply| send_buffer.push(pair, reply));
        match read {
            Ok(DtlsOutcome::Nothing) => Ok(()),
            Ok(DtlsOutcome::Keys(keys)) => {
                self.keys = Some(keys);
                self.heard_at = now;
                self.feedback.start(now);
                if let Err(failure) = self.sink.call(|sink| sink.on_event(SessionEvent::Connected))
                {
                    self.end(SessionEvent::Failed(failure));
                }
                Ok(())
            }
            Ok(DtlsOutcome::Closed) => {
                self.end(SessionEvent::Closed);
                Ok(())
            }
            Err(DtlsError::Refused(why)) => Err(why),
            Err(DtlsError::Failed(failure)) => {
                self.end(SessionEvent::Failed(failure));
                Ok(())
            }
        }
    }

    /// Takes an SRTP or SRTCP datagram, which is decrypted in place. Whether it is the peer's: sound
    /// may be anyone's.
    pub(super) fn media(&mut self, datagram: &mut [u8], now: Instant) -> Result<bool, DropReason> {
        let Some(keys) = &mut self.keys else { return Err(DropReason::MediaEarly) };
        let [_, kind, ..] = *datagram else { return Err(DropReason::MediaMalformed) };
        let cost = (datagram.len() as f32).max(PACKET_BYTES_MIN);
        // RFC 5761 4: these would be RTCP packet types.
        if (192..224).contains(&kind) {
            let packet = keys.0.control(datagram)?;
            if !self.bytes.try_consume(cost, BYTES, now) {
                return Err(DropReason::MediaLimited);
            }
            self.heard_at = now;
            let video = &mut self.video;
            rtcp::read(packet, |said| match said {
                RtcpEvent::Report { ssrc, ntp, rtp } => {
                    video.reported(ssrc, ntp, rtp, now);
                }
                // A source has left, not the peer, which may go on with another (RFC 3550 6.6).
                RtcpEvent::Goodbye { ssrc } => video.left(ssrc),
            });
            return Ok(true);
        }
        match self.video.carries(kind) {
            // Sound is not even decrypted.
            PayloadKind::Audio => return Ok(false),
            PayloadKind::Unknown => return Err(DropReason::MediaPayload),
            PayloadKind::Video(_) | PayloadKind::Rtx(_) => {}
        }
        let bytes = datagram.len() as u64;
        let packet = keys.0.media(datagram)?;
        // Charged for what is the peer's own: whoever writes its address would starve it else.
        if !self.bytes.try_consume(cost, BYTES, now) {
            return Err(DropReason::MediaLimited);
        }
        self.heard_at = now;
        self.taken = (self.taken.0 + 1, self.taken.1 + bytes);
        let number = self.numbers.and_then(|id| rtp::extension(packet, id));
        if let Some(&[high, low]) = number {
            self.feedback.on_twcc_packet(u16::from_be_bytes([high, low]), now);
        }
        let packet = RtpPacket::parse(packet).map_err(|_| DropReason::MediaMalformed)?;
        self.video.packet(&packet, now).map(|()| true)
    }

    /// Gives the sink what is ready, sends what is due, and ends what has taken too long. Called
    /// after each batch of datagrams and at each [`SessionHandle::deadline`].
    pub(super) fn poll_output(&mut self, send_buffer: &mut SendBuffer, now: Instant) {
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
        while let Some(output) = self.video.poll(now) {
            match output {
                ReceiverOutput::Unit(unit) => {
                    self.state.units.fetch_add(1, Relaxed);
                    if unit.access_unit.keyframe {
                        self.feedback.has_keyframe();
                    }
                    if let Err(failure) = self.sink.call(|sink| sink.on_access_unit(unit)) {
                        return self.end(SessionEvent::Failed(failure));
                    }
                }
                ReceiverOutput::Nack(missing) => self.feedback.queue_nacks(&missing),
                ReceiverOutput::NeedKeyframe => self.feedback.want_keyframe(),
            }
        }
        self.state.lost.store(self.video.lost(), Relaxed);
        self.state.repaired.store(self.video.repaired(), Relaxed);
        self.state.jitter_us.store(self.video.jitter_us(), Relaxed);
        let pair = self.agent.selected_pair();
        if let (Some(pair), Some(keys)) = (pair, &mut self.keys) {
            let (feedback, video, state) = (&mut self.feedback, &mut self.video, &self.state);
            send_buffer.write(pair, |out| {
                let start = out.len();
                let ssrc = video.ssrc();
                let Some(written) = feedback.write(out, ssrc, || video.block(now), now) else {
                    return false;
                };
                state.nacks.fetch_add(written.missing as u64, Relaxed);
                state.keyframes_asked.fetch_add(u64::from(written.keyframe), Relaxed);
                keys.1.control(out, start)
            });
        }
        if let (Some(pair), Some(association)) = (pair, &mut self.association) {
            association.advance(now);
            association.send(|datagram| send_buffer.push(pair, datagram));
        }
        if let Some(told) = self.overdue(now) {
            self.end(told);
        }
    }

    /// Returns the event of the timeout that has passed.
    fn overdue(&self, now: Instant) -> Option<SessionEvent> {
        if self.limit() > now {
            None
        } else if self.is_connected() {
            Some(SessionEvent::Lost)
        } else {
            Some(SessionEvent::NeverConnected)
        }
    }

    /// Returns the time of the next timeout.
    fn limit(&self) -> Instant {
        match self.keys {
            Some(_) => self.heard_at + self.timeouts.lost_after,
            None => self.opened_at + self.timeouts.connect_within,
        }
    }

    /// Returns the time to settle next, even if nothing comes.
    pub(super) fn deadline(&self) -> Instant {
        let association = self.association.as_ref().and_then(|one| one.deadline());
        let feedback = self.keys.as_ref().and_then(|_| self.feedback.deadline());
        [association, feedback, self.video.timeout()]
            .into_iter()
            .flatten()
            .fold(self.limit(), Instant::min)
    }

    fn end(&mut self, told: SessionEvent) {
        if self.ended.is_none() {
            self.ended = Some(told);
        }
    }

    /// Says goodbye to the peer, and to the sink what became of it: nothing when this side closed
    /// it. The session is not used after that.
    pub(super) fn close(
        &mut self,
        told: Option<SessionEvent>,
        send_buffer: &mut SendBuffer,
        now: Instant,
    ) {
        self.state.ended.store(true, Relaxed);
        if let (Some(pair), Some(association)) = (self.agent.selected_pair(), &mut self.association)
        {
            association.close(now);
            association.send(|datagram| send_buffer.push(pair, datagram));
        }
        if let Some(told) = told
            && self.sink.call(|sink| sink.on_event(told)).is_err()
        {
            tracing::debug!(?told, "could not send close_notify");
        }
    }

    /// Ends it because the port ends.
    pub(super) fn end_with_port(&mut self) {
        self.end(SessionEvent::Failed(SessionFailure::PortEnded));
    }
}
