//! The DTLS association of one session (RFC 6347, RFC 5764), server side.
//!
//! Promises that keys come out only when the peer proved the certificate that its offer named, that
//! an association takes so many datagrams and fragments a second and no more, and that nothing in
//! the clear ends one: a stranger may have sent it. A panic of the parser ends its session alone.

pub(super) mod client_hello;

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use rtc_dtls::{
    config::{ClientAuthType, ConfigBuilder, HandshakeConfig},
    crypto::Certificate,
    crypto_provider::{RTCCryptoProvider, providers::AwsLcRsProvider},
    endpoint::{Endpoint, EndpointEvent},
    extension::extension_use_srtp::SrtpProtectionProfile::{
        Srtp_Aead_Aes_128_Gcm, Srtp_Aes128_Cm_Hmac_Sha1_80,
    },
};
use rtc_shared::TransportProtocol;

use super::{
    EndpointError, SessionFailure,
    fingerprint::CertificateFingerprint,
    srtp::{self, SrtcpSender, SrtpProfile, SrtpReceiver},
    stats::DropReason,
    token_bucket::{BucketRate, TokenBucket},
};

use client_hello::{FilteredDatagram, HandshakeStage};

/// The label of RFC 5764 4.2.
const EXPORTER: &str = "EXTRACTOR-dtls_srtp";
/// An unanswered flight is sent again after this long, then after twice as long, and so on
/// (RFC 6347 4.2.4.1; WebRTC peers are near, and the rest of a call waits for this).
const REPEAT_FIRST: Duration = Duration::from_millis(200);
/// Times that a flight is sent again by itself: 12.6 s in all.
const REPEATS_MAX: u32 = 6;
/// A peer that repeats itself gets our flight again, but not faster than this.
const REPEAT_GAP: Duration = Duration::from_millis(40);
/// Datagrams that an association takes: six flights at once, each sent eight times in four pieces,
/// and some a second, so that a stranger who uses them up does not end it.
const DATAGRAMS: BucketRate = BucketRate { burst: 192.0, a_second: 20.0 };
/// Handshake fragments that it takes. Their parser recurses once for each fragment of a message and
/// looks at all of them each time; an offer's time to connect bounds how many there can be.
const FRAGMENTS: BucketRate = BucketRate { burst: 512.0, a_second: 16.0 };

/// An association knows its peer by an address; ours may change it, so it gets one that never does.
const PEER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9));

/// The certificate of this start and what handshakes run with.
pub(super) struct DtlsIdentity {
    fingerprint: CertificateFingerprint,
    gcm: Arc<HandshakeConfig>,
    any: Arc<HandshakeConfig>,
}

impl DtlsIdentity {
    /// A new self-signed ECDSA P-256 certificate.
    pub(super) fn generate() -> Result<DtlsIdentity, EndpointError> {
        let provider: Arc<dyn RTCCryptoProvider> = Arc::new(AwsLcRsProvider::new());
        let certificate = Certificate::generate_self_signed(Vec::new(), provider.crypto())?;
        let der = certificate.certificate.first().map(|der| der.to_vec()).unwrap_or_default();
        let config = |profiles| {
            ConfigBuilder::default()
                .with_crypto_provider(Arc::clone(&provider))
                .with_certificates(vec![certificate.clone()])
                // Any certificate: which one it must be, the offer says.
                .with_client_auth(ClientAuthType::RequireAnyClientCert)
                .with_insecure_skip_verify(true)
                .with_srtp_protection_profiles(profiles)
                .build(false, None)
                .map(Arc::new)
        };
        Ok(DtlsIdentity {
            fingerprint: CertificateFingerprint::of(&der),
            gcm: config(vec![Srtp_Aead_Aes_128_Gcm])?,
            any: config(vec![Srtp_Aead_Aes_128_Gcm, Srtp_Aes128_Cm_Hmac_Sha1_80])?,
        })
    }

    /// Returns the fingerprint that answers carry.
    pub(super) fn fingerprint(&self) -> &CertificateFingerprint {
        &self.fingerprint
    }
}

