//! `Idempotency-Key` on generation routes: a repeated request with the same key gets the stored reply, for 24 hours.
//! The
//! `digest` of a request tells whether it is the same.
//!
//! Replies are stored in memory, and encrypted in the database for later processes. Streams and errors are not stored:
//! they
//! run again once the first request has ended. Beyond a limit of bytes the oldest replies are dropped from memory.
//!
//! A request with a key runs to its end even if its client disconnects: the client repeats it, and pays for one reply.
//!
//! | file | contents |
//! | --- | --- |
//! | `cache` | stored replies |
//! | `stored` | the same in the database |
//! | `bodies` | a stream that keeps its key |

mod bodies;
mod cache;
mod stored;

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::body::{self, Whole};
use super::digest::{DigestHead, DigestSlot};
use super::reply::Told;
use super::room::Memory;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::headers::{IGNORED_FIELDS, JOB_ID, SKIPPED_CHARACTERS, UNKNOWN_WORDS, VOICE};
use crate::state::LiveSettings;
use bodies::StreamBody;
pub use cache::LIFETIME as REPLIES_KEPT;
use cache::{ReplayKey, ReplyCache, Slot, StoredReply};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, FailureKind};
use stored::ClientKey;
pub use stored::ReplyStore;

pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const MAX_KEY: usize = 255;
/// Longer replies are not stored.
const MAX_REPLY_BYTES: usize = 1 << 20;
/// Headers of a reply that are part of it.
const KEPT_HEADERS: [HeaderName; 6] = [
    CONTENT_TYPE,
    JOB_ID,
    IGNORED_FIELDS,
    SKIPPED_CHARACTERS,
    UNKNOWN_WORDS,
    VOICE,
];

/// Requests with a key that run or have run.
#[derive(Debug)]
pub struct Replays {
    settings: LiveSettings,
    tasks: Tasks,
    memory: Memory,
    cache: Mutex<ReplyCache>,
    /// `None` if replies are stored in memory only.
    store: Option<ReplyStore>,
}

enum KeyState {
    New(RunningRequest),
    Running,
    Stored(Arc<StoredReply>),
}

/// The first request with a key. Dropped without a stored reply, the next one runs.
pub struct RunningRequest {
    replays: Arc<Replays>,
    key: ReplayKey,
    header: HeaderValue,
}

/// Middleware of generation routes, behind their guard.
pub async fn replay(
    State(replays): State<Arc<Replays>>,
    Admitted(caller): Admitted,
    request: Request,
    next: Next,
) -> Response {
    let Some(header) = request.headers().get(IDEMPOTENCY_KEY).cloned() else {
        return next.run(request).await;
    };
    let answer = match replay_key(caller.account, &header) {
        Ok(key) => match replays.begin(key, header) {
            KeyState::New(running) => match running.of_earlier_process().await {
                Some(stored) => return replays.again(&stored, request).await,
                None => return running.run_on(request, next).await,
            },
            KeyState::Stored(stored) => return replays.again(&stored, request).await,
            KeyState::Running => conflict(409, "a request with this Idempotency-Key is running"),
        },
        Err(error) => error,
    };
    // The body is read first, since a client that is still sending may miss an early reply.
    body::discard(request.into_body()).await;
    answer.into_response()
}

fn replay_key(account: AccountId, key: &HeaderValue) -> Result<ReplayKey, ApiError> {
    let is_sound = (1..=MAX_KEY).contains(&key.len());
    match is_sound {
        true => Ok((account, Sha256::digest(key.as_bytes()).into())),
        false => {
            let message = format!("Idempotency-Key must have 1 to {MAX_KEY} bytes");
            Err(ApiError::new(FailureKind::InvalidRequest, message))
        }
    }
}

impl Replays {
    pub fn new(
        settings: LiveSettings,
        tasks: Tasks,
        memory: Memory,
        store: Option<ReplyStore>,
    ) -> Self {
        Self {
            settings,
            tasks,
            memory,
            cache: Mutex::default(),
            store,
        }
    }

    fn begin(self: &Arc<Self>, key: ReplayKey, header: HeaderValue) -> KeyState {
        let mut cache = self.lock();
        cache.forget_old();
        match cache.slots.get(&key) {
            Some(Slot::Running) => KeyState::Running,
            Some(Slot::Stored(stored)) => KeyState::Stored(stored.clone()),
            None => {
                cache.slots.insert(key, Slot::Running);
                KeyState::New(RunningRequest {
                    replays: self.clone(),
                    key,
                    header,
                })
            }
        }
    }

