//! Images in base64, alone or as a `data:` URL.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;

use super::PictureError;

/// With or without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Decodes base64; long texts are refused before.
pub fn from_base64(text: &str, most: usize) -> Result<Vec<u8>, PictureError> {
    let text = without_prefix(text.trim())?;
    // Four characters per three bytes, with line breaks allowed.
    if text.len() / 4 > most / 3 + most / 64 {
        return Err(PictureError::TooLarge { most });
    }
    let letters = match text.bytes().any(|byte| byte.is_ascii_whitespace()) {
        false => Cow::Borrowed(text.as_bytes()),
        true => {
            let letters = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
            Cow::Owned(letters.collect())
        }
    };
    let bytes = LENIENT
        .decode(&*letters)
        .map_err(|_| PictureError::NotBase64)?;
    match bytes.len() {
        0 => Err(PictureError::NotBase64),
        length if length > most => Err(PictureError::TooLarge { most }),
        _ => Ok(bytes),
    }
}

pub fn to_base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// The part after the comma of `data:image/png;base64,…`.
fn without_prefix(text: &str) -> Result<&str, PictureError> {
    let Some(head) = text.get(..5) else {
        return Ok(text);
    };
    if !head.eq_ignore_ascii_case("data:") {
        return Ok(text);
    }
    let (kind, data) = text.split_once(',').ok_or(PictureError::NotBase64)?;
    match kind.to_ascii_lowercase().ends_with(";base64") {
        true => Ok(data),
        false => Err(PictureError::NotBase64),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{PictureError, from_base64, to_base64};

    #[test]
    fn a_text_is_read_as_clients_write_it() {
        for text in [
            "aGVsbG8=",
            "aGVsbG8",
            " aGVs\r\nbG8=\n",
            "data:image/png;base64,aGVsbG8=",
            "DATA:image/webp;charset=x;BASE64,aGVsbG8",
        ] {
            assert_eq!(from_base64(text, 100).unwrap(), b"hello", "{text}");
        }
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in [
            "",
            "   ",
            "data:",
            "data:image/png;base64,",
            "data:image/png,hello",
            "hello!",
            "aGVsbG8=aGVsbG8=",
            "é",
            "<svg/>",
        ] {
            let refused = from_base64(text, 100);
            assert_eq!(refused, Err(PictureError::NotBase64), "{text}");
        }
    }

    #[test]
    fn a_text_of_too_many_bytes_is_refused() {
        let text = to_base64(&[0; 101]);
        let refused = from_base64(&text, 100);
        assert_eq!(refused, Err(PictureError::TooLarge { most: 100 }));
        assert!(from_base64(&to_base64(&[0; 100]), 100).is_ok());
        let long = "A".repeat(1 << 20);
        assert!(matches!(
            from_base64(&long, 100),
            Err(PictureError::TooLarge { .. })
        ));
    }

    proptest! {
        #[test]
        fn every_text_is_read_or_refused(text in "\\PC{0,60}|data:[a-z/;,=]{0,30}") {
            let _ = from_base64(&text, 20);
        }

        #[test]
        fn bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
            prop_assert_eq!(from_base64(&to_base64(&bytes), 200), Ok(bytes));
        }
    }
}