/// Effect of a datagram.
pub(super) enum DtlsOutcome {
    /// Nothing that anyone needs to know.
    Nothing,
    /// The keys, once in an association's life.
    Keys(Box<(SrtpReceiver, SrtcpSender)>),
    /// The peer closed the association.
    Closed,
}

/// Reason for not taking a datagram.
pub(super) enum DtlsError {
    /// Dropped; the association goes on.
    Refused(DropReason),
    /// The association is over.
    Failed(SessionFailure),
}

/// One association. Repeats its flights itself, byte for byte: the library stops its timer when the
/// peer repeats a flight, and a repeat under new record numbers would stop that of a peer which
/// uses the same library.
pub(super) struct DtlsTransport {
    endpoint: Endpoint,
    datagrams: TokenBucket,
    fragments: TokenBucket,
    /// Records in the clear that the library was given.
    numbers: u64,
    /// Number after that of the peer's last message, and where the handshake stands.
    messages: u16,
    stage: HandshakeStage,
    /// Our last flight of the handshake, and when it last left.
    flight: Vec<Vec<u8>>,
    left_at: Option<Instant>,
    /// Since when it waits for an answer; `None` where it waits for none.
    sent_at: Option<Instant>,
    repeats: u32,
    outgoing: Vec<Vec<u8>>,
}

impl DtlsTransport {
    /// Waits for the peer's first flight, of which `datagram` is the first.
    pub(super) fn new(identity: &DtlsIdentity, datagram: &[u8], now: Instant) -> DtlsTransport {
        // The library takes the peer's first choice of ours. Offering one makes the choice ours.
        let config = if client_hello::offers_gcm(datagram) { &identity.gcm } else { &identity.any };
        DtlsTransport {
            endpoint: Endpoint::new(PEER, TransportProtocol::UDP, Some(Arc::clone(config))),
            datagrams: TokenBucket::full(DATAGRAMS, now),
            fragments: TokenBucket::full(FRAGMENTS, now),
            numbers: 0,
            messages: 0,
            stage: HandshakeStage::Shaking(0),
            flight: Vec::new(),
            left_at: None,
            sent_at: None,
            repeats: 0,
            outgoing: Vec::new(),
        }
    }

    /// Takes one datagram. What is to be sent then waits in [`DtlsTransport::send`].
    pub(super) fn read(
        &mut self,
        datagram: &[u8],
        fingerprints: &[CertificateFingerprint],
        now: Instant,
    ) -> Result<DtlsOutcome, DtlsError> {
        let sifted = self.admit(datagram, now).map_err(DtlsError::Refused)?;
        if sifted.datagram.is_empty() {
            if sifted.repeats {
                self.retransmit_flight(now);
            }
            return Ok(DtlsOutcome::Nothing);
        }
        let endpoint = &mut self.endpoint;
        let read = || endpoint.read(now, PEER, None, sifted.datagram[..].into());
        let Ok(read) = catch_unwind(AssertUnwindSafe(read)) else {
            tracing::error!("the DTLS parser panicked");
            return Err(DtlsError::Failed(SessionFailure::Handshake));
        };
        if !self.collect(now) && sifted.repeats {
            self.retransmit_flight(now);
        }
        let is_established = self.stage == HandshakeStage::Established;
        let failure =
            if is_established { SessionFailure::Alert } else { SessionFailure::Handshake };
        let events = read.map_err(|error| {
            tracing::debug!(%error, "DTLS association failed");
            DtlsError::Failed(failure)
        })?;
        let mut brought = DtlsOutcome::Nothing;
        for event in events {
            match event {
                EndpointEvent::HandshakeComplete if !is_established => {
                    (self.stage, self.sent_at) = (HandshakeStage::Established, None);
                    let keys = self.keys(fingerprints).map_err(DtlsError::Failed)?;
                    brought = DtlsOutcome::Keys(Box::new(keys));
                }
                EndpointEvent::PeerClosed => return Ok(DtlsOutcome::Closed),
                // No data channel was negotiated: application data is dropped.
                _ => {}
            }
        }
        Ok(brought)
    }

