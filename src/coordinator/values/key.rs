//! The format of keys, and the stored digest.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Row id of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub i64);

/// The text of a key. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(String);

/// The stored HMAC of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

/// Computes digests with the server secret.
#[derive(Clone)]
pub struct Hasher(Hmac<Sha256>);

/// Clients of the AI Horde API accept no other length.
const LENGTH: usize = 22;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Characters allowed first: a key must not look like a command-line option.
const PLAIN: u8 = 62;

impl KeyText {
    pub fn random() -> Self {
        let first = std::iter::repeat_with(|| random::<1>()[0] & 63).find(|letter| *letter < PLAIN);
        let letters = random::<{ LENGTH - 1 }>().map(|byte| byte & 63);
        let letters = first.into_iter().chain(letters);
        Self(
            letters
                .map(|letter| char::from(ALPHABET[usize::from(letter)]))
                .collect(),
        )
    }

    /// Parses an existing key.
    pub fn of(text: &str) -> Option<Self> {
        Self::is_well_formed(text).then(|| Self(text.to_owned()))
    }

    pub fn is_well_formed(text: &str) -> bool {
        text.len() == LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte))
    }

    /// Only for the reply that shows it to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Hasher {
    pub fn new(secret: &str) -> Self {
        Self::keyed(secret.as_bytes())
    }

    pub fn keyed(secret: &[u8]) -> Self {
        // HMAC accepts keys of any length.
        let mac = Hmac::new_from_slice(secret);
        Self(mac.expect("HMAC-SHA-256 accepts keys of any length"))
    }

    pub fn digest(&self, key: &str) -> Digest {
        let mac = self.0.clone().chain_update(key.as_bytes());
        Digest(mac.finalize().into_bytes().into())
    }
}

impl Digest {
    /// Matches no key.
    pub const NONE: Self = Self([0; 32]);

    pub const fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// Parses the stored form.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }
}

/// 256 random bits.
pub fn random_secret() -> String {
    HEXLOWER.encode(&random::<32>())
}

/// The public id of a key.
pub fn random_public_id() -> String {
    HEXLOWER.encode(&random::<6>())
}

/// From the operating system. Panics if that fails, since nothing here would be safe without it.
pub fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
    bytes
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(hidden)")
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher(hidden)")
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::{Hasher, KeyText};

    #[test]
    fn keys_are_22_characters_that_need_no_escaping() {
        for _ in 0..200 {
            let key = KeyText::random();
            assert!(KeyText::is_well_formed(key.expose()), "{}", key.expose());
            assert!(
                key.expose()
                    .starts_with(|first: char| first.is_ascii_alphanumeric())
            );
        }
        assert_ne!(KeyText::random(), KeyText::random());
        assert!(!KeyText::is_well_formed("0000000000"));
        assert!(!KeyText::is_well_formed("aaaaaaaaaaaaaaaaaaaa=="));
    }

    #[test]
    fn a_digest_is_hmac_sha_256() {
        // RFC 4231, test case 2.
        let digest = Hasher::new("Jefe").digest("what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(digest.to_string(), expected);
    }

    #[test]
    fn nothing_shows_a_key_by_accident() {
        let key = KeyText::random();
        assert!(!format!("{key:?}").contains(key.expose()));
    }
}
