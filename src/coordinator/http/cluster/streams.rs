//! Streamed texts through this node. The leader sends a journal with them; when the leader is lost, the next one gets
//! the request again with the journal, and the client's stream goes on without a gap or a repetition.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
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

use super::body::{BodyError, MOST_KEPT};
use super::{AGAIN, Node, NodeRole, peer};
use crate::http::headers::NOT_LEADING;
use crate::http::journal::{
    CONTINUES, FrameReader, JOURNAL, Journal, JournaledRequest, MOST_JOURNAL, REPEATS,
};
use crate::http::serve::PeerAddress;
use crate::leadership::Epoch;
use muster_protocol::job::RequestId;

/// A request whose reply may outlast its leader.
#[derive(Debug)]
pub struct KeptRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    client: IpAddr,
    journaled: JournaledRequest,
    /// The leader that has it.
    leader: Epoch,
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

/// Routes whose requests are repeated after a loss of the leader that had them.
const TEXTS: [&str; 5] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/api/chat",
    "/api/generate",
];
/// Limit of the journals of all replies.
const MOST_JOURNALS: usize = 256 << 20;
/// Frames in front of a client that reads slowly.
const FRAMES: usize = 4;
/// Timeout of an election, the start of the elected coordinator, and the return of the workers.
const CONTINUED: Duration = Duration::from_secs(30);

/// Marks a request for a text, of which `copy` is the body: its reply may outlast its leader.
pub fn mark(request: &mut Request, copy: Option<&Bytes>) {
    if copy.is_some() && may_stream(request) {
        let first = JournaledRequest::first();
        request.extensions_mut().insert(first);
    }
}

/// The request again, for another leader than the lost one that had it. `None` unless that can find out whether the lost
/// one has settled it. With an `Idempotency-Key`, the next leader answers with the reply that the lost one stored.
pub fn repeated(mut request: Request) -> Option<Request> {
    let is_text = TEXTS.contains(&request.uri().path());
    let journaled = request.extensions_mut().get_mut::<JournaledRequest>();
    journaled.filter(|_| is_text)?.is_repeated = true;
    Some(request)
}

/// A copy of a marked request that the leader gets.
pub fn keep(request: &Request, copy: Option<&Bytes>, leader: Epoch) -> Option<KeptRequest> {
    let journaled = request.extensions().get::<JournaledRequest>()?;
    Some(KeptRequest {
        method: request.method().clone(),
        uri: request.uri().clone(),
        headers: request.headers().clone(),
        body: copy?.clone(),
        client: peer(request),
        journaled: journaled.clone(),
        leader,
    })
}

/// The headers by which a leader knows of the mark.
pub fn write_mark(request: &mut Request) {
    let Some(journaled) = request.extensions().get::<JournaledRequest>().cloned() else {
        return;
    };
    let headers = request.headers_mut();
    let id = journaled.id.map_or("1".to_owned(), |id| id.to_string());
    if let Ok(id) = HeaderValue::try_from(id) {
        headers.insert(JOURNAL, id);
    }
    if journaled.is_repeated {
        headers.insert(REPEATS, HeaderValue::from_static("1"));
    }
}

fn may_stream(request: &Request) -> bool {
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    let is_form = kind.is_some_and(|kind| kind.starts_with("multipart/"));
    request.method() == Method::POST && !is_form
}

/// The request of another node, with its headers about a journal as an extension. `None` if the journal cannot be
/// read.
pub async fn opened(mut request: Request) -> Option<Request> {
    let headers = request.headers_mut();
    let (asks, continues) = (headers.remove(JOURNAL), headers.remove(CONTINUES));
    let is_repeated = headers.remove(REPEATS).is_some();
    let Some(length) = continues else {
        if let Some(id) = asks {
            let id = id.to_str().ok().and_then(|id| id.parse().ok());
            let journaled = JournaledRequest {
                id: id.map(RequestId),
                is_repeated,
                continues: None,
            };
            request.extensions_mut().insert(journaled);
        }
        return Some(request);
    };
    let length: usize = length.to_str().ok()?.parse().ok()?;
    let (mut parts, body) = request.into_parts();
    let mut journal = to_bytes(body, MOST_JOURNAL + MOST_KEPT).await.ok()?;
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
    Some(JournaledRequest::continuing(journal))
}

