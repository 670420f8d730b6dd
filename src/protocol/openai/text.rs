//! JSON strings written straight into a buffer: most of the cost of a relayed token.

use bytes::{BufMut, BytesMut};

/// Appends `text` as the inside of a JSON string, without the quotes.
pub fn put_escaped(text: &str, out: &mut BytesMut) {
    let bytes = text.as_bytes();
    let mut done = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.put_slice(&bytes[done..at]);
        put_escape(byte, out);
        done = at + 1;
    }
    out.put_slice(&bytes[done..]);
}

/// Appends `text` as a JSON string.
pub fn put_string(text: &str, out: &mut BytesMut) {
    out.put_u8(b'"');
    put_escaped(text, out);
    out.put_u8(b'"');
}

fn put_escape(byte: u8, out: &mut BytesMut) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            out.put_slice(b"\\u00");
            out.put_u8(HEX[usize::from(byte >> 4)]);
            out.put_u8(HEX[usize::from(byte & 15)]);
            return;
        }
    };
    out.put_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::put_string;

    proptest! {
        #[test]
        fn a_string_is_read_back_as_it_was(text in any::<String>()) {
            let mut out = BytesMut::new();
            put_string(&text, &mut out);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        let mut out = BytesMut::new();
        put_string("a\"\\\n\u{1}\u{1f}ä", &mut out);
        assert_eq!(&out[..], r#""a\"\\\n\u0001\u001fä""#.as_bytes());
    }
}
