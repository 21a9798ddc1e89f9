//! Publisher for tests: checks, handshake and encrypted VP8, with another implementation of DTLS and SRTP
//! than the tested one where available. Uses no socket and no clock.

use std::{net::SocketAddr, time::Instant};

use media::Codec;
use rtc_srtp::context::Context;

use super::{
    dtls::tests as dtls,
    srtp::{SrtpProfile, tests::contexts},
    stun::tests::{self as stun, CONTROLLING, NOMINATE},
};

pub(super) const VIDEO: u8 = 96;
pub(super) const SSRC: u32 = 0x1234;
const PWD: &str = "a-password-of-the-client";

/// First bytes of a keyframe: frame tag, start code and 320 x 240 (RFC 6386 9.1).
const KEY: [u8; 10] = [0x50, 0, 0, 0x9d, 0x01, 0x2a, 0x40, 1, 0xf0, 0];

pub(super) struct Client {
    dtls: dtls::Client,
    ufrag: String,
    remote: Option<(String, String)>,
    pub(super) candidates: Vec<SocketAddr>,
    sealed: Option<(Context, Context)>,
    /// True once the handshake has ended on this side.
    pub(super) is_connected: bool,
    pub(super) keyframes_asked: usize,
    /// Fraction lost of each receiver report received.
    pub(super) reports: Vec<u8>,
    pub(super) missing: Vec<u16>,
    pub(super) checked: usize,
    sequence: u16,
    timestamp: u32,
}

impl Client {
    /// Creates a publisher that has not sent an offer.
    pub(super) fn new(ufrag: &str, now: Instant) -> Client {
        Client {
            dtls: dtls::Client::new(&[SrtpProfile::Gcm, SrtpProfile::Sha1], now),
            ufrag: ufrag.to_owned(),
            remote: None,
            candidates: Vec::new(),
            sealed: None,
            is_connected: false,
            keyframes_asked: 0,
            reports: Vec::new(),
            missing: Vec::new(),
            checked: 0,
            sequence: 65_000,
            timestamp: 4_294_900_000,
        }
    }

    pub(super) fn offer(&self) -> String {
        let (ufrag, fingerprint) = (&self.ufrag, &self.dtls.fingerprint);
        format!(
            "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
             m=video 9 UDP/TLS/RTP/SAVPF {VIDEO} 97\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\n\
             a=sendonly\r\na=rtcp-mux\r\na=setup:actpass\r\na=ice-ufrag:{ufrag}\r\n\
             a=ice-pwd:{PWD}\r\na=fingerprint:{fingerprint}\r\na=rtpmap:{VIDEO} VP8/90000\r\n\
             a=rtcp-fb:{VIDEO} nack\r\na=rtcp-fb:{VIDEO} nack pli\r\na=rtpmap:97 rtx/90000\r\n\
             a=fmtp:97 apt={VIDEO}\r\na=ssrc:{SSRC} cname:c\r\n"
        )
    }

    /// Takes the answer, or the fragment that answers a restart.
    pub(super) fn accept(&mut self, answer: &str) {
        let value = |name: &str| {
            let found = answer.lines().find_map(|line| line.strip_prefix(name));
            found.expect("the answer has it").to_owned()
        };
        self.remote = Some((value("a=ice-ufrag:"), value("a=ice-pwd:")));
        let candidates = answer.lines().filter_map(|line| line.strip_prefix("a=candidate:"));
        self.candidates = candidates
            .map(|candidate| {
                let parts: Vec<&str> = candidate.split(' ').collect();
                let ip = parts[4].parse().expect("an address");
                SocketAddr::new(ip, parts[5].parse().expect("a port"))
            })
            .collect();
    }

    /// Returns a fragment that restarts ICE.
    pub(super) fn restart(&mut self, ufrag: &str) -> String {
        self.ufrag = ufrag.to_owned();
        format!("a=ice-ufrag:{ufrag}\r\na=ice-pwd:another-password-{ufrag}\r\n")
    }

    /// Returns a check with the credentials of the answer.
    pub(super) fn check(&self, nominates: bool) -> Vec<u8> {
        let (ufrag, pwd) = self.remote.as_ref().expect("answered");
        let username = format!("{ufrag}:{}", self.ufrag);
        let attributes: &[_] = if nominates { &[CONTROLLING, NOMINATE] } else { &[CONTROLLING] };
        stun::check(&username, pwd, attributes)
    }

