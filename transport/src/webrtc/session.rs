//! One session: ICE, DTLS, SRTP, RTCP and its video. Pure.
//!
//! Datagrams and `now` go in, datagrams to send and units for the handler come out. Promises that a session
//! ends once, with one event, and that media of a peer without keys costs only a look at its first bytes.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{
    EndpointConfig, SessionEvent, SessionFailure, SessionHandler,
    codecs::PayloadKind,
    command_queue::NewSession,
    dtls::{DtlsError, DtlsIdentity, DtlsOutcome, DtlsTransport},
    fingerprint::CertificateFingerprint,
    ice::{CheckOutcome, IceAgent},
    rtcp::{self, RtcpEvent},
    rtcp_feedback::RtcpFeedback,
    socket::{CandidatePair, SendBuffer},
    srtp::{SrtcpSender, SrtpReceiver},
    stats::{DropReason, SessionStats, SharedSessionStats},
    stun::BindingRequest,
    token_bucket::{BucketRate, TokenBucket},
    video_track::VideoTrack,
};
use crate::rtp::{self, ReceiverOutput, RtpPacket};

/// Most bytes per second accepted from a peer: 32 Mb/s, four times the bit rate announced to it. Excess
/// packets are dropped after decryption.
pub const PEER_BYTES_A_SECOND: u32 = 4_000_000;
/// Rate limit of a peer; the burst is one second's bytes.
const BYTES: BucketRate =
    BucketRate { burst: PEER_BYTES_A_SECOND as f32, a_second: PEER_BYTES_A_SECOND as f32 };
/// Smallest cost charged per packet, in bytes: at most 8,000 packets per second.
const PACKET_BYTES_MIN: f32 = 500.0;

/// Handler of a session, whose panic ends that session alone; `None` once it has panicked.
struct PanicGuardedHandler(Option<Box<dyn SessionHandler>>);

impl PanicGuardedHandler {
    /// Calls the handler. A handler that panics is dropped and never called again.
    fn call(&mut self, call: impl FnOnce(&mut dyn SessionHandler)) -> Result<(), SessionFailure> {
        let sink = self.0.as_deref_mut().ok_or(SessionFailure::Sink)?;
        if catch_unwind(AssertUnwindSafe(|| call(sink))).is_ok() {
            return Ok(());
        }
        tracing::error!("the sink of a WebRTC session panicked");
        self.give_up();
        Err(SessionFailure::Sink)
    }

    fn give_up(&mut self) {
        let sink = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(sink))).is_err() {
            tracing::error!("the sink of a WebRTC session panicked when it was dropped");
        }
    }
}

impl Drop for PanicGuardedHandler {
    fn drop(&mut self) {
        self.give_up();
    }
}

pub(super) struct Session {
    pub(super) agent: IceAgent,
    association: Option<Box<DtlsTransport>>,
    keys: Option<Box<(SrtpReceiver, SrtcpSender)>>,
    fingerprints: Vec<CertificateFingerprint>,
    video: VideoTrack,
    pub(super) feedback: RtcpFeedback,
    /// Id of the transport-wide sequence number extension.
    numbers: Option<u8>,
    sink: PanicGuardedHandler,
    bytes: TokenBucket,
    state: Arc<SharedSessionStats>,
    /// Counts since the offer; published with each unit and each `poll_output`.
    counts: SessionStats,
    /// Time by which the peer must have keys.
    connect_by: Instant,
    /// Longest silence of a peer with keys.
    lost_after: Duration,
    heard_at: Instant,
    /// Final event, once the session has ended.
    pub(super) ended: Option<SessionEvent>,
    /// True once the handler was told of the first check.
    is_reached: bool,
    /// True if a datagram or command arrived since the last `poll_output`.
    pub(super) touched: bool,
    /// Time of the session's entry in the timers of its table.
    pub(super) timer: Option<Instant>,
}

