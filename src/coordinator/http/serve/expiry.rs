//! The expiry of a certificate: `notAfter` of its X.509 form (RFC 5280, section 4.1), which rustls does not expose.

use std::time::UNIX_EPOCH;

use muster_protocol::job::UnixMillis;

const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `None` if the bytes are no certificate.
pub fn expiry(certificate: &[u8]) -> Option<UnixMillis> {
    let certificate = element(certificate)?;
    let mut fields = element(certificate.content)?.content;
    let first = element(fields)?;
    if first.tag == EXPLICIT_VERSION {
        fields = first.rest;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields = element(fields)?.rest;
    }
    let validity = element(fields)?.content;
    let not_before = element(validity)?;
    let not_after = element(not_before.rest)?;
    moment(not_after.tag, std::str::from_utf8(not_after.content).ok()?)
}

/// A DER element, and the bytes after it.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

fn element(der: &[u8]) -> Option<Element<'_>> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match usize::from(first) {
        short @ 0..0x80 => (short, rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(long & 0x7f)?;
            // Four bytes are more than a certificate has.
            let bytes = Some(bytes).filter(|bytes| (1..=4).contains(&bytes.len()))?;
            let add = |sum: usize, byte: &u8| sum << 8 | usize::from(*byte);
            (bytes.iter().fold(0, add), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some(Element { tag, content, rest })
}

/// `YYMMDDHHMMSSZ` until 2049, `YYYYMMDDHHMMSSZ` from then on.
fn moment(tag: u8, text: &str) -> Option<UnixMillis> {
    let (century, text) = match tag {
        // A year below 50 is of this century.
        UTC_TIME if text < "5" => ("20", text),
        UTC_TIME => ("19", text),
        GENERALIZED_TIME => text.split_at_checked(2)?,
        _ => return None,
    };
    let part = |at: usize| text.get(2 * at..2 * at + 2);
    let [year, month, day, hour, minute, second] =
        [part(0)?, part(1)?, part(2)?, part(3)?, part(4)?, part(5)?];
    let text = format!("{century}{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    let moment = humantime::parse_rfc3339(&text).ok()?;
    let millis = moment.duration_since(UNIX_EPOCH).ok()?.as_millis();
    Some(UnixMillis(i64::try_from(millis).ok()?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::{UTC_TIME, expiry, moment};
    use muster_protocol::job::UnixMillis;

    fn of_fixture(name: &str) -> Option<UnixMillis> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let path = root.join("tests/fixtures/tls").join(name);
        expiry(&CertificateDer::from_pem_file(path).unwrap())
    }

    #[test]
    fn the_expiry_of_a_certificate_is_read_in_both_forms() {
        let seconds = |name| of_fixture(name).map(|expiry| expiry.0 / 1000);
        assert_eq!(seconds("certificate.pem"), Some(4_948_862_051));
        assert_eq!(seconds("expired-certificate.pem"), Some(1_709_294_400));
        assert_eq!(moment(UTC_TIME, "700101000001Z"), Some(UnixMillis(1000)));
    }

    #[test]
    fn broken_certificates_have_no_expiry() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let path = root.join("tests/fixtures/tls/certificate.pem");
        let whole = CertificateDer::from_pem_file(path).unwrap();
        for length in 0..100 {
            assert_eq!(expiry(&whole[..length]), None, "{length}");
        }
        assert_eq!(expiry(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(expiry(&[0x30, 0x80]), None);
        assert_eq!(moment(UTC_TIME, "7\u{e4}0101000001Z"), None);
    }
}
