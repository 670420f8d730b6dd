//! Join tokens: everything that a worker needs to join one coordinator, in one word to copy and paste. A token contains
//! a key, so it is as secret as the key.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::section::Section;

/// Includes the version, to distinguish later formats.
const PREFIX: &str = "muster-join-1.";

/// Invisible characters, and those that change the text direction.
const HIDDEN: [std::ops::RangeInclusive<char>; 4] = [
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{feff}'..='\u{feff}',
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    pub url: String,
    pub key: String,
    /// The worker that the key is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Digest of a self-signed certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

impl Token {
    /// Whether a text is meant to be a token.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("muster-join-")
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some(coded) = text.strip_prefix(PREFIX) else {
            return Err(match Self::is_one(text) {
                true => "the join token needs a newer version: update this program".to_owned(),
                false => format!("a join token begins with {PREFIX}"),
            });
        };
        let damaged = || "the join token is incomplete or damaged: copy all of it".to_owned();
        let bytes = BASE64_URL_SAFE_NO_PAD
            .decode(coded)
            .map_err(|_| damaged())?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        match token.is_plain() {
            true => Ok(token),
            false => Err(
                "the join token holds control or invisible characters: ask the operator for a new one"
                    .to_owned(),
            ),
        }
    }

    /// Parts of a token are shown on terminals and written into files.
    fn is_plain(&self) -> bool {
        let parts = [
            Some(&self.url),
            Some(&self.key),
            self.name.as_ref(),
            self.certificate_sha256.as_ref(),
        ];
        let mut characters = parts.into_iter().flatten().flat_map(|part| part.chars());
        !characters.any(|one| one.is_control() || HIDDEN.iter().any(|range| range.contains(&one)))
    }

    /// Only coordinators make tokens.
    #[cfg(any(test, feature = "coordinator"))]
    pub fn text(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(json))
    }
}

impl From<Token> for Section {
    fn from(token: Token) -> Self {
        Self {
            url: token.url,
            key: token.key,
            name: token.name,
            certificate_sha256: token.certificate_sha256,
            insecure: token.insecure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn a_token_with_characters_that_a_terminal_obeys_is_refused() {
        let token = |url: &str, name: &str| Token {
            url: url.to_owned(),
            key: "k".repeat(22),
            name: Some(name.to_owned()),
            certificate_sha256: None,
            insecure: false,
        };
        let url = "wss://host";
        assert!(Token::parse(&token(url, "attic").text()).is_ok());
        for (url, name) in [
            ("wss://host\njoined wss://other", "attic"),
            (url, "attic\u{1b}[2K"),
            (url, "cit\u{202e}ta"),
        ] {
            let refused = Token::parse(&token(url, name).text()).unwrap_err();
            assert!(refused.contains("control or invisible"), "{refused}");
        }
    }

    #[test]
    fn a_token_is_one_word_that_reads_back() {
        let token = Token {
            url: "https://192.168.1.5:7010".to_owned(),
            key: "k".repeat(22),
            name: Some("attic".to_owned()),
            certificate_sha256: Some("0f".repeat(32)),
            insecure: false,
        };
        let text = token.text();
        assert!(!text.contains(char::is_whitespace), "{text}");
        assert_eq!(Token::parse(&text), Ok(token));
        let cut = &text[..text.len() - 5];
        assert!(Token::parse(cut).unwrap_err().contains("copy all of it"));
        assert!(
            Token::parse("muster-join-2.AAAA")
                .unwrap_err()
                .contains("update")
        );
        assert!(
            Token::parse("wss://host")
                .unwrap_err()
                .contains("begins with")
        );
    }
}
