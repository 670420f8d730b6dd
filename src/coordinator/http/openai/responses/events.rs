//! Events of a background response, from any number on: past ones, and then new ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::http::reply::{EVENTS, streamed};
use crate::responses::{LiveResponse, LostEvents};
use muster_protocol::job::FailureKind;

/// A reader of one response's events.
struct EventReader {
    live: Arc<LiveResponse>,
    changes: watch::Receiver<()>,
    /// The number of its next event.
    next: usize,
    heartbeat: Duration,
    stopping: CancellationToken,
    has_ended: bool,
}

pub fn follow(
    live: Arc<LiveResponse>,
    next: usize,
    (heartbeat, stopping): (Duration, CancellationToken),
) -> Result<Response, ApiError> {
    if live.events_from(next).is_err() {
        return Err(lost());
    }
    let reader = EventReader {
        changes: live.changes(),
        live,
        next,
        heartbeat,
        stopping,
        has_ended: false,
    };
    let frames = unfold(reader, |mut reader| async move {
        let frame = reader.frame().await?;
        Some((Ok::<_, Infallible>(frame), reader))
    });
    Ok(streamed(Body::from_stream(frames), EVENTS))
}

pub fn lost() -> ApiError {
    let message = "the events of this response are not known: only background responses can be streamed again, for \
                   ten minutes after their end; read the response without stream";
    ApiError::new(FailureKind::InvalidRequest, message)
}

impl EventReader {
    /// All new events, or a keep-alive. `None` at the end.
    async fn frame(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        loop {
            self.changes.mark_unchanged();
            let Ok((events, is_ended)) = self.live.events_from(self.next) else {
                return self.end_with(LostEvents);
            };
            self.has_ended = is_ended;
            if !events.is_empty() {
                self.next += events.len();
                let mut frame = BytesMut::new();
                for event in &events {
                    frame.extend_from_slice(event);
                }
                return Some(frame.freeze());
            }
            if is_ended {
                return None;
            }
            let change = timeout(self.heartbeat, self.changes.changed());
            match self.stopping.run_until_cancelled(change).await {
                Some(Ok(_)) => {}
                Some(Err(_)) => return Some(Bytes::from_static(b": keep-alive\n\n")),
                // The response starts again after the restart.
                None => return None,
            }
        }
    }

    fn end_with(&mut self, _: LostEvents) -> Option<Bytes> {
        self.has_ended = true;
        let error = lost();
        let message = &error.failure.message;
        let event = json!({"type": "error", "code": error.failure.code(), "message": message, "param": null});
        Some(format!("event: error\ndata: {event}\n\n").into())
    }
}
