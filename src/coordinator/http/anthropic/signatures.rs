//! Signatures of thoughts: a client gives a thought back unchanged, and only to the account that it was written for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::accounts::Accounts;
use muster_protocol::anthropic::Signer;
use muster_protocol::job::AccountId;

/// Signs for one account, with a key that every process of this deployment derives.
#[derive(Debug)]
pub struct Signatures(hmac::Key);

impl Signatures {
    pub fn new(accounts: &Accounts, account: AccountId) -> Self {
        let secret = accounts.derived_secret(&format!("signatures of thoughts of {}", account.0));
        Self(hmac::Key::new(hmac::HMAC_SHA256, &secret))
    }
}

impl Signer for Signatures {
    fn sign(&self, thinking: &str) -> String {
        STANDARD.encode(hmac::sign(&self.0, thinking.as_bytes()))
    }

    fn verifies(&self, thinking: &str, signature: &str) -> bool {
        let signature = STANDARD.decode(signature).unwrap_or_default();
        hmac::verify(&self.0, thinking.as_bytes(), &signature).is_ok()
    }
}
