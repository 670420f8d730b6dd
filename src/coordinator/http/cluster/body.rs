//! Bodies between two nodes: request bodies, which are recovered if nothing of them was read, and response bodies,
//! which
//! end with their leader.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

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

/// A response of the leader. Ends with an error when another coordinator leads, since a suspended leader would leave
/// the
/// client waiting.
pub struct LeaderBody {
    body: Incoming,
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
}

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
        }
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
            return Poll::Ready(frame.map(|frame| Ok(frame?)));
        }
        let gone = self.gone.as_mut();
        std::task::ready!(Future::poll(gone, context));
        Poll::Ready(Some(Err(BodyError::LeaderGone)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
