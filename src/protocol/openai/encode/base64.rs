//! Bytes as base64 with padding (RFC 4648, section 4).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: impl IntoIterator<Item = u8>) -> String {
    let mut out = String::new();
    let (mut bits, mut held) = (0_u32, 0);
    for byte in bytes {
        (bits, held) = (bits << 8 | u32::from(byte), held + 8);
        while held >= 6 {
            held -= 6;
            out.push(letter(bits >> held));
        }
        bits &= (1 << held) - 1;
    }
    if held > 0 {
        out.push(letter(bits << (6 - held)));
    }
    while !out.len().is_multiple_of(4) {
        out.push('=');
    }
    out
}

fn letter(bits: u32) -> char {
    char::from(ALPHABET[(bits & 63) as usize])
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn bytes_are_encoded_as_the_standard_shows() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (text, wanted) in cases {
            assert_eq!(encode(text.bytes()), wanted);
        }
        assert_eq!(encode([0xff, 0xfe, 0xfd]), "//79");
    }
}
