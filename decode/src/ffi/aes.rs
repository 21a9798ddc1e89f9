//! AES-128 in CBC mode by libavutil.

use std::ptr::NonNull;

use ffmpeg_next::ffi;

use super::{AvError, failed};
use crate::DecodeError;

/// Bytes of a block, of a key and of an initialization vector.
pub(super) const BLOCK_BYTES: usize = 16;

/// Decrypts AES-128-CBC block by block, for the encrypted segments of a playlist.
pub struct CbcDecryptor {
    context: NonNull<ffi::AVAES>,
    vector: [u8; BLOCK_BYTES],
}

// SAFETY: the context is plain memory owned by this value alone.
unsafe impl Send for CbcDecryptor {}

impl CbcDecryptor {
    /// Returns a decryptor before the first block; fails only if memory runs out.
    pub fn new(
        key: &[u8; BLOCK_BYTES],
        vector: [u8; BLOCK_BYTES],
    ) -> Result<CbcDecryptor, DecodeError> {
        let failed = failed("av_aes_init");
        // SAFETY: plain allocation.
        let context = NonNull::new(unsafe { ffi::av_aes_alloc() })
            .ok_or_else(|| failed(AvError::NO_MEMORY))?;
        let decryptor = CbcDecryptor { context, vector };
        // SAFETY: the context was just made; the key has its 128 bits; 1 asks for decryption.
        AvError::check(unsafe { ffi::av_aes_init(context.as_ptr(), key.as_ptr(), 128, 1) })
            .map_err(failed)?;
        Ok(decryptor)
    }

    /// Decrypts the next blocks in place; bytes after the last whole block stay unchanged.
    pub fn decrypt(&mut self, bytes: &mut [u8]) {
        for run in bytes.chunks_mut(1 << 20) {
            let blocks = (run.len() / BLOCK_BYTES) as i32;
            let at = run.as_mut_ptr();
            // SAFETY: `blocks` whole blocks are readable and writable at `at`, and libav allows source and
            // target to be the same; the vector has one block.
            unsafe {
                ffi::av_aes_crypt(
                    self.context.as_ptr(),
                    at,
                    at,
                    blocks,
                    self.vector.as_mut_ptr(),
                    1,
                );
            }
        }
    }
}

impl Drop for CbcDecryptor {
    fn drop(&mut self) {
        // SAFETY: made by `av_aes_alloc`, freed once.
        unsafe { ffi::av_free(self.context.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vector: NIST SP 800-38A, F.2.2 CBC-AES128.Decrypt.
    #[test]
    fn decrypts_the_standard_vectors_in_any_pieces() {
        let bytes = |hex: &str| -> Vec<u8> {
            let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            (0..hex.len()).step_by(2).map(digit).collect()
        };
        let key: [u8; 16] = bytes("2b7e151628aed2a6abf7158809cf4f3c").try_into().expect("16");
        let vector: [u8; 16] = bytes("000102030405060708090a0b0c0d0e0f").try_into().expect("16");
        let coded = bytes(
            "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2\
             73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
        );
        let plain = bytes(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
             30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
        );
        for piece in [16, 32, 48, 64] {
            let mut found = coded.clone();
            let mut decryptor = CbcDecryptor::new(&key, vector).expect("memory");
            found.chunks_mut(piece).for_each(|piece| decryptor.decrypt(piece));
            assert_eq!(found, plain, "in pieces of {piece}");
        }
        let mut odd = coded[..20].to_vec();
        CbcDecryptor::new(&key, vector).expect("memory").decrypt(&mut odd);
        assert_eq!(odd[..16], plain[..16]);
        assert_eq!(odd[16..], coded[16..20], "less than a block is left alone");
    }
}
