//! Pages for browsers. A content security policy allows only the inline scripts and styles of the page itself, so
//! injected content never runs.
//!
//! | file | page |
//! | --- | --- |
//! | `common.html` | the head of each page: styles, the key, requests |
//! | `tables.html` | tables, buttons and errors, for pages that list and change records |
//! | `home.html` | `/`: a form for every kind of generation |
//! | `console.html` | `/console`: models, workers, and the account of a key |
//! | `moderation.html` | `/moderation`: modes, filters, blocked addresses, workers, users |

use std::borrow::Cow;
use std::sync::LazyLock;

use axum::http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};

/// A page of these files.
macro_rules! page {
    ($($file:literal),+) => {
        LazyLock::new(|| Page::new(concat!($(include_str!($file)),+)))
    };
}

pub static HOME: LazyLock<Page> = page!("common.html", "home.html");
static CONSOLE: LazyLock<Page> = page!("common.html", "tables.html", "console.html");
static MODERATION: LazyLock<Page> = page!("common.html", "tables.html", "moderation.html");

/// `GET /console`
pub async fn console() -> &'static Page {
    &CONSOLE
}

/// `GET /moderation`. The page is public; everything that it reads needs the key of a moderator.
pub async fn moderation() -> &'static Page {
    &MODERATION
}

#[derive(Debug)]
pub struct Page {
    html: Cow<'static, str>,
    policy: HeaderValue,
}

impl Page {
    pub fn new(html: impl Into<Cow<'static, str>>) -> Self {
        let html = html.into();
        // The policy contains only hashes and ASCII text.
        let policy = HeaderValue::try_from(muster_pages::policy(&html));
        let nothing = HeaderValue::from_static("default-src 'none'");
        Self {
            html,
            policy: policy.unwrap_or(nothing),
        }
    }
}

impl IntoResponse for &'static Page {
    fn into_response(self) -> Response {
        let text = HeaderValue::from_static;
        let headers: HeaderMap = [
            (CONTENT_TYPE, text("text/html; charset=utf-8")),
            (CONTENT_SECURITY_POLICY, self.policy.clone()),
            (X_CONTENT_TYPE_OPTIONS, text("nosniff")),
            (REFERRER_POLICY, text("no-referrer")),
            (X_FRAME_OPTIONS, text("DENY")),
        ]
        .into_iter()
        .collect();
        (headers, &*self.html).into_response()
    }
}
