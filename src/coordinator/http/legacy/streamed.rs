//! The status of a text request as server-sent events, for clients that ask for `text/event-stream`: an extension of
//! the AI Horde API. `status` events hold the reply of the plain route: first, at least with every heartbeat, and last.
//! Between them, `token` events hold `{"index", "text"}`: new text of one output. The last `status` is authoritative,
//! because the client's own post-processing is applied there. If the memory budget is exhausted, the stream ends or
//! does not begin, and the client may retry.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures_util::stream::{self, StreamExt, TryStreamExt, try_unfold};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::progress;
use super::text::look;
use crate::error::ApiError;
use crate::http::reply;
use crate::http::room::Memory;
use crate::requests::Request;
use crate::storage::Store;
use crate::switchboard::Switchboard;

const EVENTS: &str = "text/event-stream";

/// The request and services from which the status is built.
pub struct Source {
    pub request: Arc<Request>,
    pub board: Switchboard,
    pub store: Store,
    /// Budget for the events' bodies.
    pub memory: Memory,
}

/// A client of the stream.
struct Listener {
    source: Source,
    news: watch::Receiver<u64>,
    /// Bytes sent of each output.
    told: Vec<usize>,
    is_new: bool,
    heartbeat: Duration,
    stopping: CancellationToken,
}

pub fn is_wanted(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).into_iter();
    let mut accepts = accepts.filter_map(|value| value.to_str().ok());
    accepts.any(|value| value.contains(EVENTS))
}

pub async fn open(
    source: Source,
    heartbeat: Duration,
    stopping: CancellationToken,
) -> Result<Response, ApiError> {
    let listener = Listener {
        news: source.request.news(),
        told: vec![0; source.request.outputs.len()],
        is_new: true,
        source,
        heartbeat,
        stopping,
    };
    // Waits for the first part, so that an early refusal gets its own status.
    let (first, listener) = listener.next().await?.unzip();
    let others = try_unfold(listener.flatten(), |listener| async move {
        match listener {
            Some(listener) => listener.next().await,
            None => Ok(None),
        }
    });
    let told = stream::iter(first.map(Ok)).chain(others);
    let told = told.map_ok(Body::into_data_stream);
    let told = told.map_err(axum::Error::new).try_flatten();
    let mut response = Response::new(Body::from_stream(told));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

impl Listener {
    /// The next events, and the listener to go on with. `None` at shutdown: the client retries.
    async fn next(mut self) -> Result<Option<(Body, Option<Self>)>, ApiError> {
        loop {
            let is_done = progress::is_done(self.source.request.counts(), &self.source.request);
            let mut out = self.tokens();
            if is_done {
                out.push_str(&self.status().await);
                return Ok(Some((self.body(out)?, None)));
            }
            // The queue position needs a query to dispatch, so it is not sent with each token.
            if self.is_new {
                self.is_new = false;
                out.insert_str(0, &self.status().await);
            }
            if !out.is_empty() {
                return Ok(Some((self.body(out)?, Some(self))));
            }
            let stopping = self.stopping.clone();
            let news = timeout(self.heartbeat, self.news.changed());
            let Some(news) = stopping.run_until_cancelled(news).await else {
                return Ok(None);
            };
            self.is_new = news.is_err();
        }
    }

    fn body(&self, text: String) -> Result<Body, ApiError> {
        let mut room = self.source.memory.room_to_tell();
        room.cover(text.len())?;
        Ok(reply::body_in(room, text.into()))
    }

    async fn status(&self) -> String {
        let Source {
            request,
            board,
            store,
            ..
        } = &self.source;
        let status = look(request, board, store).await;
        event("status", &json!(status))
    }

    fn tokens(&mut self) -> String {
        let mut out = String::new();
        let outputs = self.source.request.outputs.iter();
        for ((index, output), told) in outputs.enumerate().zip(&mut self.told) {
            let product = output.product();
            let Some(more) = product.text().get(*told..).filter(|more| !more.is_empty()) else {
                continue;
            };
            *told += more.len();
            out.push_str(&event("token", &json!({"index": index, "text": more})));
        }
        out
    }
}

fn event(name: &str, data: &serde_json::Value) -> String {
    let mut event = String::new();
    // Writing to a string does not fail.
    let _ = write!(event, "event: {name}\ndata: {data}\n\n");
    event
}
