//! Encryption of bytes that are stored or given away, with authentication.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::key;

/// Encrypts bytes to text, with a random nonce each time.
pub struct ByteSeal(LessSafeKey);

impl fmt::Debug for ByteSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByteSeal(hidden)")
    }
}

impl ByteSeal {
    pub fn new(secret: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, secret);
        Self(LessSafeKey::new(key.expect("the key has 32 bytes")))
    }

    pub fn seal(&self, bytes: impl Into<Vec<u8>>) -> String {
        let nonce: [u8; NONCE_LEN] = key::random();
        let mut sealed = bytes.into();
        let unique = Nonce::assume_unique_for_key(nonce);
        let closed = self
            .0
            .seal_in_place_append_tag(unique, Aad::empty(), &mut sealed);
        closed.expect("ChaCha20 encrypts bytes of this length");
        STANDARD.encode([nonce.as_slice(), &sealed].concat())
    }

    /// `None` if the text was changed, or encrypted with another key.
    pub fn open(&self, sealed: &str) -> Option<Vec<u8>> {
        let bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = self.0.open_in_place(nonce, Aad::empty(), &mut sealed);
        Some(opened.ok()?.to_vec())
    }
}