    pub(super) fn read(&mut self, datagram: &[u8], now: Instant) {
        match datagram[0] {
            0..=3 => {
                let (_, pwd) = self.remote.as_ref().expect("answered");
                let (address, _) = stun::response(datagram, pwd);
                self.checked += usize::from(address.is_some());
            }
            20..=63 => {
                if self.dtls.read(datagram, now) {
                    self.is_connected = true;
                    let (profile, material) = self.dtls.keys();
                    self.sealed = Some(contexts(profile, &material));
                }
            }
            _ => self.feedback(datagram),
        }
    }

    fn feedback(&mut self, datagram: &[u8]) {
        let Some((_, inbound)) = &mut self.sealed else { return };
        let opened = inbound.decrypt_rtcp(datagram).expect("feedback is authentic");
        let mut rest = &opened[..];
        while !rest.is_empty() {
            let bytes = 4 * (usize::from(u16::from_be_bytes([rest[2], rest[3]])) + 1);
            let (one, after) = rest.split_at(bytes);
            match (one[1], one[0] & 31) {
                (201, 1) => self.reports.push(one[12]),
                (206, 1) => self.keyframes_asked += 1,
                (205, 1) => {
                    for entry in one[12..].chunks_exact(4) {
                        let first = u16::from_be_bytes([entry[0], entry[1]]);
                        let bits = u16::from_be_bytes([entry[2], entry[3]]);
                        self.missing.push(first);
                        let more = (0..16).filter(|bit| bits & (1 << bit) != 0);
                        self.missing.extend(more.map(|bit| first.wrapping_add(bit + 1)));
                    }
                }
                _ => {}
            }
            rest = after;
        }
    }

    pub(super) fn send(&mut self) -> Vec<Vec<u8>> {
        self.dtls.send()
    }

    pub(super) fn close(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.dtls.close(now);
        self.dtls.send()
    }

    pub(super) fn has_keys(&self) -> bool {
        self.sealed.is_some()
    }

    /// Returns the encrypted packets of one picture of `bytes` bytes, `ticks` after the previous one.
    pub(super) fn picture(&mut self, keyframe: bool, bytes: usize, ticks: u32) -> Vec<Vec<u8>> {
        self.timestamp = self.timestamp.wrapping_add(ticks);
        let mut coded = vec![0x5A; bytes.max(KEY.len())];
        coded[..KEY.len()].copy_from_slice(&KEY);
        coded[0] |= u8::from(!keyframe);
        let pieces: Vec<&[u8]> = coded.chunks(1100).collect();
        let last = pieces.len() - 1;
        let packets: Vec<Vec<u8>> = pieces
            .iter()
            .enumerate()
            .map(|(at, piece)| {
                let marker = if at == last { 0x80 } else { 0 };
                let mut packet = vec![0x80, VIDEO | marker];
                packet.extend_from_slice(&self.sequence.to_be_bytes());
                packet.extend_from_slice(&self.timestamp.to_be_bytes());
                packet.extend_from_slice(&SSRC.to_be_bytes());
                // RFC 7741 4.2: the first packet of a picture starts its first partition.
                packet.push(if at == 0 { 0x10 } else { 0 });
                packet.extend_from_slice(piece);
                self.sequence = self.sequence.wrapping_add(1);
                packet
            })
            .collect();
        let (outbound, _) = self.sealed.as_mut().expect("connected");
        let seal = |packet: &Vec<u8>| outbound.encrypt_rtp(packet).expect("sealed").to_vec();
        packets.iter().map(seal).collect()
    }

    /// Returns an encrypted BYE of the source.
    pub(super) fn goodbye(&mut self) -> Vec<u8> {
        let mut packet = vec![0x80, 201, 0, 1];
        packet.extend_from_slice(&SSRC.to_be_bytes());
        packet.extend_from_slice(&[0x81, 203, 0, 1]);
        packet.extend_from_slice(&SSRC.to_be_bytes());
        let (outbound, _) = self.sealed.as_mut().expect("connected");
        outbound.encrypt_rtcp(&packet).expect("sealed").to_vec()
    }
}

/// Codec of all units of [`Client::picture`].
pub(super) const CODEC: Codec = Codec::Vp8;
