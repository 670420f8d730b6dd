//! The content security policy of a page whose styles and scripts are parts of it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

/// Allows the styles and scripts of this page, inline elements without attributes, by hash, and requests to the server that
/// sent it. Images and audio come only from replies that the scripts received.
pub fn policy(html: &str) -> String {
    format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; media-src 'self' blob:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hashes(html, "style"),
        hashes(html, "script"),
    )
}

/// CSP hashes of the contents of all `<name>` elements.
fn hashes(html: &str, name: &str) -> String {
    let (opening, closing) = (format!("<{name}>"), format!("</{name}>"));
    let bodies = html.split(opening.as_str()).skip(1);
    let hashes = bodies.filter_map(|rest| {
        let (body, _) = rest.split_once(closing.as_str())?;
        let hash = BASE64_STANDARD.encode(Sha256::digest(body));
        Some(format!("'sha256-{hash}'"))
    });
    match hashes.collect::<Vec<_>>().join(" ") {
        none if none.is_empty() => "'none'".to_owned(),
        hashes => hashes,
    }
}

#[cfg(test)]
mod tests {
    use super::hashes;

    #[test]
    fn scripts_and_styles_are_named_by_their_hashes() {
        // printf 'alert(1)' | openssl dgst -sha256 -binary | base64
        let one = "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='";
        let html = "<p>x</p><script>alert(1)</script><script>alert(1)</script>";
        assert_eq!(hashes(html, "script"), format!("{one} {one}"));
        assert_eq!(hashes(html, "style"), "'none'");
    }
}
