//! AES-128 in CBC mode.

use aes::{
    Aes128Dec,
    cipher::{BlockDecrypt, KeyInit},
};

/// Bytes of a block, of a key and of an initialization vector.
const BLOCK_BYTES: usize = 16;

/// Decrypts AES-128-CBC block by block, for the encrypted segments of a playlist.
pub struct CbcDecryptor {
    cipher: Aes128Dec,
    /// Encrypted block before the next one; at first the initialization vector.
    before: [u8; BLOCK_BYTES],
}

impl CbcDecryptor {
    /// Returns a decryptor before the first block.
    pub fn new(key: &[u8; BLOCK_BYTES], vector: [u8; BLOCK_BYTES]) -> CbcDecryptor {
        CbcDecryptor { cipher: Aes128Dec::new(key.into()), before: vector }
    }

    /// Decrypts the next blocks in place; bytes after the last whole block stay unchanged.
    pub fn decrypt(&mut self, bytes: &mut [u8]) {
        for block in bytes.as_chunks_mut::<BLOCK_BYTES>().0 {
            let before = std::mem::replace(&mut self.before, *block);
            self.cipher.decrypt_block((&mut *block).into());
            block.iter_mut().zip(before).for_each(|(byte, before)| *byte ^= before);
        }
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
            let mut decryptor = CbcDecryptor::new(&key, vector);
            found.chunks_mut(piece).for_each(|piece| decryptor.decrypt(piece));
            assert_eq!(found, plain, "in pieces of {piece}");
        }
        let mut odd = coded[..20].to_vec();
        CbcDecryptor::new(&key, vector).decrypt(&mut odd);
        assert_eq!(odd[..16], plain[..16]);
        assert_eq!(odd[16..], coded[16..20], "less than a block is left alone");
    }
}
