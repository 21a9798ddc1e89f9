//! SRTP and SRTCP of one session (RFC 3711, RFC 7714); packets are decrypted in place.
//!
//! Promises that no state is kept for a source before one of its packets was authenticated, that a packet is
//! accepted once, and that decryption does not allocate. The profiles are the one mandatory in WebRTC (RFC
//! 8827 6.5) and AES-128-GCM, which costs a third of the work.

mod keys;
mod replay;

use aws_lc_rs::error::Unspecified;
use rtc_dtls::extension::extension_use_srtp::SrtpProtectionProfile;

use self::{
    keys::{PacketIndex, SrtpCipher},
    replay::ReplayWindow,
};
use super::stats::DropReason;
use crate::rtp;

/// Most SSRCs per session: video, RTX, and those of an encoder that was restarted a few times.
const SOURCES_MAX: usize = 16;
/// Consecutive failures of a source after which its rollover counter is doubted.
const FAILURES_MAX: u32 = 16;
/// Packets per rollover of the sequence number.
const ROLLOVER: u64 = 1 << 16;
/// RTCP header with the sender's SSRC, which stays in the clear, in bytes.
const RTCP_HEADER_BYTES: usize = 8;
/// Flag and index that SRTCP appends, in bytes.
const TRAILER_BYTES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SrtpProfile {
    /// AEAD_AES_128_GCM.
    Gcm,
    /// AES_CM_128_HMAC_SHA1_80.
    Sha1,
}

impl SrtpProfile {
    /// Converts the profile of a DTLS negotiation; `None` if unsupported.
    pub(super) fn negotiated(profile: SrtpProtectionProfile) -> Option<SrtpProfile> {
        match profile {
            SrtpProtectionProfile::Srtp_Aead_Aes_128_Gcm => Some(SrtpProfile::Gcm),
            SrtpProtectionProfile::Srtp_Aes128_Cm_Hmac_Sha1_80 => Some(SrtpProfile::Sha1),
            _ => None,
        }
    }

    fn salt_bytes(self) -> usize {
        match self {
            SrtpProfile::Gcm => 12,
            SrtpProfile::Sha1 => 14,
        }
    }

    /// Returns the bytes of keying material for both directions (RFC 5764 4.2).
    pub(super) fn exported_bytes(self) -> usize {
        2 * (keys::KEY_BYTES + self.salt_bytes())
    }

    fn tag_bytes(self) -> usize {
        match self {
            SrtpProfile::Gcm => 16,
            SrtpProfile::Sha1 => 10,
        }
    }
}

/// State of a source with at least one authenticated packet.
struct Source {
    ssrc: u32,
    window: ReplayWindow,
    /// Packets since the last authenticated one.
    failures: u32,
}

impl Source {
    fn new(ssrc: u32) -> Source {
        Source { ssrc, window: ReplayWindow::default(), failures: 0 }
    }
}

/// Decrypts the packets of the peer, the DTLS client.
pub(super) struct SrtpReceiver {
    profile: SrtpProfile,
    media: SrtpCipher,
    control: SrtpCipher,
    sources: Vec<Source>,
    /// SRTCP counts per source too (RFC 3711 3.4).
    control_sources: Vec<Source>,
    scratch: Vec<u8>,
}

/// Encrypts RTCP feedback.
pub(super) struct SrtcpSender {
    control: SrtpCipher,
    index: u32,
}

/// Derives both directions from exported keying material: client key, server key, client salt, server salt
/// (RFC 5764 4.2). `None` if the length does not fit the profile.
pub(super) fn open(profile: SrtpProfile, material: &[u8]) -> Option<(SrtpReceiver, SrtcpSender)> {
    if material.len() != profile.exported_bytes() {
        return None;
    }
    let (master_keys, salts) = material.split_at(2 * keys::KEY_BYTES);
    let (client, server) = master_keys.split_at(keys::KEY_BYTES);
    let (client_salt, server_salt) = salts.split_at(profile.salt_bytes());
    let inbound = SrtpReceiver {
        profile,
        media: SrtpCipher::derive(profile, client, client_salt, keys::MEDIA)?,
        control: SrtpCipher::derive(profile, client, client_salt, keys::CONTROL)?,
        sources: Vec::new(),
        control_sources: Vec::new(),
        scratch: Vec::new(),
    };
    let control = SrtpCipher::derive(profile, server, server_salt, keys::CONTROL)?;
    Some((inbound, SrtcpSender { control, index: 0 }))
}

