//! Session keys and the two transforms: AES-GCM (RFC 7714) and AES-CM with HMAC-SHA1 (RFC 3711).

use aws_lc_rs::{
    aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    cipher::{AES_128, DecryptingKey, DecryptionContext, UnboundCipherKey},
    constant_time::verify_slices_are_equal,
    error::Unspecified,
    hmac,
};

use super::{RTCP_HEADER_BYTES, SrtpProfile, TRAILER_BYTES};

/// Bytes of a master key and of a session's encryption key.
pub(super) const KEY_BYTES: usize = 16;
const SALT_BYTES_MAX: usize = 14;
const AUTHENTICATION_BYTES: usize = 20;
const SHA1_TAG_BYTES: usize = 10;

/// Key derivation labels of encryption, authentication and salt for SRTP (RFC 3711 4.3.2).
pub(super) const MEDIA: [u8; 3] = [0, 1, 2];
/// Key derivation labels for SRTCP.
pub(super) const CONTROL: [u8; 3] = [3, 4, 5];

/// Index of a packet, which makes its key stream unique.
#[derive(Clone, Copy)]
pub(super) struct PacketIndex {
    pub(super) ssrc: u32,
    /// 48-bit packet index (rollover counter and sequence number) or 31-bit SRTCP index.
    pub(super) index: u64,
    pub(super) is_control: bool,
}

/// Keys of one direction and one protocol.
pub(super) enum SrtpCipher {
    Gcm {
        key: LessSafeKey,
        salt: [u8; 12],
    },
    /// Boxed: an HMAC key holds two hash states.
    Sha1(Box<Sha1>),
}

/// Keys of AES-CM with HMAC-SHA1.
pub(super) struct Sha1 {
    key: DecryptingKey,
    authentication: hmac::Key,
    salt: [u8; SALT_BYTES_MAX],
}

impl SrtpCipher {
    /// Derives session keys (RFC 3711 4.3, key derivation rate zero).
    pub(super) fn derive(
        profile: SrtpProfile,
        master_key: &[u8],
        master_salt: &[u8],
        [encryption, authentication, salting]: [u8; 3],
    ) -> Option<SrtpCipher> {
        let master = counter_mode(master_key)?;
        let derive = |label, out: &mut [u8]| keystream(&master, master_salt, label, out);
        let mut key = [0u8; KEY_BYTES];
        derive(encryption, &mut key)?;
        match profile {
            SrtpProfile::Gcm => {
                let mut salt = [0u8; 12];
                derive(salting, &mut salt)?;
                let key = UnboundKey::new(&AES_128_GCM, &key).ok()?;
                Some(SrtpCipher::Gcm { key: LessSafeKey::new(key), salt })
            }
            SrtpProfile::Sha1 => {
                let mut salt = [0u8; SALT_BYTES_MAX];
                derive(salting, &mut salt)?;
                let mut secret = [0u8; AUTHENTICATION_BYTES];
                derive(authentication, &mut secret)?;
                let authentication = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &secret);
                Some(SrtpCipher::Sha1(Box::new(Sha1 {
                    key: counter_mode(&key)?,
                    authentication,
                    salt,
                })))
            }
        }
    }

    /// Authenticates and decrypts the bytes after `header` of `packet`, which ends with the appended tag and
    /// trailer. Fails if it is not authentic; then the content is undefined.
    pub(super) fn open(
        &self,
        packet: &mut [u8],
        header: usize,
        tag: PacketIndex,
    ) -> Result<(), Unspecified> {
        match self {
            SrtpCipher::Gcm { key, salt } => {
                let nonce = Nonce::assume_unique_for_key(gcm_nonce(salt, tag));
                let (head, rest) = packet.split_at_mut(header);
                let opened = if tag.is_control {
                    let (sealed, trailer) = rest.split_at_mut(rest.len() - TRAILER_BYTES);
                    let mut associated = [0u8; 12];
                    associated[..8].copy_from_slice(head);
                    associated[8..].copy_from_slice(trailer);
                    key.open_in_place(nonce, Aad::from(&associated), sealed)
                } else {
                    key.open_in_place(nonce, Aad::from(&*head), rest)
                };
                opened.map(|_| ())
            }
            SrtpCipher::Sha1(keys) => {
                let Sha1 { key, authentication, salt } = &**keys;
                let (signed, given) = packet.split_at_mut(packet.len() - SHA1_TAG_BYTES);
                verify_slices_are_equal(&sign(authentication, signed, tag), given)?;
                let trailer = if tag.is_control { TRAILER_BYTES } else { 0 };
                let end = signed.len() - trailer;
                apply(key, salt, tag, &mut signed[header..end])
            }
        }
    }

    /// Encrypts and authenticates the SRTCP packet in `out` from `start` on; appends trailer and tag in the
    /// order of the profile.
    pub(super) fn seal(
        &self,
        out: &mut Vec<u8>,
        start: usize,
        ssrc: u32,
        index: u32,
    ) -> Result<(), Unspecified> {
        let tag = PacketIndex { ssrc, index: u64::from(index), is_control: true };
        let trailer = (index | 0x8000_0000).to_be_bytes();
        match self {
            SrtpCipher::Gcm { key, salt } => {
                let nonce = Nonce::assume_unique_for_key(gcm_nonce(salt, tag));
                let (head, body) = out[start..].split_at_mut(RTCP_HEADER_BYTES);
                let mut associated = [0u8; 12];
                associated[..8].copy_from_slice(head);
                associated[8..].copy_from_slice(&trailer);
                let sum = key.seal_in_place_separate_tag(nonce, Aad::from(&associated), body)?;
                out.extend_from_slice(sum.as_ref());
                out.extend_from_slice(&trailer);
            }
            SrtpCipher::Sha1(keys) => {
                let Sha1 { key, authentication, salt } = &**keys;
                // Counter mode is its own inverse.
                apply(key, salt, tag, &mut out[start + RTCP_HEADER_BYTES..])?;
                out.extend_from_slice(&trailer);
                let sum = sign(authentication, &out[start..], tag);
                out.extend_from_slice(&sum);
            }
        }
        Ok(())
    }
}