    /// Counts what is in a datagram against the association's bounds, before anything is kept.
    fn admit(&mut self, datagram: &[u8], now: Instant) -> Result<FilteredDatagram, DropReason> {
        if !self.datagrams.has(1.0, DATAGRAMS, now) {
            return Err(DropReason::DtlsLimited);
        }
        let sifted = client_hello::filter_records(datagram, self.stage, &mut self.numbers);
        let sifted = sifted.ok_or(DropReason::DtlsMalformed)?;
        if !self.fragments.try_consume(sifted.fragments as f32, FRAGMENTS, now) {
            return Err(DropReason::DtlsLimited);
        }
        self.datagrams.try_consume(1.0, DATAGRAMS, now);
        self.messages = self.messages.max(sifted.messages);
        Ok(sifted)
    }

    /// The keys of a finished handshake, if the peer is who the offer says.
    fn keys(
        &self,
        fingerprints: &[CertificateFingerprint],
    ) -> Result<(SrtpReceiver, SrtcpSender), SessionFailure> {
        let state = self.endpoint.get_connection_state(PEER).ok_or(SessionFailure::Handshake)?;
        let certificate = state.peer_certificates.first().ok_or(SessionFailure::Fingerprint)?;
        if !fingerprints.iter().any(|fingerprint| fingerprint.matches(certificate)) {
            return Err(SessionFailure::Fingerprint);
        }
        let profile = SrtpProfile::negotiated(state.srtp_protection_profile());
        let profile = profile.ok_or(SessionFailure::Protection)?;
        let material = state
            .export_keying_material(EXPORTER, &[], profile.exported_bytes())
            .map_err(|_| SessionFailure::Handshake)?;
        srtp::open(profile, material.as_ref()).ok_or(SessionFailure::Handshake)
    }

    /// Takes what the library wants to send; whether there was anything.
    fn collect(&mut self, now: Instant) -> bool {
        let before = self.outgoing.len();
        while let Some(transmit) = self.endpoint.poll_transmit() {
            self.outgoing.push(transmit.message.to_vec());
        }
        let is_more = self.outgoing.len() > before;
        if is_more && let HandshakeStage::Shaking(answered) = &mut self.stage {
            *answered = self.messages;
            self.flight = self.outgoing[before..].to_vec();
            let waits = !self.flight.iter().any(|datagram| client_hello::verifies(datagram));
            (self.sent_at, self.repeats) = (waits.then_some(now), 0);
            self.left_at = Some(now);
        }
        is_more
    }

    /// Our flight again, for a peer that repeats its own. When the flight is sent again by itself
    /// does not change: anyone can write such a repeat.
    fn retransmit_flight(&mut self, now: Instant) {
        if self.left_at.is_some_and(|at| at + REPEAT_GAP <= now) {
            self.outgoing.extend(self.flight.iter().cloned());
            self.left_at = Some(now);
        }
    }

    /// Gives out what is to be sent.
    pub(super) fn send(&mut self, mut each: impl FnMut(&[u8])) {
        self.outgoing.drain(..).for_each(|datagram| each(&datagram));
    }

    /// Sends a flight again that was not answered in time.
    pub(super) fn advance(&mut self, now: Instant) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.outgoing.extend(self.flight.iter().cloned());
            (self.sent_at, self.left_at) = (Some(now), Some(now));
            self.repeats += 1;
        }
    }

    /// Returns the time at which [`DtlsTransport::advance`] is next needed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let at = self.sent_at.filter(|_| self.repeats < REPEATS_MAX)?;
        Some(at + REPEAT_FIRST * (1 << self.repeats))
    }

    /// Says goodbye (RFC 5246 7.2.1).
    pub(super) fn close(&mut self, now: Instant) {
        (self.flight, self.left_at, self.sent_at) = (Vec::new(), None, None);
        drop(self.endpoint.stop(now, PEER));
        self.collect(now);
    }
}

#[cfg(test)]
pub(super) mod tests;
