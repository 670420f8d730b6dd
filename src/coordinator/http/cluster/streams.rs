//! Streamed texts through this node. The leader sends a journal with them; when the leader is lost, the next one gets
//! the request again with the journal, and the client's stream goes on without a gap or a repetition.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tower::ServiceExt;
use tracing::{info, warn};

use super::body::BodyError;
use super::{AGAIN, Node, NodeRole};
use crate::http::address::PeerAddress;
use crate::http::idempotency::IDEMPOTENCY_KEY;
use crate::http::journal::{
    CONTINUES, FrameReader, JOURNAL, Journal, JournaledRequest, MOST_JOURNAL,
};

/// A request whose reply may outlast its leader.
#[derive(Debug)]
pub struct KeptRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    client: IpAddr,
}

/// How the body of a leader's reply ended.
enum BodyEnd {
    /// With the reply.
    Whole,
    /// The client disconnected.
    Unwanted,
    /// Without the leader.
    Lost,
}

/// The journal of one reply, within the limit of all replies of this node.
struct KeptJournal {
    bytes: Vec<u8>,
    /// The journal was too long: the reply ends with its leader.
    is_dropped: bool,
    /// Bytes of all journals.
    all: Arc<AtomicUsize>,
}

/// A reply on its way to the client.
struct Passage {
    reader: FrameReader,
    journal: KeptJournal,
    client: mpsc::Sender<Result<Bytes, BodyError>>,
}

/// Larger requests are not kept, so their streams end with their leader.
const MOST_KEPT: u64 = 256 << 10;
/// Limit of the journals of all replies.
const MOST_JOURNALS: usize = 256 << 20;
/// Frames in front of a client that reads slowly.
const FRAMES: usize = 4;
/// Timeout of an election, the start of the elected coordinator, and the return of the workers.
const CONTINUED: Duration = Duration::from_secs(30);

/// Reads the body of a request for a text, and asks for a journal. Any other request is returned as it is; `Err` if its
/// body broke off.
pub async fn keep(
    mut request: Request,
    client: IpAddr,
) -> Result<(Request, Option<KeptRequest>), axum::Error> {
    request.headers_mut().remove(JOURNAL);
    request.headers_mut().remove(CONTINUES);
    if !may_stream(&request) {
        return Ok((request, None));
    }
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let kept = KeptRequest {
        method: parts.method.clone(),
        uri: parts.uri.clone(),
        headers: parts.headers.clone(),
        body: body.clone(),
        client,
    };
    let yes = HeaderValue::from_static("1");
    parts.headers.insert(JOURNAL, yes);
    Ok((Request::from_parts(parts, Body::from(body)), Some(kept)))
}