fn counter_mode(key: &[u8]) -> Option<DecryptingKey> {
    DecryptingKey::ctr(UnboundCipherKey::new(&AES_128, key).ok()?).ok()
}

/// Writes the key stream of a label: the counter starts at the salt with the label XORed into its eighth byte
/// (RFC 3711 4.3.1; a 96-bit salt is padded on the right, RFC 7714 11).
fn keystream(master: &DecryptingKey, salt: &[u8], label: u8, out: &mut [u8]) -> Option<()> {
    let mut counter = [0u8; 16];
    counter[..salt.len()].copy_from_slice(salt);
    counter[7] ^= label;
    out.fill(0);
    master.decrypt(out, DecryptionContext::Iv128(counter.into())).ok()?;
    Some(())
}

/// Applies AES-CM (RFC 3711 4.1.1); the IV is salt, SSRC and packet index, XORed.
fn apply(
    key: &DecryptingKey,
    salt: &[u8; SALT_BYTES_MAX],
    tag: PacketIndex,
    content: &mut [u8],
) -> Result<(), Unspecified> {
    let mut counter = [0u8; 16];
    counter[..SALT_BYTES_MAX].copy_from_slice(salt);
    for (at, byte) in tag.ssrc.to_be_bytes().into_iter().enumerate() {
        counter[4 + at] ^= byte;
    }
    for (at, byte) in tag.index.to_be_bytes()[2..].iter().enumerate() {
        counter[8 + at] ^= byte;
    }
    key.decrypt(content, DecryptionContext::Iv128(counter.into())).map(|_| ())
}

/// Returns the first 80 bits of the HMAC over the packet and, for media, its rollover counter (RFC 3711 4.2).
fn sign(key: &hmac::Key, signed: &[u8], tag: PacketIndex) -> [u8; SHA1_TAG_BYTES] {
    let mut context = hmac::Context::with_key(key);
    context.update(signed);
    if !tag.is_control {
        context.update(&((tag.index >> 16) as u32).to_be_bytes());
    }
    let mut sum = [0u8; SHA1_TAG_BYTES];
    sum.copy_from_slice(&context.sign().as_ref()[..SHA1_TAG_BYTES]);
    sum
}

/// Returns the GCM nonce (RFC 7714 8.1, 9.1): SSRC and index, XORed with the salt.
fn gcm_nonce(salt: &[u8; 12], tag: PacketIndex) -> [u8; 12] {
    let mut nonce = [0u8; 12];
    nonce[2..6].copy_from_slice(&tag.ssrc.to_be_bytes());
    nonce[6..].copy_from_slice(&tag.index.to_be_bytes()[2..]);
    for (byte, salt) in nonce.iter_mut().zip(salt) {
        *byte ^= salt;
    }
    nonce
}
