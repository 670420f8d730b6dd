//! Reasoning that clients keep for the service: unreadable to them, and readable again for the account that got it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::accounts::Accounts;
use muster_protocol::job::AccountId;
use muster_protocol::openai::responses::Sealer;

/// Seals for one account, with a key that every process of this deployment derives.
#[derive(Debug)]
pub struct Thoughts(Option<LessSafeKey>);

impl Thoughts {
    pub fn new(accounts: &Accounts, account: AccountId) -> Self {
        let secret = accounts.derived_secret(&format!("sealed thoughts of {}", account.0));
        Self(
            UnboundKey::new(&CHACHA20_POLY1305, &secret)
                .ok()
                .map(LessSafeKey::new),
        )
    }
}

impl Sealer for Thoughts {
    fn seal(&self, thinking: &str) -> String {
        let mut nonce = [0; NONCE_LEN];
        let Some(key) = &self.0 else {
            return String::new();
        };
        let mut sealed = thinking.as_bytes().to_vec();
        let is_sealed = SystemRandom::new().fill(&mut nonce).is_ok()
            && key
                .seal_in_place_append_tag(
                    Nonce::assume_unique_for_key(nonce),
                    Aad::empty(),
                    &mut sealed,
                )
                .is_ok();
        match is_sealed {
            true => STANDARD.encode([&nonce, sealed.as_slice()].concat()),
            false => String::new(),
        }
    }

    fn open(&self, sealed: &str) -> Option<String> {
        let bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut opened = sealed.to_vec();
        let key = self.0.as_ref()?;
        let text = key.open_in_place(nonce, Aad::empty(), &mut opened).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}
