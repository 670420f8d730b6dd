//! The SHA-256 digest of a certificate, as people copy it: hexadecimal, in either case, with or without colons.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use super::raw::Raw;
use super::value::{Place, Value, quote};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub fn read(text: &str) -> Option<Self> {
        let digits = text.trim().replace(':', "");
        let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl Value for Fingerprint {
    fn wanted() -> String {
        "a SHA-256 fingerprint: 64 hexadecimal digits, with or without colons".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        raw.text().and_then(Self::read).ok_or_else(String::new)
    }

    fn show(&self) -> Option<String> {
        Some(quote(&self.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::Fingerprint;

    #[test]
    fn a_fingerprint_is_read_with_and_without_colons() {
        let plain = "0f".repeat(32);
        let colons = ["0F"; 32].join(":");
        let expected = Some(Fingerprint([15; 32]));
        assert_eq!(Fingerprint::read(&plain), expected);
        assert_eq!(Fingerprint::read(&colons), expected);
        assert_eq!(Fingerprint([15; 32]).to_string(), plain);
        for wrong in ["", "0f", &"0g".repeat(32), &"0f".repeat(33), &plain[1..]] {
            assert_eq!(Fingerprint::read(wrong), None, "{wrong}");
        }
    }
}
