//! The header that lists ignored fields of a request, if the operator allows ignoring them.

use axum::http::HeaderValue;
use axum::response::Response;

use crate::http::headers::IGNORED_FIELDS;
use muster_protocol::openai::nearest::shortened;

/// Lists the ignored fields.
pub fn with_ignored(response: &mut Response, names: &[String]) {
    if let Some(names) = ignored_header(names) {
        response.headers_mut().insert(IGNORED_FIELDS, names);
    }
}

fn ignored_header(names: &[String]) -> Option<HeaderValue> {
    const MOST: usize = 32;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b',';
    let shown = names.iter().take(MOST).map(|name| {
        let shown = shortened(name).bytes();
        shown.map(|byte| {
            if is_plain(byte) {
                char::from(byte)
            } else {
                '?'
            }
        })
    });
    let names: Vec<String> = shown.map(Iterator::collect).collect();
    (!names.is_empty()).then(|| HeaderValue::try_from(names.join(", ")).ok())?
}
