//! How a tool calls its route: within the coordinator, or over HTTP from another machine.

use std::future::Future;
use std::sync::Arc;

use http::request::Parts;
use serde_json::Value;

/// One call of a route.
#[derive(Debug, Clone)]
pub struct ApiRequest {
    pub method: http::Method,
    pub path: String,
    /// Sent as JSON.
    pub body: Option<Value>,
    /// The HTTP request that carried the call of the tool, where there was one: its key counts.
    pub caller: Option<Arc<Parts>>,
}

#[derive(Debug, Clone)]
pub struct ApiReply {
    pub status: http::StatusCode,
    pub content_type: String,
    pub body: Vec<u8>,
}

/// No reply came.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// Sends requests to the `/v1` API.
pub trait Api: Clone + Send + Sync + 'static {
    fn send(
        &self,
        request: ApiRequest,
    ) -> impl Future<Output = Result<ApiReply, Unreachable>> + Send;
}