impl Node {
    /// Runs a client's request at this node, which leads. A text goes through this node like one of another leader, so
    /// that its reply can go on elsewhere. `Err` with the request if this node hands over.
    pub(super) async fn run(
        &self,
        (epoch, router): (Epoch, Router),
        request: Request,
        copy: Option<&Bytes>,
    ) -> Result<Response, Box<Request>> {
        let kept = keep(&request, copy, epoch);
        let response = router.oneshot(request).await;
        let mut response = response.unwrap_or_else(|never| match never {});
        let is_returned = response.headers_mut().remove(NOT_LEADING).is_some();
        match kept {
            Some(kept) if is_returned && !self.leads() => Err(Box::new(kept.request())),
            kept => Ok(self.pass_on(response, kept)),
        }
    }

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
        let (node, working) = (self.clone(), self.working());
        self.0.tasks.start(async move {
            node.carry(body, kept, passage).await;
            drop(working);
        });
        let frames = unfold(frames, |mut frames| async {
            let frame = frames.recv().await?;
            Some((frame, frames))
        });
        Response::from_parts(parts, Body::from_stream(frames))
    }

    async fn carry(self, mut body: Body, mut kept: KeptRequest, mut passage: Passage) {
        loop {
            match passage.read(body).await {
                BodyEnd::Whole | BodyEnd::Unwanted => return,
                BodyEnd::Lost => {}
            }
            passage.reader = FrameReader::default();
            let next = tokio::select! {
                next = self.continuation(&kept, &passage.journal) => next,
                () = passage.client.closed() => return,
            };
            let Some(next) = next else {
                let _ = passage.client.send(Err(BodyError::LeaderGone)).await;
                return;
            };
            self.0.continued.fetch_add(1, Ordering::Relaxed);
            (kept.leader, body) = next;
        }
    }

    /// The rest of the reply from the next leader, which may be this node; all of it, if the client has nothing so far.
    async fn continuation(
        &self,
        kept: &KeptRequest,
        journal: &KeptJournal,
    ) -> Option<(Epoch, Body)> {
        let journal = journal.whole()?;
        let deadline = Instant::now() + CONTINUED;
        let mut role = self.0.role.subscribe();
        loop {
            let now = role.borrow_and_update().clone();
            let (leader, response) = match now {
                NodeRole::Leading(leadership, router) => {
                    let mut request = kept.request();
                    if journal.is_empty() {
                        request = repeated(request)?;
                    } else {
                        request.extensions_mut().insert(continued(journal)?);
                    }
                    let response = router.oneshot(request).await;
                    let response = response.unwrap_or_else(|never| match never {});
                    let is_returned = response.headers().contains_key(NOT_LEADING);
                    (leadership.epoch(), (!is_returned).then_some(response))
                }
                // The leader may still run the request.
                NodeRole::Following(leader)
                    if journal.is_empty() && leader.epoch == kept.leader =>
                {
                    (leader.epoch, None)
                }
                NodeRole::Following(leader) => {
                    let mut request = match journal.is_empty() {
                        true => repeated(kept.request())?,
                        false => kept.behind(journal),
                    };
                    write_mark(&mut request);
                    let signed = self.0.signer.sign(kept.client, &request);
                    // Lost again, or not yet known to be: the next try finds out.
                    let sent = self.0.forwarder.forward(&leader, signed, request, None);
                    (leader.epoch, sent.await.ok())
                }
                NodeRole::Waiting => (kept.leader, None),
            };
            match response {
                Some(response) if is_continued(&response) => {
                    info!("a stream through this node goes on at the next leading coordinator");
                    return Some((leader, response.into_body()));
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
    fn request(&self) -> Request {
        self.with_body(self.body.clone())
    }

    /// Behind the journal of the reply to continue.
    fn behind(&self, journal: &[u8]) -> Request {
        let body = [journal, self.body.as_ref()].concat();
        let length = body.len();
        let mut request = self.with_body(body.into());
        let headers = request.headers_mut();
        headers.insert(CONTENT_LENGTH, length.into());
        headers.insert(CONTINUES, journal.len().into());
        request
    }

    fn with_body(&self, body: Bytes) -> Request {
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let extensions = request.extensions_mut();
        extensions.insert(PeerAddress(self.client));
        extensions.insert(self.journaled.clone());
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

    /// `None` if it was dropped.
    fn whole(&self) -> Option<&[u8]> {
        (!self.is_dropped).then_some(&self.bytes)
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
