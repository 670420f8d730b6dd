//! Encryption of secrets that their owners can read again: sealed under a key derived from the server secret, and
//! looked up by a digest.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use uuid::Builder;

use muster_protocol::job::{SharedKeyId, SharedKeyText};

use super::key::{self, Hasher};

/// Clones share the keys.
#[derive(Clone)]
pub struct Seal {
    hasher: Hasher,
    key: Arc<LessSafeKey>,
}

/// The kind of a secret; a seal of one kind does not open as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealed {
    SharedKey,
    Passkey,
}

/// Version of the format.
const VERSION: &str = "v1.";

impl Sealed {
    fn purpose(self) -> &'static [u8] {
        match self {
            Self::SharedKey => b"shared key",
            Self::Passkey => b"passkey",
        }
    }
}

impl Seal {
    pub fn new(hasher: &Hasher) -> Self {
        let key = hasher.digest("seals of shared keys and passkeys").bytes();
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("the key has 32 bytes");
        Self {
            hasher: Hasher::keyed(&hasher.digest("numbers of shared keys").bytes()),
            key: Arc::new(LessSafeKey::new(key)),
        }
    }

    pub fn close(&self, what: Sealed, text: &str) -> String {
        let nonce: [u8; NONCE_LEN] = key::random();
        let mut sealed = text.as_bytes().to_vec();
        let with = Aad::from(what.purpose());
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        let closed = self
            .key
            .seal_in_place_append_tag(nonce_of, with, &mut sealed);
        closed.expect("AES-GCM encrypts a text of this length");
        let bytes = [nonce.as_slice(), &sealed].concat();
        format!("{VERSION}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// `None` if sealed under another secret.
    pub fn open(&self, what: Sealed, sealed: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(VERSION)?).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let with = Aad::from(what.purpose());
        let text = self.key.open_in_place(nonce, with, &mut sealed).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }

    /// Whether the text is sealed, under whatever secret.
    pub fn is_sealed(text: &str) -> bool {
        text.starts_with(VERSION)
    }

    /// The database id of a shared key.
    pub fn number_of(&self, key: SharedKeyText) -> SharedKeyId {
        let digest = self.hasher.digest(&key.expose().to_string()).bytes();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        SharedKeyId(Builder::from_custom_bytes(bytes).into_uuid())
    }

    pub fn close_key(&self, key: SharedKeyText) -> String {
        self.close(Sealed::SharedKey, &key.expose().to_string())
    }

    pub fn open_key(&self, sealed: &str) -> Option<SharedKeyText> {
        SharedKeyText::parse(&self.open(Sealed::SharedKey, sealed)?)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::key::Hasher;
    use super::{Seal, Sealed};
    use muster_protocol::job::SharedKeyText;

    #[test]
    fn a_seal_opens_under_its_secret_and_for_its_purpose_only() {
        let (seal, other) = (
            Seal::new(&Hasher::new("one")),
            Seal::new(&Hasher::new("other")),
        );
        let sealed = seal.close(Sealed::Passkey, "open sesame");
        assert!(Seal::is_sealed(&sealed) && !sealed.contains("sesame"));
        assert_ne!(sealed, seal.close(Sealed::Passkey, "open sesame"));
        let open = |seal: &Seal, what| seal.open(what, &sealed);
        assert_eq!(open(&seal, Sealed::Passkey).as_deref(), Some("open sesame"));
        assert_eq!(open(&seal, Sealed::SharedKey), None);
        assert_eq!(open(&other, Sealed::Passkey), None);
        for broken in ["", "v1.", "v1.AAAA", "v1.?", "open sesame", &sealed[..20]] {
            assert_eq!(seal.open(Sealed::Passkey, broken), None, "{broken}");
        }
    }

    #[test]
    fn a_shared_key_has_one_number_under_one_secret() {
        let number = |secret| {
            Seal::new(&Hasher::new(secret)).number_of(SharedKeyText::new(Uuid::from_u128(7)))
        };
        assert_eq!(number("one"), number("one"));
        assert_ne!(number("one"), number("other"));
    }
}
