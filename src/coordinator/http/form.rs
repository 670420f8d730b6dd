//! Bodies that are JSON or a form (`multipart/form-data`), as their content type says.

use std::convert::Infallible;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use futures_util::stream;
use multer::Multipart;
use serde_json::Value;

use super::body::Whole;
use super::generation::read_body;
use super::room::Room;
use crate::error::ApiError;
use muster_protocol::job::FailureKind;
use muster_protocol::openai::Problem;
use muster_protocol::openai::form::{FormBody, FormFile};
use muster_protocol::openai::nearest::shortened;

/// A form has no more parts than a request has fields.
const MOST_PARTS: usize = 100;
/// The body, and its parts.
const COPIES: usize = 2;

/// Parses a body by its route's reader, with the memory permit of the request until its reply.
pub async fn read_json_or_form<T: Send + 'static>(
    headers: &HeaderMap,
    whole: Whole,
    of_json: fn(Value) -> Result<T, Problem>,
    of_form: fn(FormBody) -> Result<T, Problem>,
) -> Result<(T, Room), ApiError> {
    let content_type = headers.get(CONTENT_TYPE);
    let content_type = content_type.map(|value| value.to_str().unwrap_or("?"));
    let Some(content_type) = content_type.filter(|one| !is_json(one)) else {
        return read_body(whole, of_json).await;
    };
    let boundary = multer::parse_boundary(content_type);
    let boundary = boundary.map_err(|_| unsupported(content_type))?;
    let room = whole.room.keep(whole.bytes.len().saturating_mul(COPIES))?;
    let form = read_form(whole.bytes, boundary).await?;
    Ok((of_form(form)?, room))
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

async fn read_form(bytes: Bytes, boundary: String) -> Result<FormBody, Problem> {
    let body = stream::once(async move { Ok::<_, Infallible>(bytes) });
    let mut parts = Multipart::new(body, boundary);
    let mut form = FormBody::default();
    while let Some(part) = parts.next_field().await.map_err(broken)? {
        if form.texts.len() + form.files.len() == MOST_PARTS {
            let message = format!("the form must have at most {MOST_PARTS} parts");
            return Err(Problem::malformed(message));
        }
        let name = part.name().map(str::to_owned);
        let name = name.ok_or_else(|| Problem::malformed("a part of the form has no name"))?;
        let is_file = part.file_name().is_some();
        let bytes = part.bytes().await.map_err(broken)?;
        if is_file {
            form.files.push(FormFile { name, bytes });
            continue;
        }
        let text = String::from_utf8(bytes.into()).map_err(|_| {
            let name = shortened(&name).to_owned();
            let message = format!("{name} is not valid UTF-8");
            Problem::invalid(name, message)
        })?;
        form.texts.push((name, text));
    }
    Ok(form)
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes the error")]
fn broken(error: multer::Error) -> Problem {
    Problem::malformed(format!(
        "the form is not valid multipart/form-data: {error}"
    ))
}

fn unsupported(content_type: &str) -> ApiError {
    let found = shortened(content_type);
    let message = format!(
        "the content type {found} is not supported: send application/json or multipart/form-data with a boundary"
    );
    ApiError::new(FailureKind::InvalidRequest, message).with_status(415)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::read_form;

    const FORM: &str = "--x\r\ncontent-disposition: form-data; name=\"prompt\"\r\n\r\na cat\r\n\
        --x\r\ncontent-disposition: form-data; name=\"image[]\"; filename=\"a.png\"\r\n\
        content-type: image/png\r\n\r\n\x01\x02\r\n--x--\r\n";

    async fn read(body: &[u8]) -> Result<super::FormBody, super::Problem> {
        read_form(Bytes::copy_from_slice(body), "x".to_owned()).await
    }

    #[tokio::test]
    async fn parts_are_texts_and_files() {
        let form = read(FORM.as_bytes()).await.unwrap();
        assert_eq!(form.texts, [("prompt".to_owned(), "a cat".to_owned())]);
        assert_eq!(form.files[0].field(), "image");
        assert_eq!(&form.files[0].bytes[..], b"\x01\x02");
    }

    #[tokio::test]
    async fn broken_forms_are_refused() {
        let nameless = FORM.replace("; name=\"prompt\"", "");
        for body in ["", "--x", &FORM[..80], &nameless] {
            assert!(read(body.as_bytes()).await.is_err(), "{body:?}");
        }
        let part = &FORM[..FORM
            .find("--x\r\ncontent-disposition: form-data; name=\"image")
            .unwrap()];
        let many = part.repeat(101) + "--x--\r\n";
        assert!(read(many.as_bytes()).await.is_err());
    }

    proptest! {
        #[test]
        fn fuzz_any_bytes_are_read_or_refused(
            cut in 0..FORM.len(),
            junk in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let body = [&FORM.as_bytes()[..cut], &junk, &FORM.as_bytes()[cut..]].concat();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = runtime.block_on(read(&body));
        }
    }
}
