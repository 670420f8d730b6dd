//! Bodies between two nodes: request bodies, which are recovered if they are small or nothing of them was read, and
//! response bodies, which end with their leader.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use bytes::{Bytes, BytesMut};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::http::body::{Broken, Patience};

/// Larger bodies are not kept: their requests are not repeated once a part was read, and their streams end with their
/// leader.
pub const MOST_KEPT: usize = 256 << 10;
/// Timeout of a piece of a small body.
const PIECE: Duration = Duration::from_secs(30);

/// Reads a body of known small length completely, and returns a copy, by which the request can be sent again.
pub async fn read_small(request: Request) -> Result<(Request, Option<Bytes>), Broken> {
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let Some(length @ 1..=MOST_KEPT) = length else {
        return Ok((request, None));
    };
    let (parts, mut body) = request.into_parts();
    let mut patience = Patience::new(PIECE);
    let mut read = BytesMut::new();
    while let Some(piece) = patience.next(&mut body).await? {
        read.reserve(length.saturating_sub(read.len()));
        read.extend_from_slice(&piece);
    }
    let read = read.freeze();
    let request = Request::from_parts(parts, Body::from(read.clone()));
    Ok((request, Some(read)))
}

/// A request body being sent to the leader.
#[derive(Debug)]
pub struct OutboundBody(Arc<Mutex<BodyState>>);

/// Recovers the body of an [`OutboundBody`].
#[derive(Debug)]
pub struct BodyRecovery(Arc<Mutex<BodyState>>);

#[derive(Debug)]
struct BodyState {
    body: Body,
    /// The whole body, if it is small.
    copy: Option<Bytes>,
    is_begun: bool,
}

/// A request body that can be sent again while unread, or always with a copy.
pub fn recoverable(body: Body, copy: Option<Bytes>) -> (OutboundBody, BodyRecovery) {
    let state = Arc::new(Mutex::new(BodyState {
        body,
        copy,
        is_begun: false,
    }));
    (OutboundBody(state.clone()), BodyRecovery(state))
}

impl BodyRecovery {
    /// `None` if a part of a large body was read.
    pub fn body(self) -> Option<Body> {
        let mut state = self.0.lock();
        match (state.copy.take(), state.is_begun) {
            (Some(copy), _) => Some(Body::from(copy)),
            (None, false) => Some(std::mem::take(&mut state.body)),
            (None, true) => None,
        }
    }
}

impl HttpBody for OutboundBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut state = self.0.lock();
        state.is_begun = true;
        Pin::new(&mut state.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.size_hint()
    }
}

/// A response of the leader. Once another coordinator leads, it ends with an error when no data arrives: a leader that
/// handed over sends the rest, and a suspended one would leave the client waiting.
pub struct LeaderBody {
    body: Incoming,
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Since another coordinator leads.
    silence: Option<Pin<Box<Sleep>>>,
}

/// Timeout of a piece of a response after the end of its leader.
pub const LAST_PIECE: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    #[error("the leading coordinator ended")]
    LeaderGone,
}

impl LeaderBody {
    pub fn new(body: Incoming, gone: CancellationToken) -> Self {
        Self {
            body,
            gone: Box::pin(gone.cancelled_owned()),
            silence: None,
        }
    }

    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.silence.is_none() {
            ready!(Future::poll(self.gone.as_mut(), context));
        }
        let silence = self
            .silence
            .get_or_insert_with(|| Box::pin(sleep(LAST_PIECE)));
        silence.as_mut().poll(context)
    }
}

impl HttpBody for LeaderBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.silence = None;
            return Poll::Ready(frame.map(|frame| Ok(frame?)));
        }
        ready!(self.poll_silence(context));
        Poll::Ready(Some(Err(BodyError::LeaderGone)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
