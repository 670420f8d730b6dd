//! `POST /mcp`: the Model Context Protocol. A tool calls its route of this service with the caller's key, so that
//! permissions, limits, moderation and prices of the route apply.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, LazyLock};

use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN,
};
use axum::http::{Extensions, Uri};
use axum::response::Response;
use axum::{Router, body::Bytes};
use serde_json::value::RawValue;
use tower::ServiceExt;

use crate::error::ApiError;
use crate::state::DoorSettings;
use muster_mcp::{Api, ApiReply, ApiRequest, HttpService, McpServer, Unreachable, http_service};
use muster_protocol::job::FailureKind;

use super::body::Whole;
use super::openapi;
use super::room::Memory;
use super::serve::PeerAddress;

/// Headers that name the caller and its address.
const OF_CALLER: [HeaderName; 7] = [
    AUTHORIZATION,
    HOST,
    ORIGIN,
    HeaderName::from_static("apikey"),
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("client-agent"),
];

const BOTH_FORMS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The other routes of this service, as tools call them.
#[derive(Clone)]
struct OwnRoutes(Router);

/// Made at the first call: the schemas of its tools come from the OpenAPI document.
type LazyService =
    LazyLock<HttpService<OwnRoutes>, Box<dyn FnOnce() -> HttpService<OwnRoutes> + Send>>;

/// The tools of `POST /mcp`, and their routes.
#[derive(Clone)]
pub struct McpTools(Arc<LazyService>);

impl McpTools {
    pub fn new(routes: Router) -> Self {
        let make = move || {
            let server = McpServer::new(OwnRoutes(routes), openapi::document_of_service(), None);
            http_service(server)
        };
        Self(Arc::new(LazyLock::new(Box::new(make))))
    }
}

pub async fn serve(
    Extension(McpTools(service)): Extension<McpTools>,
    State(settings): State<Arc<DoorSettings>>,
    State(memory): State<Memory>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let Whole { bytes, room } = Whole::of_account(request, &settings, &memory).await?;
    if let Err(error) = serde_json::from_slice::<&RawValue>(&bytes) {
        let message = format!("the body is not JSON: {error}; send a message of JSON-RPC 2.0");
        return Err(ApiError::new(FailureKind::InvalidRequest, message));
    }
    parts.headers.insert(CONTENT_TYPE, JSON);
    // Small clients send none.
    parts.headers.insert(ACCEPT, BOTH_FORMS);
    // Held until the call has ended.
    parts.extensions.insert(Arc::new(room));
    let reply = service
        .handle(Request::from_parts(parts, Body::from(bytes)))
        .await;
    Ok(reply.map(Body::new))
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("McpTools")
    }
}

impl Api for OwnRoutes {
    async fn send(&self, request: ApiRequest) -> Result<ApiReply, Unreachable> {
        let unreachable = |error: &dyn fmt::Display| Unreachable(error.to_string());
        let uri: Uri = request.path.parse().map_err(|error| unreachable(&error))?;
        let mut inner = Request::new(match &request.body {
            Some(body) => Body::from(body.to_string()),
            None => Body::empty(),
        });
        *inner.method_mut() = request.method;
        *inner.uri_mut() = uri;
        if let Some(caller) = &request.caller {
            copy_caller(&caller.headers, &caller.extensions, &mut inner);
        }
        if request.body.is_some() {
            inner.headers_mut().insert(CONTENT_TYPE, JSON);
        }
        let reply: Result<Response, Infallible> = self.0.clone().oneshot(inner).await;
        let (parts, body) = match reply {
            Ok(reply) => reply.into_parts(),
            Err(never) => match never {},
        };
        // Routes bound their own reply bodies.
        let body: Bytes = to_bytes(body, usize::MAX)
            .await
            .map_err(|error| unreachable(&error))?;
        let kind = parts.headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok());
        Ok(ApiReply {
            status: parts.status,
            content_type: kind.unwrap_or_default().to_owned(),
            body: body.into(),
        })
    }
}

fn copy_caller(headers: &HeaderMap, extensions: &Extensions, inner: &mut Request) {
    for name in OF_CALLER {
        for value in headers.get_all(&name) {
            inner.headers_mut().append(name.clone(), value.clone());
        }
    }
    if let Some(peer) = extensions.get::<PeerAddress>() {
        inner.extensions_mut().insert(*peer);
    }
}
