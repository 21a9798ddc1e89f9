//! Tests of handshakes with a client of the same library, without sockets and in virtual time.

use rtc_dtls::config::ExtendedMasterSecretType;

use super::*;

pub(in crate::webrtc) struct Client {
    endpoint: Endpoint,
    pub(in crate::webrtc) fingerprint: CertificateFingerprint,
}

const SERVER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4));

impl Client {
    pub(in crate::webrtc) fn new(profiles: &[SrtpProfile], now: Instant) -> Client {
        let provider: Arc<dyn RTCCryptoProvider> = Arc::new(AwsLcRsProvider::new());
        let certificate =
            Certificate::generate_self_signed(Vec::new(), provider.crypto()).expect("certificate");
        let fingerprint = CertificateFingerprint::of(&certificate.certificate[0]);
        let named = profiles.iter().map(|profile| match profile {
            SrtpProfile::Gcm => Srtp_Aead_Aes_128_Gcm,
            SrtpProfile::Sha1 => Srtp_Aes128_Cm_Hmac_Sha1_80,
        });
        let config = ConfigBuilder::default()
            .with_crypto_provider(provider)
            .with_certificates(vec![certificate])
            .with_insecure_skip_verify(true)
            .with_extended_master_secret(ExtendedMasterSecretType::Require)
            .with_srtp_protection_profiles(named.collect())
            .build(true, None)
            .expect("a valid configuration");
        let mut endpoint = Endpoint::new(PEER, TransportProtocol::UDP, None);
        endpoint.connect(now, SERVER, Arc::new(config), None).expect("a first flight");
        Client { endpoint, fingerprint }
    }

    pub(in crate::webrtc) fn send(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.endpoint.poll_transmit())
            .map(|transmit| transmit.message.to_vec())
            .collect()
    }

    /// Processes a datagram; returns true if the handshake has just ended.
    pub(in crate::webrtc) fn read(&mut self, datagram: &[u8], now: Instant) -> bool {
        let events = self.endpoint.read(now, SERVER, None, datagram.into()).unwrap_or_default();
        events.iter().any(|event| matches!(event, EndpointEvent::HandshakeComplete))
    }

    fn advance(&mut self, now: Instant) {
        self.endpoint.handle_timeout(SERVER, now).expect("not given up");
    }

    pub(in crate::webrtc) fn close(&mut self, now: Instant) {
        drop(self.endpoint.stop(now, SERVER));
    }

    /// Returns the exported keys and their profile.
    pub(in crate::webrtc) fn keys(&self) -> (SrtpProfile, Vec<u8>) {
        let state = self.endpoint.get_connection_state(SERVER).expect("connected");
        let profile =
            SrtpProfile::negotiated(state.srtp_protection_profile()).expect("one of ours");
        let material = state.export_keying_material(EXPORTER, &[], profile.exported_bytes());
        (profile, material.expect("keys").as_ref().to_vec())
    }
}

/// Runs a handshake; `path` returns what arrives of a datagram, and is told whether that goes to the server. Returns
/// the profile of the keys, and the association; `None` if it does not end.
fn handshake(
    offered: &[SrtpProfile],
    mut path: impl FnMut(Vec<u8>, bool) -> Vec<Vec<u8>>,
) -> Option<(SrtpProfile, DtlsTransport)> {
    let identity = DtlsIdentity::generate().expect("an identity");
    let mut now = Instant::now();
    let mut client = Client::new(offered, now);
    let fingerprints = [client.fingerprint.clone()];
    let mut association: Option<DtlsTransport> = None;
    let (mut keys, mut complete) = (0, false);
    for _ in 0..40 {
        for datagram in client.send().into_iter().flat_map(|one| path(one, true)) {
            let server =
                association.get_or_insert_with(|| DtlsTransport::new(&identity, &datagram, now));
            match server.read(&datagram, &fingerprints, now) {
                Ok(DtlsOutcome::Keys(_)) => keys += 1,
                Ok(DtlsOutcome::Nothing) => {}
                Ok(DtlsOutcome::Closed) => panic!("closed by nobody"),
                Err(DtlsError::Refused(why)) => panic!("{why:?}"),
                Err(DtlsError::Failed(failure)) => panic!("{failure}"),
            }
        }
        let mut sent = Vec::new();
        if let Some(server) = &mut association {
            server.send(|datagram| sent.push(datagram.to_vec()));
        }
        for datagram in sent.into_iter().flat_map(|one| path(one, false)) {
            complete |= client.read(&datagram, now);
        }
        if keys == 1 && complete {
            return Some((client.keys().0, association?));
        }
        now += Duration::from_millis(250);
        client.advance(now);
        if let Some(server) = &mut association {
            server.advance(now);
        }
    }
    None
}

