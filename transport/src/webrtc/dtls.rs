//! The DTLS association of one session (RFC 6347, RFC 5764), server side.
//!
//! Promises that keys come out only when the peer proved the certificate that its offer named, and
//! that an association takes a bounded number of datagrams and fragments: before the handshake
//! ends, everything in them is a stranger's. A panic of the parser ends its session alone.

mod hello;

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
    Failure, PortError,
    counts::Refused,
    fingerprint::Fingerprint,
    srtp::{self, Inbound, Outbound, Profile},
};

/// The label of RFC 5764 4.2.
const EXPORTER: &str = "EXTRACTOR-dtls_srtp";
/// An unanswered flight is sent again after this long, then after twice as long, and so on
/// (RFC 6347 4.2.4.1; WebRTC peers are near, and the rest of a call waits for this).
const REPEAT_FIRST: Duration = Duration::from_millis(200);
/// Times that a flight is sent again by itself: 12.6 s in all.
const REPEATS_MAX: u32 = 6;
/// A peer that repeats itself gets our flight again, but not faster than this.
const REPEAT_GAP: Duration = Duration::from_millis(40);
/// Datagrams that a handshake may take: six flights, each sent eight times in four pieces.
const DATAGRAMS_MAX: u32 = 192;
/// Handshake fragments that an association takes in its life, the repeats of a peer that lost our
/// last flight included. Their parser recurses once for each fragment of a message.
const FRAGMENTS_MAX: u32 = 512;
/// Records that a connected peer may send: alerts, and repeats of its last flight.
const RECORDS_AFTER_MAX: u32 = 256;

/// An association knows its peer by an address; ours may change it, so it gets one that never does.
const PEER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9));

/// The certificate of this start and what handshakes run with.
pub(super) struct Identity {
    fingerprint: Fingerprint,
    gcm: Arc<HandshakeConfig>,
    any: Arc<HandshakeConfig>,
}

impl Identity {
    /// A new self-signed ECDSA P-256 certificate.
    pub(super) fn generate() -> Result<Identity, PortError> {
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
        Ok(Identity {
            fingerprint: Fingerprint::of(&der),
            gcm: config(vec![Srtp_Aead_Aes_128_Gcm])?,
            any: config(vec![Srtp_Aead_Aes_128_Gcm, Srtp_Aes128_Cm_Hmac_Sha1_80])?,
        })
    }

    /// What answers carry.
    pub(super) fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }
}

/// What a datagram brought about.
pub(super) enum Brought {
    /// Nothing that anyone needs to know.
    Nothing,
    /// The keys, once in an association's life.
    Keys(Box<(Inbound, Outbound)>),
    /// The peer closed the association.
    Closed,
}

/// Why a datagram was not taken.
pub(super) enum Trouble {
    /// Dropped; the association goes on.
    Refused(Refused),
    /// The association is over.
    Failed(Failure),
}

/// One association. Repeats its flights itself, byte for byte: the library stops its timer when the
/// peer repeats a flight, and a repeat under new record numbers would stop that of a peer which
/// uses the same library.
pub(super) struct Association {
    endpoint: Endpoint,
    datagrams: u32,
    fragments: u32,
    established: bool,
    /// Our last flight of the handshake.
    flight: Vec<Vec<u8>>,
    sent_at: Option<Instant>,
    repeats: u32,
    outgoing: Vec<Vec<u8>>,
}

impl Association {
    /// Waits for the peer's first flight, of which `datagram` is the first.
    pub(super) fn new(identity: &Identity, datagram: &[u8]) -> Association {
        // The library takes the peer's first choice of ours. Offering one makes the choice ours.
        let config = if hello::offers_gcm(datagram) { &identity.gcm } else { &identity.any };
        Association {
            endpoint: Endpoint::new(PEER, TransportProtocol::UDP, Some(Arc::clone(config))),
            datagrams: 0,
            fragments: 0,
            established: false,
            flight: Vec::new(),
            sent_at: None,
            repeats: 0,
            outgoing: Vec::new(),
        }
    }