    /// The stored reply, to the same request.
    async fn again(&self, stored: &StoredReply, request: Request) -> Response {
        let head = DigestHead::of(&request);
        let settings = self.settings.current();
        let whole = match Whole::of_account(request, &settings, &self.memory).await {
            Ok(whole) => whole,
            Err(error) => return error.into_response(),
        };
        match head.digest(&whole.bytes).await == stored.request {
            true => stored.response(),
            false => {
                let message = "this Idempotency-Key was used for another request: send a new key";
                conflict(422, message).into_response()
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReplyCache> {
        self.cache.lock()
    }
}

impl RunningRequest {
    /// The stored reply of an earlier process to the same key, now also in memory.
    async fn of_earlier_process(&self) -> Option<Arc<StoredReply>> {
        let store = self.replays.store.as_ref()?;
        let found = store
            .find(self.key, ClientKey(self.header.as_bytes()))
            .await?;
        let mut cache = self.replays.lock();
        cache.keep(self.key, found);
        match cache.slots.get(&self.key) {
            Some(Slot::Stored(stored)) => Some(stored.clone()),
            _ => None,
        }
    }

    /// In a task of its own: dropping this future ends a stream, and nothing else.
    async fn run_on(self, request: Request, next: Next) -> Response {
        let tasks = self.replays.tasks.clone();
        let running = tasks.start(self.run(request, next));
        running.await.unwrap_or_else(|_| {
            let message = "internal error: the request ended without a reply";
            ApiError::new(FailureKind::Internal, message).into_response()
        })
    }

    async fn run(self, mut request: Request, next: Next) -> Response {
        let slot = DigestSlot::new(DigestHead::of(&request));
        request.extensions_mut().insert(slot.clone());
        let response = next.run(request).await;
        if !response.status().is_success() {
            return response;
        }
        let size = response.body().size_hint().exact();
        if size.is_none() {
            return response.map(|body| {
                Body::new(StreamBody {
                    body,
                    _running: self,
                })
            });
        }
        match size.is_some_and(|size| size <= MAX_REPLY_BYTES as u64) {
            true => self.kept(response, &slot).await,
            false => response,
        }
    }

    async fn kept(self, response: Response, slot: &DigestSlot) -> Response {
        let Some(digest) = slot.get() else {
            return response;
        };
        let (mut parts, body) = response.into_parts();
        let Ok(collected) = body.collect().await else {
            let message = "internal error: reading the reply failed";
            return ApiError::new(FailureKind::Internal, message).into_response();
        };
        let body = collected.to_bytes();
        parts.extensions.remove::<Told>();
        let kept = KEPT_HEADERS.into_iter().filter_map(|name| {
            let value = parts.headers.get(&name)?.clone();
            Some((name, value))
        });
        let reply = StoredReply {
            request: digest,
            status: parts.status,
            headers: kept.collect(),
            body: body.clone(),
            at: Instant::now(),
        };
        if let Some(store) = &self.replays.store {
            let header = ClientKey(self.header.as_bytes());
            store.save(self.key, header, &reply).await;
        }
        self.replays.lock().keep(self.key, reply);
        Response::from_parts(parts, body.into())
    }
}

/// Only without a stored reply.
impl Drop for RunningRequest {
    fn drop(&mut self) {
        let mut cache = self.replays.lock();
        if let Some(Slot::Running) = cache.slots.get(&self.key) {
            cache.slots.remove(&self.key);
        }
    }
}

fn conflict(status: u16, message: &'static str) -> ApiError {
    ApiError::new(FailureKind::InvalidRequest, message).with_status(status)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::{HeaderMap, HeaderValue, StatusCode};
    use bytes::Bytes;
    use tokio::time::{Instant, advance};

    use super::cache::LIFETIME;
    use super::{KeyState, Memory, Replays, StoredReply};
    use crate::state::DoorSettings;
    use muster_process::tasks::Tasks;
    use muster_protocol::job::AccountId;

    fn replays() -> Arc<Replays> {
        let settings = DoorSettings::default();
        let memory = Memory::new(settings.largest_request, settings.standstill);
        Arc::new(Replays::new(
            settings.into(),
            Tasks::default(),
            memory,
            None,
        ))
    }

    fn reply() -> StoredReply {
        StoredReply {
            request: [0; 32],
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: Bytes::from("{}"),
            at: Instant::now(),
        }
    }

    fn is_new(state: &KeyState) -> bool {
        matches!(state, KeyState::New(_))
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_taken_while_its_request_runs_and_for_a_day_after_its_reply() {
        let (replays, key) = (replays(), (AccountId(1), [1; 32]));
        let begin = |key| replays.begin(key, HeaderValue::from_static("key"));
        let first = begin(key);
        assert!(is_new(&first));
        assert!(matches!(begin(key), KeyState::Running));
        assert!(is_new(&begin((AccountId(2), [1; 32]))));
        drop(first);
        let KeyState::New(second) = begin(key) else {
            panic!("the first request left no reply");
        };
        replays.lock().keep(key, reply());
        drop(second);
        assert!(matches!(begin(key), KeyState::Stored(_)));
        advance(LIFETIME).await;
        assert!(is_new(&begin(key)));
    }
}