/// A reply under an `Idempotency-Key` is stored by the leader, byte for byte.
fn may_stream(request: &Request) -> bool {
    let headers = request.headers();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let length = text(CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let is_form = text(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("multipart/"));
    request.method() == Method::POST
        && !is_form
        && length.is_some_and(|length: u64| (1..=MOST_KEPT).contains(&length))
        && !headers.contains_key(IDEMPOTENCY_KEY)
}

/// The request of another node, with its headers about a journal as an extension. `None` if the journal cannot be
/// read.
pub async fn opened(mut request: Request) -> Option<Request> {
    let headers = request.headers_mut();
    let (asks, continues) = (headers.remove(JOURNAL), headers.remove(CONTINUES));
    let Some(length) = continues else {
        if asks.is_some() {
            request.extensions_mut().insert(JournaledRequest::default());
        }
        return Some(request);
    };
    let length: usize = length.to_str().ok()?.parse().ok()?;
    let (mut parts, body) = request.into_parts();
    let most = MOST_JOURNAL.saturating_add(usize::try_from(MOST_KEPT).ok()?);
    let mut journal = to_bytes(body, most).await.ok()?;
    if journal.len() < length {
        return None;
    }
    let body = journal.split_off(length);
    parts.headers.insert(CONTENT_LENGTH, body.len().into());
    parts.extensions.insert(continued(&journal)?);
    Some(Request::from_parts(parts, Body::from(body)))
}

fn continued(journal: &[u8]) -> Option<JournaledRequest> {
    let journal = Journal::read(std::str::from_utf8(journal).ok()?)?;
    Some(JournaledRequest {
        continues: Some(Arc::new(journal)),
    })
}

impl Node {
    /// The reply for the client: as it came, or without its journal and able to go on elsewhere.
    pub(super) fn pass_on(&self, response: Response, kept: Option<KeptRequest>) -> Response {
        let (mut parts, body) = response.into_parts();
        let (Some(_), Some(kept)) = (parts.headers.remove(JOURNAL), kept) else {
            return Response::from_parts(parts, body);
        };
        let (client, frames) = mpsc::channel(FRAMES);
        let passage = Passage {
            reader: FrameReader::default(),
            journal: KeptJournal {
                bytes: Vec::new(),
                is_dropped: false,
                all: self.0.journals.clone(),
            },
            client,
        };
        let node = self.clone();
        self.0
            .tasks
            .start(async move { node.carry(body, kept, passage).await });
        let frames = unfold(frames, |mut frames| async {
            let frame = frames.recv().await?;
            Some((frame, frames))
        });
        Response::from_parts(parts, Body::from_stream(frames))
    }

    async fn carry(self, mut body: Body, kept: KeptRequest, mut passage: Passage) {
        loop {
            match passage.read(body).await {
                BodyEnd::Whole | BodyEnd::Unwanted => return,
                BodyEnd::Lost => {}
            }
            passage.reader = FrameReader::default();
            let next = tokio::select! {
                next = self.continuation(&kept, passage.journal.whole()) => next,
                () = passage.client.closed() => return,
            };
            let Some(next) = next else {
                let _ = passage.client.send(Err(BodyError::LeaderGone)).await;
                return;
            };
            self.0.continued.fetch_add(1, Ordering::Relaxed);
            body = next;
        }
    }

    /// The rest of the reply from the next leader, which may be this node.
    async fn continuation(&self, kept: &KeptRequest, journal: Option<&[u8]>) -> Option<Body> {
        let journal = journal?;
        let deadline = Instant::now() + CONTINUED;
        let mut role = self.0.role.subscribe();
        loop {
            let now = role.borrow_and_update().clone();
            let response = match now {
                NodeRole::Leading(_, router) => {
                    let mut request = kept.request(&[]);
                    request.extensions_mut().insert(continued(journal)?);
                    let response = router.oneshot(request).await;
                    Some(response.unwrap_or_else(|never| match never {}))
                }
                NodeRole::Following(leader) => {
                    let mut request = kept.request(journal);
                    let signed = self.0.signer.sign(kept.client, &request);
                    request
                        .headers_mut()
                        .insert(CONTINUES, journal.len().into());
                    // Lost again, or not yet known to be: the next try finds out.
                    self.0
                        .forwarder
                        .forward(&leader, signed, request)
                        .await
                        .ok()
                }
                NodeRole::Waiting => None,
            };
            match response {
                Some(response) if is_continued(&response) => {
                    info!("a stream through this node goes on at the next leading coordinator");
                    return Some(response.into_body());
                }
                Some(response) => {
                    let status = response.status();
                    warn!(
                        "a stream through this node ended with its leader: the next one answers {status}"
                    );
                    return None;
                }
                None => {}
            }
            tokio::select! {
                _ = role.changed() => {}
                () = sleep(AGAIN) => {}
                () = sleep_until(deadline) => return None,
            }
        }
    }
}

fn is_continued(response: &Response) -> bool {
    response.status() == StatusCode::OK && response.headers().contains_key(JOURNAL)
}

impl KeptRequest {
    /// The same request, behind a journal.
    fn request(&self, journal: &[u8]) -> Request {
        let body = [journal, self.body.as_ref()].concat();
        let length = body.len();
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(CONTENT_LENGTH, length.into());
        request.extensions_mut().insert(PeerAddress(self.client));
        request
    }
}

impl KeptJournal {
    fn add(&mut self, bytes: &[u8]) {
        if self.is_dropped {
            return;
        }
        let all = self.all.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > MOST_JOURNAL || all > MOST_JOURNALS {
            self.give_back();
            self.is_dropped = true;
        }
    }

    fn whole(&self) -> Option<&[u8]> {
        (!self.is_dropped && !self.bytes.is_empty()).then_some(&self.bytes)
    }

    fn give_back(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.all.fetch_sub(bytes.len(), Ordering::Relaxed);
    }
}

impl Drop for KeptJournal {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Passage {
    /// Passes on whole frames only, so that the client has exactly the output of the kept events.
    async fn read(&mut self, mut body: Body) -> BodyEnd {
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = self.client.closed() => return BodyEnd::Unwanted,
            };
            let bytes = match frame {
                None => return BodyEnd::Whole,
                Some(Err(_)) => return BodyEnd::Lost,
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            self.reader.push(&bytes);
            loop {
                match self.reader.frame() {
                    Ok(Some(frame)) => {
                        if self.client.send(Ok(frame.data)).await.is_err() {
                            return BodyEnd::Unwanted;
                        }
                        self.journal.add(&frame.journal);
                    }
                    Ok(None) => break,
                    Err(_) => return BodyEnd::Lost,
                }
            }
        }
    }
}