    /// Takes one datagram. What is to be sent then waits in [`Association::send`].
    pub(super) fn read(
        &mut self,
        datagram: &[u8],
        fingerprints: &[Fingerprint],
        now: Instant,
    ) -> Result<Brought, Trouble> {
        self.admit(datagram).map_err(Trouble::Refused)?;
        let endpoint = &mut self.endpoint;
        let read = || endpoint.read(now, PEER, None, datagram.into());
        let Ok(read) = catch_unwind(AssertUnwindSafe(read)) else {
            tracing::error!("the DTLS parser panicked");
            return Err(Trouble::Failed(Failure::Handshake));
        };
        self.collect(now);
        let failure = if self.established { Failure::Alert } else { Failure::Handshake };
        let events = read.map_err(|error| {
            tracing::debug!(%error, "DTLS association failed");
            Trouble::Failed(failure)
        })?;
        let mut brought = Brought::Nothing;
        for event in events {
            match event {
                EndpointEvent::HandshakeComplete if !self.established => {
                    self.established = true;
                    self.datagrams = 0;
                    (self.flight, self.sent_at) = (Vec::new(), None);
                    let keys = self.keys(fingerprints).map_err(Trouble::Failed)?;
                    brought = Brought::Keys(Box::new(keys));
                }
                EndpointEvent::PeerClosed => return Ok(Brought::Closed),
                // No data channel was negotiated: application data is dropped.
                _ => {}
            }
        }
        Ok(brought)
    }

    /// Counts what is in a datagram against the association's bounds, before anything is kept.
    fn admit(&mut self, datagram: &[u8]) -> Result<(), Refused> {
        let max = if self.established { RECORDS_AFTER_MAX } else { DATAGRAMS_MAX };
        if self.datagrams >= max {
            return Err(Refused::DtlsLimited);
        }
        self.datagrams += 1;
        let fragments = hello::fragments(datagram).ok_or(Refused::DtlsMalformed)?;
        if self.fragments + fragments > FRAGMENTS_MAX {
            return Err(Refused::DtlsLimited);
        }
        self.fragments += fragments;
        Ok(())
    }

    /// The keys of a finished handshake, if the peer is who the offer says.
    fn keys(&self, fingerprints: &[Fingerprint]) -> Result<(Inbound, Outbound), Failure> {
        let state = self.endpoint.get_connection_state(PEER).ok_or(Failure::Handshake)?;
        let certificate = state.peer_certificates.first().ok_or(Failure::Fingerprint)?;
        if !fingerprints.iter().any(|fingerprint| fingerprint.matches(certificate)) {
            return Err(Failure::Fingerprint);
        }
        let profile = Profile::negotiated(state.srtp_protection_profile());
        let profile = profile.ok_or(Failure::Protection)?;
        let material = state
            .export_keying_material(EXPORTER, &[], profile.exported_bytes())
            .map_err(|_| Failure::Handshake)?;
        srtp::open(profile, material.as_ref()).ok_or(Failure::Handshake)
    }

    /// Takes what the library wants to send; if it has nothing for a peer that waits for our
    /// flight, the flight again.
    fn collect(&mut self, now: Instant) {
        let before = self.outgoing.len();
        while let Some(transmit) = self.endpoint.poll_transmit() {
            self.outgoing.push(transmit.message.to_vec());
        }
        if self.established {
            return;
        }
        if self.outgoing.len() > before {
            self.flight = self.outgoing[before..].to_vec();
            (self.sent_at, self.repeats) = (Some(now), 0);
        } else if self.sent_at.is_some_and(|at| at + REPEAT_GAP <= now) {
            self.outgoing.extend(self.flight.iter().cloned());
            self.sent_at = Some(now);
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
            self.sent_at = Some(now);
            self.repeats += 1;
        }
    }

    /// When [`Association::advance`] is next needed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let at = self.sent_at.filter(|_| self.repeats < REPEATS_MAX)?;
        Some(at + REPEAT_FIRST * (1 << self.repeats))
    }

    /// Says goodbye (RFC 5246 7.2.1).
    pub(super) fn close(&mut self, now: Instant) {
        (self.flight, self.sent_at) = (Vec::new(), None);
        drop(self.endpoint.stop(now, PEER));
        self.collect(now);
    }
}

#[cfg(test)]
pub(super) mod tests;