impl SrtpReceiver {
    /// Decrypts an RTP packet in place and returns it without its tag.
    pub(super) fn media<'a>(&mut self, packet: &'a mut [u8]) -> Result<&'a [u8], DropReason> {
        let split = rtp::split(packet).ok_or(DropReason::MediaMalformed)?;
        let header = packet.len() - split.rest.len();
        let tag_bytes = self.profile.tag_bytes();
        if packet.len() < header + tag_bytes {
            return Err(DropReason::MediaMalformed);
        }
        let sequence = u16::from_be_bytes([packet[2], packet[3]]);
        let ssrc = u32::from_be_bytes([packet[8], packet[9], packet[10], packet[11]]);
        let end = packet.len() - tag_bytes;
        if let Some(at) = self.sources.iter().position(|source| source.ssrc == ssrc) {
            self.next_of(at, packet, header, sequence)?;
        } else if self.sources.len() == SOURCES_MAX {
            return Err(DropReason::MediaSources);
        } else {
            // The rollover counter is zero, or one if the packets before the wrap were lost with the
            // handshake (RFC 3711 3.3.1 leaves that to signalling).
            let first = u64::from(sequence);
            let mut source = Source::new(ssrc);
            source.window.take(self.open_as(&[first, first + ROLLOVER], packet, header, ssrc)?);
            self.sources.push(source);
        }
        Ok(&packet[..end])
    }

    fn next_of(
        &mut self,
        at: usize,
        packet: &mut [u8],
        header: usize,
        sequence: u16,
    ) -> Result<(), DropReason> {
        let source = &mut self.sources[at];
        let (ssrc, guess) = (source.ssrc, source.window.guess(sequence));
        source.failures = source.failures.saturating_add(1);
        let index = if source.failures > FAILURES_MAX {
            // After a loss of more than half a rollover period every guess is one too low.
            self.open_as(&[guess, guess + ROLLOVER], packet, header, ssrc)?
        } else if source.window.is_new(guess) {
            let tag = PacketIndex { ssrc, index: guess, is_control: false };
            self.media.open(packet, header, tag).map_err(refused)?;
            guess
        } else {
            return Err(DropReason::MediaReplayed);
        };
        let source = &mut self.sources[at];
        if !source.window.is_new(index) {
            return Err(DropReason::MediaReplayed);
        }
        source.window.take(index);
        source.failures = 0;
        Ok(())
    }

    /// Decrypts a packet with the first index that authenticates; returns that index.
    fn open_as(
        &mut self,
        indices: &[u64],
        packet: &mut [u8],
        header: usize,
        ssrc: u32,
    ) -> Result<u64, DropReason> {
        // A failed attempt destroys the packet, so it is restored from a copy.
        self.scratch.clear();
        self.scratch.extend_from_slice(packet);
        for &index in indices {
            let tag = PacketIndex { ssrc, index, is_control: false };
            if self.media.open(packet, header, tag).is_ok() {
                return Ok(index);
            }
            packet.copy_from_slice(&self.scratch);
        }
        Err(DropReason::MediaUnauthenticated)
    }

    /// Decrypts a compound RTCP packet in place and returns it without its trailer.
    pub(super) fn control<'a>(&mut self, packet: &'a mut [u8]) -> Result<&'a [u8], DropReason> {
        let overhead = self.profile.tag_bytes() + TRAILER_BYTES;
        if packet.len() < RTCP_HEADER_BYTES + overhead {
            return Err(DropReason::MediaMalformed);
        }
        let ssrc = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
        let end = packet.len() - overhead;
        let at = match self.profile {
            SrtpProfile::Gcm => packet.len() - TRAILER_BYTES,
            SrtpProfile::Sha1 => end,
        };
        let trailer =
            u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
        // WebRTC never leaves RTCP unencrypted.
        if trailer >> 31 == 0 {
            return Err(DropReason::MediaMalformed);
        }
        let index = u64::from(trailer & 0x7FFF_FFFF);
        let known = self.control_sources.iter().position(|source| source.ssrc == ssrc);
        match known {
            Some(at) if !self.control_sources[at].window.is_new(index) => {
                return Err(DropReason::MediaReplayed);
            }
            None if self.control_sources.len() == SOURCES_MAX => {
                return Err(DropReason::MediaSources);
            }
            _ => {}
        }
        let tag = PacketIndex { ssrc, index, is_control: true };
        self.control.open(packet, RTCP_HEADER_BYTES, tag).map_err(refused)?;
        let at = known.unwrap_or_else(|| {
            self.control_sources.push(Source::new(ssrc));
            self.control_sources.len() - 1
        });
        self.control_sources[at].window.take(index);
        Ok(&packet[..end])
    }
}

fn refused(_: Unspecified) -> DropReason {
    DropReason::MediaUnauthenticated
}

impl SrtcpSender {
    /// Encrypts the compound RTCP packet in `out` from `start` on. Returns `false` if nothing may be sent
    /// because the key's indices are used up.
    #[must_use]
    pub(super) fn control(&mut self, out: &mut Vec<u8>, start: usize) -> bool {
        if self.index == 0x7FFF_FFFF || out.len() < start + RTCP_HEADER_BYTES {
            return false;
        }
        self.index += 1;
        let head = &out[start..];
        let ssrc = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        self.control.seal(out, start, ssrc, self.index).is_ok()
    }
}

#[cfg(test)]
pub(super) mod tests;
