//! Reasoning of models that clients store and send back: signed if readable, encrypted otherwise. Both are valid only
//! for the account that the reasoning was written for.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use muster_protocol::anthropic::Signer;
use muster_protocol::job::AccountId;
use muster_protocol::openai::responses::Sealer;

use super::Accounts;
use crate::values::ByteSeal;

/// Keys of one account, derived by every process of this deployment.
pub struct Thoughts {
    signing: hmac::Key,
    sealing: ByteSeal,
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
        Self {
            signing: hmac::Key::new(hmac::HMAC_SHA256, &secret("signatures of thoughts")),
            sealing: ByteSeal::new(&secret("sealed thoughts")),
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
        self.sealing.seal(thinking)
    }

    fn open(&self, sealed: &str) -> Option<String> {
        String::from_utf8(self.sealing.open(sealed)?).ok()
    }
}
