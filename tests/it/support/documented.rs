//! Every reply that a test receives is checked against `/openapi.json`: its status, content type, stable code and body.

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use muster::coordinator::http::{DEVELOPMENT, ROUTES, Route};
use serde_json::Value;
use tokio::sync::OnceCell;
use tower::ServiceExt;

use super::contract::misfits;

/// The document of a coordinator in development mode, which has every route.
static DOCUMENT: OnceCell<Value> = OnceCell::const_new();

/// The reply that one request may have.
#[derive(Debug)]
pub struct Expected {
    place: String,
    operation: &'static Value,
    /// `X-Fields` leaves out fields that the schema requires.
    is_masked: bool,
}

impl Expected {
    /// None for paths that are no route, and for other methods.
    pub async fn of(request: &Request<Body>) -> Option<Self> {
        let (method, path) = (request.method(), request.uri().path());
        let route = route(method, path)?;
        let document = DOCUMENT.get_or_init(document).await;
        let documented = route.path.replace("{*", "{");
        let operation = &document["paths"][documented][route.method.to_lowercase()];
        assert!(operation.is_object(), "{method} {path} is not documented");
        Some(Self {
            place: format!("{method} {path}"),
            operation,
            is_masked: request.headers().contains_key("x-fields"),
        })
    }

    /// The documented response. `None` if a check precedes the handler of a route that is not implemented, and if the
    /// routes of development mode do not exist.
    fn response(&self, status: StatusCode) -> Option<&'static Value> {
        let is_refused = status.is_client_error();
        let is_unbuilt = self.operation["x-not-implemented"] == true;
        let is_missing = status == StatusCode::NOT_FOUND && self.place.contains("/api/v2/dev/");
        if (is_unbuilt && is_refused) || is_missing {
            return None;
        }
        let response = &self.operation["responses"][status.as_str()];
        let place = &self.place;
        assert!(response.is_object(), "{place}: {status} is not documented");
        Some(response)
    }

    pub fn check_head(&self, status: StatusCode, headers: &HeaderMap) {
        let Some(response) = self.response(status) else {
            return;
        };
        let Some(contents) = response["content"].as_object() else {
            return;
        };
        let kind = content_type(headers);
        assert!(
            contents.contains_key(&kind),
            "{}: {status} with the content type {kind} is not documented",
            self.place
        );
    }

    pub fn check_body(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) {
        let Some(response) = self.response(status) else {
            return;
        };
        if headers.contains_key("content-encoding") {
            return;
        }
        let kind = content_type(headers);
        let schema = &response["content"][&kind]["schema"];
        match kind.as_str() {
            "application/json" if !schema.is_null() => {
                let body = serde_json::from_slice(body).unwrap();
                self.check_code(status, response, &body);
                if !self.is_masked {
                    self.check_value(status, schema, &body);
                }
            }
            "text/event-stream" => {
                let text = String::from_utf8_lossy(body);
                let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
                // The last one may be cut off.
                let values = data.filter_map(|data| serde_json::from_str(data).ok());
                values.for_each(|value| self.check_value(status, schema, &value));
            }
            _ => {}
        }
    }

    fn check_code(&self, status: StatusCode, response: &Value, body: &Value) {
        if status.as_u16() < 400 {
            return;
        }
        let code = body["rc"]
            .as_str()
            .or_else(|| body["error"]["code"].as_str());
        let Some(code) = code else {
            return;
        };
        let codes = response["x-codes"].as_array().into_iter().flatten();
        assert!(
            codes.into_iter().any(|known| known == code),
            "{}: {code} is not documented for {status}",
            self.place
        );
    }

    fn check_value(&self, status: StatusCode, schema: &Value, value: &Value) {
        let document = DOCUMENT.get().unwrap();
        let wrong = misfits(document, schema, value);
        assert!(
            wrong.is_empty(),
            "{} {status}: {wrong:?} in {value}",
            self.place
        );
    }
}

async fn document() -> Value {
    let app = Box::pin(super::app::App::with_development()).await;
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let answer = app.router.clone().oneshot(request).await.unwrap();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

/// The route with the most literal parts, as the router decides.
fn route(method: &Method, path: &str) -> Option<&'static Route> {
    let all = ROUTES.iter().chain(DEVELOPMENT);
    let fitting = all.filter(|route| route.method == method.as_str() && fits(route.path, path));
    fitting.min_by_key(|route| route.path.matches('{').count())
}

fn fits(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    for wanted in pattern.split('/') {
        let Some(found) = parts.next() else {
            return false;
        };
        if wanted.starts_with("{*") {
            return true;
        }
        if !wanted.starts_with('{') && wanted != found {
            return false;
        }
    }
    parts.next().is_none()
}

/// Without its parameters.
fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get("content-type");
    let value = value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let (kind, _) = value.split_once(';').unwrap_or((value, ""));
    kind.trim().to_owned()
}
