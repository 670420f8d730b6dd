//! Reasoning of models that clients store and send back: signed if readable, encrypted otherwise. Both are valid only
//! for the account that the reasoning was written for.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

use muster_protocol::anthropic::Signer;
use muster_protocol::job::AccountId;
use muster_protocol::openai::responses::Sealer;

use super::Accounts;
use super::key;

/// Keys of one account, derived by every process of this deployment.
pub struct Thoughts {
    signing: hmac::Key,
    sealing: LessSafeKey,
}

impl fmt::Debug for Thoughts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Thoughts(hidden)")
    }
}

impl Thoughts {
    pub fn new(accounts: &Accounts, account: AccountId) -> Self {
        let secret =
            |purpose: &str| accounts.derived_secret(&format!("{purpose} of {}", account.0));
        let sealing = UnboundKey::new(&CHACHA20_POLY1305, &secret("sealed thoughts"));
        Self {
            signing: hmac::Key::new(hmac::HMAC_SHA256, &secret("signatures of thoughts")),
            sealing: LessSafeKey::new(sealing.expect("the key has 32 bytes")),
        }
    }
}

impl Signer for Thoughts {
    fn sign(&self, thinking: &str) -> String {
        STANDARD.encode(hmac::sign(&self.signing, thinking.as_bytes()))
    }

    fn verifies(&self, thinking: &str, signature: &str) -> bool {
        let signature = STANDARD.decode(signature).unwrap_or_default();
        hmac::verify(&self.signing, thinking.as_bytes(), &signature).is_ok()
    }
}

impl Sealer for Thoughts {
    fn seal(&self, thinking: &str) -> String {
        let nonce: [u8; NONCE_LEN] = key::random();
        let mut sealed = thinking.as_bytes().to_vec();
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        let closed = self
            .sealing
            .seal_in_place_append_tag(nonce_of, Aad::empty(), &mut sealed);
        closed.expect("ChaCha20 encrypts a text of this length");
        STANDARD.encode([nonce.as_slice(), &sealed].concat())
    }

    fn open(&self, sealed: &str) -> Option<String> {
        let bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let text = self
            .sealing
            .open_in_place(nonce, Aad::empty(), &mut sealed)
            .ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}