impl Session {
    pub(super) fn new(
        opening: NewSession,
        us: u32,
        settings: &EndpointConfig,
        now: Instant,
    ) -> Session {
        let NewSession { negotiated, local, sink, state, .. } = opening;
        let feedback = RtcpFeedback::new(us, &negotiated, now);
        let numbers = negotiated.numbers;
        Session {
            agent: IceAgent::new(&local),
            association: None,
            keys: None,
            fingerprints: negotiated.fingerprints,
            video: VideoTrack::new(negotiated.payloads, negotiated.video),
            feedback,
            numbers,
            sink: PanicGuardedHandler(Some(sink)),
            bytes: TokenBucket::full(BYTES, now),
            state,
            counts: SessionStats::default(),
            connect_by: now + settings.connect_within,
            lost_after: settings.lost_after,
            heard_at: now,
            ended: None,
            is_reached: false,
            touched: false,
            timer: None,
        }
    }

    /// Returns true once the keys are established.
    pub(super) fn is_connected(&self) -> bool {
        self.keys.is_some()
    }

    pub(super) fn check(
        &mut self,
        request: &BindingRequest<'_>,
        pair: CandidatePair,
        send_buffer: &mut SendBuffer,
        now: Instant,
    ) -> CheckOutcome {
        let mut checked = CheckOutcome::Unauthenticated;
        send_buffer.write(pair, |out| {
            checked = self.agent.check(request, pair, out);
            true
        });
        if checked != CheckOutcome::Unauthenticated {
            self.heard_at = now;
        }
        if matches!(checked, CheckOutcome::Accepted { .. })
            && !std::mem::replace(&mut self.is_reached, true)
        {
            self.tell(|sink| sink.on_first_check());
        }
        checked
    }

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
            Ok(DtlsOutcome::Nothing) => {}
            Ok(DtlsOutcome::Keys(keys)) => {
                self.keys = Some(keys);
                self.heard_at = now;
                self.feedback.start(now);
                self.tell(|sink| sink.on_event(SessionEvent::Connected));
            }
            Ok(DtlsOutcome::Closed) => self.end(SessionEvent::Closed),
            Err(DtlsError::Refused(why)) => return Err(why),
            Err(DtlsError::Failed(failure)) => self.end(SessionEvent::Failed(failure)),
        }
        Ok(())
    }

    /// Processes an SRTP or SRTCP datagram, decrypting it in place. Returns true if it is authenticated;
    /// audio is not checked.
    pub(super) fn media(&mut self, datagram: &mut [u8], now: Instant) -> Result<bool, DropReason> {
        let Some(keys) = &mut self.keys else { return Err(DropReason::MediaEarly) };
        let [_, kind, ..] = *datagram else { return Err(DropReason::MediaMalformed) };
        let cost = (datagram.len() as f32).max(PACKET_BYTES_MIN);
        // RFC 5761 4: these values are RTCP packet types.
        if (192..224).contains(&kind) {
            let packet = keys.0.control(datagram)?;
            if !self.bytes.try_consume(cost, BYTES, now) {
                return Err(DropReason::MediaLimited);
            }
            self.heard_at = now;
            let video = &mut self.video;
            rtcp::read(packet, |said| match said {
                RtcpEvent::Report { ssrc, ntp, rtp } => video.reported(ssrc, ntp, rtp, now),
                // A source has left, but the peer may continue with another one (RFC 3550 6.6).
                RtcpEvent::Goodbye { ssrc } => video.left(ssrc),
            });
            return Ok(true);
        }
        match self.video.carries(kind) {
            // Audio is not even decrypted.
            PayloadKind::Audio => return Ok(false),
            PayloadKind::Unknown => return Err(DropReason::MediaPayload),
            PayloadKind::Video(_) | PayloadKind::Rtx(_) => {}
        }
        let bytes = datagram.len() as u64;
        let packet = keys.0.media(datagram)?;
        // Only authenticated packets are charged: forged ones would starve the peer otherwise.
        if !self.bytes.try_consume(cost, BYTES, now) {
            return Err(DropReason::MediaLimited);
        }
        self.heard_at = now;
        self.counts.packets += 1;
        self.counts.bytes += bytes;
        self.counts.packet_at = Some(now);
        let number = self.numbers.and_then(|id| rtp::extension(packet, id));
        if let Some(&[high, low]) = number {
            self.feedback.on_twcc_packet(u16::from_be_bytes([high, low]), now);
        }
        let packet = RtpPacket::parse(packet).ok_or(DropReason::MediaMalformed)?;
        self.video.packet(&packet, now).map(|()| true)
    }

    /// Passes complete units to the handler, writes feedback that is due, and ends the session at a timeout.
    /// Called after each batch of datagrams and at each [`Session::deadline`].
    pub(super) fn poll_output(&mut self, send_buffer: &mut SendBuffer, now: Instant) {
        self.touched = false;
        if self.ended.is_some() {
            return;
        }
        while let Some(output) = self.video.poll(now) {
            match output {
                ReceiverOutput::Unit(unit) => {
                    self.counts.units += 1;
                    // Whoever hears of the unit finds it counted.
                    self.state.publish(self.counts);
                    if unit.access_unit.keyframe {
                        self.feedback.keyframe_wanted = false;
                    }
                    self.tell(|sink| sink.on_access_unit(unit));
                    if self.ended.is_some() {
                        return;
                    }
                }
                ReceiverOutput::Nack(missing) => self.feedback.queue_nacks(&missing),
                ReceiverOutput::NeedKeyframe => self.feedback.keyframe_wanted = true,
            }
        }
        let video = self.video.counts();
        (self.counts.lost, self.counts.repaired) = (video.lost, video.repaired);
        self.counts.jitter = Duration::from_micros(self.video.jitter_us());
        let pair = self.agent.selected_pair();
        if let (Some(pair), Some(keys)) = (pair, &mut self.keys) {
            let (feedback, video) = (&mut self.feedback, &mut self.video);
            let counts = &mut self.counts;
            send_buffer.write(pair, |out| {
                let (start, ssrc) = (out.len(), video.ssrc());
                feedback.write(out, ssrc, || video.block(now), counts, now)
                    && keys.1.control(out, start)
            });
        }
        self.state.publish(self.counts);
        if let (Some(pair), Some(association)) = (pair, &mut self.association) {
            association.advance(now);
            association.send(|datagram| send_buffer.push(pair, datagram));
        }
        if self.limit() <= now {
            let is_lost = self.is_connected();
            self.end(if is_lost { SessionEvent::Lost } else { SessionEvent::NeverConnected });
        }
    }

    fn limit(&self) -> Instant {
        match self.keys {
            Some(_) => self.heard_at + self.lost_after,
            None => self.connect_by,
        }
    }

    /// Returns the time of the next `poll_output` without input.
    pub(super) fn deadline(&self) -> Instant {
        let association = self.association.as_ref().and_then(|one| one.deadline());
        let feedback = self.keys.as_ref().and_then(|_| self.feedback.deadline());
        [association, feedback, self.video.timeout()]
            .into_iter()
            .flatten()
            .fold(self.limit(), Instant::min)
    }

    /// Calls the handler; the session ends if it panics.
    fn tell(&mut self, call: impl FnOnce(&mut dyn SessionHandler)) {
        if let Err(failure) = self.sink.call(call) {
            self.end(SessionEvent::Failed(failure));
        }
    }

    fn end(&mut self, told: SessionEvent) {
        self.ended.get_or_insert(told);
    }

    /// Sends close_notify to the peer, and `told` to the handler: `None` if this side closed the session. The
    /// session must not be used afterwards.
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
            tracing::debug!(?told, "a sink did not hear of the end of its session");
        }
    }
}