#[test]
fn gcm_is_taken_when_it_is_offered_at_all() {
    let cases: [(&[SrtpProfile], SrtpProfile); 3] = [
        (&[SrtpProfile::Gcm, SrtpProfile::Sha1], SrtpProfile::Gcm),
        (&[SrtpProfile::Sha1, SrtpProfile::Gcm], SrtpProfile::Gcm),
        (&[SrtpProfile::Sha1], SrtpProfile::Sha1),
    ];
    for (offered, expected) in cases {
        let (taken, _) = handshake(offered, |one, _| vec![one]).expect("it ends");
        assert_eq!(taken, expected, "{offered:?}");
    }
}

#[test]
fn lost_datagrams_are_repeated() {
    for lost in 1..=8 {
        for also in lost..=8 {
            let mut count = 0;
            let done = handshake(&[SrtpProfile::Gcm], |one, _| {
                count += 1;
                if count == lost || count == also { vec![] } else { vec![one] }
            });
            assert!(done.is_some(), "without datagrams {lost} and {also}");
        }
    }
}

/// Returns a client, its first datagram, and the association that waits for it.
fn greeted(now: Instant) -> (Client, Vec<u8>, DtlsTransport) {
    let identity = DtlsIdentity::generate().expect("an identity");
    let mut client = Client::new(&[SrtpProfile::Gcm], now);
    let hello = client.send().remove(0);
    let server = DtlsTransport::new(&identity, &hello, now);
    (client, hello, server)
}

#[test]
fn a_flood_of_dtls_is_cut_off_and_its_budget_comes_back() {
    let now = Instant::now();
    let (_, hello, mut server) = greeted(now);
    let mut refused = |sent: usize, at| {
        let is_refused = |_: &usize| {
            let read = server.read(&hello, &[], at);
            server.send(|_| {});
            matches!(read, Err(DtlsError::Refused(DropReason::DtlsLimited)))
        };
        (0..sent).filter(is_refused).count()
    };
    assert_eq!(refused(10_000, now), 10_000 - DATAGRAMS.burst as usize);
    let taken = 100 - refused(100, now + Duration::from_secs(1));
    assert!((16..=20).contains(&taken), "{taken} a second");
}

#[test]
fn broken_records_fail_or_are_refused_and_never_panic() {
    let identity = DtlsIdentity::generate().expect("an identity");
    let now = Instant::now();
    let (_, hello, _) = greeted(now);
    for at in 0..hello.len() {
        let mut broken = hello.clone();
        broken[at] ^= 0xFF;
        let mut server = DtlsTransport::new(&identity, &broken, now);
        let keys = server.read(&broken, &[], now);
        assert!(!matches!(keys, Ok(DtlsOutcome::Keys(_))), "byte {at}");
    }
}

/// Returns an unencrypted record, as an attacker could forge.
fn junk(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut record = vec![kind, 254, 253, 0, 0, 0, 0, 0, 0, 0, 99];
    record.extend_from_slice(&(content.len() as u16).to_be_bytes());
    record.extend_from_slice(content);
    record
}

#[test]
fn what_a_stranger_writes_ends_neither_a_handshake_nor_an_association() {
    let strange = [
        junk(21, &[2, 40]),
        junk(21, &[1, 0]),
        junk(23, b"data"),
        junk(20, &[9, 9]),
        junk(99, b""),
    ];
    let (_, mut server) = handshake(&[SrtpProfile::Gcm], |one, to_server| {
        let more = strange.iter().filter(|_| to_server).cloned();
        std::iter::once(one).chain(more).collect()
    })
    .expect("it ends");
    for record in &strange {
        let read = server.read(record, &[], Instant::now());
        assert!(matches!(read, Ok(DtlsOutcome::Nothing)), "{record:?}");
    }
}

#[test]
fn a_flight_is_repeated_for_a_peer_that_repeats_and_for_no_one_else() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let (mut client, hello, mut server) = greeted(start);
    let sent = |server: &mut DtlsTransport| {
        let mut all = Vec::new();
        server.send(|datagram| all.push(datagram.to_vec()));
        all
    };
    assert!(server.read(&hello, &[], start).is_ok());
    let verify = sent(&mut server);
    assert!(verify.iter().any(|datagram| client_hello::verifies(datagram)));
    assert_eq!(server.deadline(), None, "the peer asks again");
    for datagram in &verify {
        client.read(datagram, start);
    }
    let second = client.send().remove(0);
    assert!(server.read(&second, &[], at(10)).is_ok());
    let flight = sent(&mut server);
    assert!(!flight.is_empty());
    let due = server.deadline();
    assert_eq!(due, Some(at(10) + REPEAT_FIRST));
    for (ms, datagram, repeats, name) in [
        (100, junk(21, &[2, 40]), false, "an alert of a stranger"),
        (110, junk(23, b"x"), false, "data of a stranger"),
        (120, second.clone(), true, "the peer's hello again"),
        (130, second.clone(), false, "too soon"),
        (170, second.clone(), true, "the peer's hello once more"),
    ] {
        assert!(server.read(&datagram, &[], at(ms)).is_ok(), "{name}");
        assert_eq!(sent(&mut server) == flight, repeats, "{name}");
        assert_eq!(server.deadline(), due, "{name}");
    }
}
