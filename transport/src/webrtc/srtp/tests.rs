//! Tests of the key derivation of RFC 3711 B.3, and of packets encrypted by another implementation.

use rtc_dtls::crypto_provider::{RTCCryptoProvider as _, providers::AwsLcRsProvider};
use rtc_srtp::{context::Context, protection_profile::ProtectionProfile};

use super::*;
use crate::webrtc::fuzz::material;

/// Returns contexts of `rtc-srtp` with the client's and with the server's keys.
pub(in crate::webrtc) fn contexts(profile: SrtpProfile, material: &[u8]) -> (Context, Context) {
    let named = match profile {
        SrtpProfile::Gcm => ProtectionProfile::AeadAes128Gcm,
        SrtpProfile::Sha1 => ProtectionProfile::Aes128CmHmacSha1_80,
    };
    let (keys, salts) = material.split_at(32);
    let (client, server) = salts.split_at(profile.salt_bytes());
    let provider = AwsLcRsProvider::new();
    let context = |key, salt| {
        Context::new(key, salt, named, None, None, provider.crypto()).expect("valid keys")
    };
    (context(&keys[..16], client), context(&keys[16..], server))
}

/// Returns a client of the other implementation, and the receiver of its packets.
fn pair(profile: SrtpProfile) -> (Context, SrtpReceiver) {
    let material = material(profile);
    (contexts(profile, &material).0, open(profile, &material).expect("keys").0)
}

fn packet(ssrc: u32, sequence: u16, content: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80, 96];
    packet.extend_from_slice(&sequence.to_be_bytes());
    packet.extend_from_slice(&90_000u32.to_be_bytes());
    packet.extend_from_slice(&ssrc.to_be_bytes());
    packet.extend_from_slice(content);
    packet
}

const PROFILES: [SrtpProfile; 2] = [SrtpProfile::Gcm, SrtpProfile::Sha1];

#[test]
fn packets_of_another_implementation_are_opened_over_a_wrap() {
    for profile in PROFILES {
        let (mut peer, mut inbound) = pair(profile);
        for step in 0..200u32 {
            let sequence = 65_400u16.wrapping_add(step as u16);
            let plain = packet(7, sequence, &[step as u8; 100]);
            let mut sealed = peer.encrypt_rtp(&plain).expect("sealed").to_vec();
            let mut again = sealed.clone();
            assert_eq!(inbound.media(&mut sealed), Ok(&plain[..]), "{profile:?} {sequence}");
            let replayed = inbound.media(&mut again);
            assert_eq!(replayed, Err(DropReason::MediaReplayed));
        }
    }
}

#[test]
fn a_source_may_have_wrapped_before_its_first_packet_came() {
    for profile in PROFILES {
        let (mut peer, mut inbound) = pair(profile);
        for sequence in [65_534u16, 65_535] {
            peer.encrypt_rtp(&packet(7, sequence, b"lost")).expect("sealed");
        }
        for sequence in [0u16, 1, 2] {
            let plain = packet(7, sequence, b"comes");
            let mut sealed = peer.encrypt_rtp(&plain).expect("sealed").to_vec();
            assert_eq!(inbound.media(&mut sealed), Ok(&plain[..]), "{profile:?} {sequence}");
        }
    }
}

#[test]
fn a_rollover_that_was_missed_is_found_again() {
    for profile in PROFILES {
        let (mut peer, mut inbound) = pair(profile);
        let mut taken = Vec::new();
        for step in 0..120_000u32 {
            let plain = packet(7, step as u16, b"media");
            let sealed = peer.encrypt_rtp(&plain).expect("sealed");
            // An outage of more than half a rollover period.
            if (66_000..116_000).contains(&step) {
                continue;
            }
            if inbound.media(&mut sealed.to_vec()).is_ok() {
                taken.push(step);
            }
        }
        let lost = 66_000..116_000 + FAILURES_MAX;
        let expected: Vec<u32> = (0..120_000).filter(|step| !lost.contains(step)).collect();
        assert_eq!(taken.len(), expected.len(), "{profile:?}");
        assert!(taken == expected, "{profile:?}");
    }
}

#[test]
fn headers_with_sources_and_extensions_stay_in_the_clear() {
    for profile in PROFILES {
        let (mut peer, mut inbound) = pair(profile);
        let mut plain = packet(7, 1, b"");
        plain[0] |= 0x12;
        plain.extend_from_slice(&[1; 8]);
        plain.extend_from_slice(&[0xBE, 0xDE, 0, 1, 0x10, b'0', 0, 0]);
        plain.extend_from_slice(b"content");
        let mut sealed = peer.encrypt_rtp(&plain).expect("sealed").to_vec();
        assert_eq!(inbound.media(&mut sealed), Ok(&plain[..]), "{profile:?}");
    }
}

#[test]
fn changed_packets_are_refused_and_leave_nothing_behind() {
    for profile in PROFILES {
        let (mut peer, mut inbound) = pair(profile);
        let plain = packet(7, 10, b"some content of a packet");
        let sealed = peer.encrypt_rtp(&plain).expect("sealed").to_vec();
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(inbound.media(&mut changed).is_err(), "{profile:?} bit {bit}");
        }
        assert_eq!(inbound.sources.len(), 0, "nothing was authentic");
        assert_eq!(inbound.media(&mut sealed.clone()), Ok(&plain[..]));
        for ssrc in 100..200 {
            let mut sealed = peer.encrypt_rtp(&packet(ssrc, 1, b"x")).expect("sealed").to_vec();
            let taken = inbound.media(&mut sealed).map(|_| ());
            let room = ssrc < 100 + SOURCES_MAX as u32 - 1;
            assert_eq!(taken, if room { Ok(()) } else { Err(DropReason::MediaSources) });
        }
    }
}

#[test]
fn feedback_goes_both_ways() {
    // A receiver report without blocks, followed by a source description.
    let plain = [0x80, 201, 0, 1, 0, 0, 0, 9, 0x81, 202, 0, 2, 0, 0, 0, 9, 1, 1, b'c', 0];
    for profile in PROFILES {
        let (mut inbound, mut outbound) = open(profile, &material(profile)).expect("keys");
        let (mut theirs, mut ours) = contexts(profile, &material(profile));
        for _ in 0..3 {
            let sealed = theirs.encrypt_rtcp(&plain).expect("sealed").to_vec();
            assert_eq!(inbound.control(&mut sealed.clone()), Ok(&plain[..]), "{profile:?}");
            assert_eq!(inbound.control(&mut sealed.clone()), Err(DropReason::MediaReplayed));
            let mut out = b"before".to_vec();
            out.extend_from_slice(&plain);
            assert!(outbound.control(&mut out, 6));
            let opened = ours.decrypt_rtcp(&out[6..]).expect("the peer opens it");
            assert_eq!(&opened[..], &plain[..], "{profile:?}");
        }
        let mut sealed = theirs.encrypt_rtcp(&plain).expect("sealed").to_vec();
        sealed[9] ^= 1;
        assert_eq!(inbound.control(&mut sealed), Err(DropReason::MediaUnauthenticated));
    }
}

#[test]
fn material_of_another_length_is_refused() {
    for profile in PROFILES {
        let material = material(profile);
        assert!(open(profile, &material[1..]).is_none());
        assert!(open(profile, &[]).is_none());
    }
}
