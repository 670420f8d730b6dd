//! Stored replies, bounded by bytes and by age.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use tokio::time::Instant;

use crate::http::digest::RequestDigest;
use muster_protocol::job::AccountId;

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
pub const LIFETIME: Duration = Duration::from_secs(24 * 3600);
const MAX_BYTES: usize = 64 << 20;
/// Memory of a cached reply besides its body.
const OVERHEAD: usize = 1 << 10;

#[derive(Debug, Default)]
pub struct ReplyCache {
    pub slots: HashMap<ReplayKey, Slot>,
    /// Stored ones, the oldest first.
    order: VecDeque<ReplayKey>,
    bytes: usize,
}

/// The digest of the client's key, so that all are of one size.
pub type ReplayKey = (AccountId, [u8; 32]);

#[derive(Debug)]
pub enum Slot {
    Running,
    Stored(Arc<StoredReply>),
}

#[derive(Debug)]
pub struct StoredReply {
    pub request: RequestDigest,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub at: Instant,
}

impl ReplyCache {
    pub fn forget_old(&mut self) {
        let now = Instant::now();
        while let Some(oldest) = self.order.front() {
            let stored = match self.slots.get(oldest) {
                Some(Slot::Stored(stored)) => Some(stored),
                _ => None,
            };
            if stored.is_some_and(|it| it.at + LIFETIME > now) && self.bytes <= MAX_BYTES {
                return;
            }
            self.bytes -= stored.map_or(0, |it| it.size());
            if let Some(oldest) = self.order.pop_front() {
                self.slots.remove(&oldest);
            }
        }
    }

    pub fn keep(&mut self, key: ReplayKey, reply: StoredReply) {
        self.bytes += reply.size();
        self.slots.insert(key, Slot::Stored(Arc::new(reply)));
        self.order.push_back(key);
        self.forget_old();
    }
}

impl StoredReply {
    pub fn size(&self) -> usize {
        self.body.len() + OVERHEAD
    }

    pub fn response(&self) -> Response {
        let mut response = Response::new(Body::from(self.body.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        let replayed = HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, replayed);
        response
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, StatusCode};
    use bytes::Bytes;
    use tokio::time::Instant;

    use super::{MAX_BYTES, ReplayKey, ReplyCache, StoredReply};
    use muster_protocol::job::AccountId;

    const REPLY_BYTES: usize = 1 << 20;

    fn key(number: usize) -> ReplayKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        (AccountId(1), key)
    }

    #[tokio::test]
    async fn the_oldest_replies_go_when_there_are_too_many_bytes() {
        let mut cache = ReplyCache::default();
        let most = 2 * MAX_BYTES / REPLY_BYTES;
        for number in 0..most {
            let reply = StoredReply {
                request: [0; 32],
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body: Bytes::from(vec![b'x'; REPLY_BYTES]),
                at: Instant::now(),
            };
            cache.keep(key(number), reply);
        }
        assert!(cache.bytes <= MAX_BYTES);
        assert!(!cache.slots.contains_key(&key(0)));
        assert!(cache.slots.contains_key(&key(most - 1)));
    }
}
