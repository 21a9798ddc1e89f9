//! DTLS association of one session (RFC 6347, RFC 5764), server side.
//!
//! Promises that keys are returned only if the peer proved the certificate named in its offer, that datagrams
//! and fragments are rate-limited, and that unencrypted messages, which anyone can forge, never end an
//! association. A panic of the parser ends only its session.

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

/// Exporter label (RFC 5764 4.2).
const EXPORTER: &str = "EXTRACTOR-dtls_srtp";
/// Delay until an unanswered flight is retransmitted, doubled each time (RFC 6347 4.2.4.1; WebRTC peers are
/// near, and the whole call setup waits for the handshake).
const REPEAT_FIRST: Duration = Duration::from_millis(200);
/// Most timed retransmissions of a flight: 12.6 s in all.
const REPEATS_MAX: u32 = 6;
/// Shortest time between retransmissions triggered by a peer that repeats its flight.
const REPEAT_GAP: Duration = Duration::from_millis(40);
/// Datagrams allowed per association: six flights at once, each sent eight times in four pieces, and some per
/// second, so that an attacker who uses up the burst does not end the association.
const DATAGRAMS: BucketRate = BucketRate { burst: 192.0, a_second: 20.0 };
/// Handshake fragments allowed per association. The parser recurses once per fragment of a message and scans
/// all of them each time; the time to connect bounds their number.
const FRAGMENTS: BucketRate = BucketRate { burst: 512.0, a_second: 16.0 };

/// Fixed peer address for the library, which identifies a peer by address; the real one may change.
const PEER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9));

/// Certificate of this process, and the handshake configurations.
pub(super) struct DtlsIdentity {
    /// Fingerprint of the certificate, for answers.
    pub(super) fingerprint: CertificateFingerprint,
    gcm: Arc<HandshakeConfig>,
    any: Arc<HandshakeConfig>,
}

impl DtlsIdentity {
    /// Generates a self-signed ECDSA P-256 certificate.
    pub(super) fn generate() -> Result<DtlsIdentity, EndpointError> {
        let provider: Arc<dyn RTCCryptoProvider> = Arc::new(AwsLcRsProvider::new());
        let certificate = Certificate::generate_self_signed(Vec::new(), provider.crypto())?;
        let der = certificate.certificate.first().map(|der| der.to_vec()).unwrap_or_default();
        let config = |profiles| {
            ConfigBuilder::default()
                .with_crypto_provider(Arc::clone(&provider))
                .with_certificates(vec![certificate.clone()])
                // Any certificate is accepted here; it is compared with the offer's fingerprint later.
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
}

pub(super) enum DtlsOutcome {
    Nothing,
    /// SRTP keys, once per association.
    Keys(Box<(SrtpReceiver, SrtcpSender)>),
    Closed,
}

pub(super) enum DtlsError {
    /// The datagram was dropped; the association continues.
    Refused(DropReason),
    Failed(SessionFailure),
}

/// DTLS association. It retransmits its flights itself, byte for byte: the library stops its timer when the
/// peer repeats a flight, and a retransmission under new record numbers would stop the timer of a peer with
/// the same library.
pub(super) struct DtlsTransport {
    endpoint: Endpoint,
    datagrams: TokenBucket,
    fragments: TokenBucket,
    /// Unencrypted records passed to the library so far, for numbering.
    numbers: u64,
    /// Successor of the peer's last message number, and the stage of the handshake.
    messages: u16,
    stage: HandshakeStage,
    /// Own last handshake flight, and the time of its last transmission.
    flight: Vec<Vec<u8>>,
    left_at: Option<Instant>,
    /// Time from which the flight waits for an answer; `None` if it waits for none.
    sent_at: Option<Instant>,
    repeats: u32,
    outgoing: Vec<Vec<u8>>,
}

impl DtlsTransport {
    /// Creates an association that waits for the peer's first flight, which begins with `datagram`.
    pub(super) fn new(identity: &DtlsIdentity, datagram: &[u8], now: Instant) -> DtlsTransport {
        // The library picks the peer's first choice; if only GCM is configured, GCM is chosen.
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

    /// Processes one datagram; [`DtlsTransport::send`] returns the replies.
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
                // No data channel was negotiated, so application data is dropped.
                _ => {}
            }
        }
        Ok(brought)
    }

    /// Charges a datagram to the rate limits before any of it is kept.
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

    /// Returns the keys of a finished handshake if the peer's certificate matches the offer.
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

    /// Takes the library's output; returns true if there was any.
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

    /// Retransmits the flight for a peer that repeats its own. The timed retransmission is not affected,
    /// because anyone can forge such a repeat.
    fn retransmit_flight(&mut self, now: Instant) {
        if self.left_at.is_some_and(|at| at + REPEAT_GAP <= now) {
            self.outgoing.extend(self.flight.iter().cloned());
            self.left_at = Some(now);
        }
    }

    pub(super) fn send(&mut self, mut each: impl FnMut(&[u8])) {
        self.outgoing.drain(..).for_each(|datagram| each(&datagram));
    }

    /// Retransmits a flight that was not answered in time.
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

    /// Sends close_notify (RFC 5246 7.2.1).
    pub(super) fn close(&mut self, now: Instant) {
        (self.flight, self.left_at, self.sent_at) = (Vec::new(), None, None);
        drop(self.endpoint.stop(now, PEER));
        self.collect(now);
    }
}

#[cfg(test)]
pub(super) mod tests;
