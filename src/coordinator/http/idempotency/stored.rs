//! Replies in the database, for later processes. Each is encrypted under a key derived from the server secret and the
//! client's `Idempotency-Key`, so that neither the database nor its backups reveal outputs.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::warn;

use super::cache::{LIFETIME, ReplayKey, StoredReply};
use crate::accounts::Accounts;
use crate::clock::wall_clock;
use crate::storage::{ReplyRow, Store};
use crate::values::ByteSeal;
use muster_protocol::job::UnixMillis;

/// Longer replies are stored in memory only.
const MAX_BYTES: usize = 256 << 10;

/// Replies stored in the database.
#[derive(Debug, Clone)]
pub struct ReplyStore {
    pub store: Store,
    pub accounts: Accounts,
}

/// A client's `Idempotency-Key`, as received.
#[derive(Clone, Copy)]
pub struct ClientKey<'a>(pub &'a [u8]);

impl ReplyStore {
    /// A failure is only logged: this process still repeats the reply.
    pub async fn save(&self, key: ReplayKey, header: ClientKey<'_>, reply: &StoredReply) {
        if reply.body.len() > MAX_BYTES {
            return;
        }
        let Some(sealed) = seal(&self.byte_seal(key, header), reply) else {
            return;
        };
        let row = ReplyRow {
            account: key.0,
            key: digest_text(key),
            sealed,
            expires_at: wall_clock().after(LIFETIME),
        };
        if let Err(error) = self.store.save_reply(row).await {
            warn!(
                "storing the reply to a request with an Idempotency-Key failed, a restart forgets it: {error}"
            );
        }
    }

    /// The reply of an earlier process.
    pub async fn find(&self, key: ReplayKey, header: ClientKey<'_>) -> Option<StoredReply> {
        let now = wall_clock();
        let found = self.store.reply(key.0, &digest_text(key), now).await;
        let row = found.unwrap_or_else(|error| {
            warn!("looking for the reply to a request with an Idempotency-Key failed: {error}");
            None
        })?;
        let reply = open(&self.byte_seal(key, header), &row.sealed)?;
        Some(StoredReply {
            at: begun(row.expires_at, now),
            ..reply
        })
    }

    fn byte_seal(&self, (account, _): ReplayKey, header: ClientKey<'_>) -> ByteSeal {
        let header = STANDARD.encode(header.0);
        let purpose = format!("reply of {} to {header}", account.0);
        ByteSeal::new(&self.accounts.derived_secret(&purpose))
    }
}

/// The creation time of a reply, from its expiry.
fn begun(expires_at: UnixMillis, now: UnixMillis) -> Instant {
    let left = u64::try_from(expires_at.0.saturating_sub(now.0)).unwrap_or(0);
    let age = LIFETIME.saturating_sub(std::time::Duration::from_millis(left));
    Instant::now().checked_sub(age).unwrap_or_else(Instant::now)
}

fn digest_text((_, digest): ReplayKey) -> String {
    HEXLOWER.encode(&digest)
}

fn seal(key: &ByteSeal, reply: &StoredReply) -> Option<String> {
    let headers = reply.headers.iter();
    let headers: Option<Vec<_>> = headers
        .map(|(name, value)| Some(json!([name.as_str(), value.to_str().ok()?])))
        .collect();
    let contents = json!({
        "request": STANDARD.encode(reply.request),
        "status": reply.status.as_u16(),
        "headers": headers?,
        "body": STANDARD.encode(&reply.body),
    });
    Some(key.seal(contents.to_string()))
}

fn open(key: &ByteSeal, sealed: &str) -> Option<StoredReply> {
    let text = key.open(sealed)?;
    let contents: Value = serde_json::from_slice(&text).ok()?;
    let bytes = |name: &str| STANDARD.decode(contents[name].as_str()?).ok();
    let headers = contents["headers"].as_array()?.iter().map(|header| {
        let name = HeaderName::try_from(header[0].as_str()?).ok()?;
        Some((name, HeaderValue::from_str(header[1].as_str()?).ok()?))
    });
    Some(StoredReply {
        request: bytes("request")?.try_into().ok()?,
        status: StatusCode::from_u16(contents["status"].as_u64()?.try_into().ok()?).ok()?,
        headers: headers.collect::<Option<HeaderMap>>()?,
        body: Bytes::from(bytes("body")?),
        at: Instant::now(),
    })
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, StatusCode};
    use bytes::Bytes;
    use tokio::time::Instant;

    use super::{ByteSeal, StoredReply, open, seal};

    fn key(byte: u8) -> ByteSeal {
        ByteSeal::new(&[byte; 32])
    }

    #[test]
    fn a_sealed_reply_is_opened_by_its_key_alone() {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let reply = StoredReply {
            request: [9; 32],
            status: StatusCode::CREATED,
            headers,
            body: Bytes::from_static(b"{\"secret\": \"\xc3\xa4\"}\xff"),
            at: Instant::now(),
        };
        let sealed = seal(&key(1), &reply).unwrap();
        let opened = open(&key(1), &sealed).unwrap();
        assert_eq!(
            (opened.request, opened.status, &opened.headers, &opened.body),
            (reply.request, reply.status, &reply.headers, &reply.body)
        );
        assert!(open(&key(2), &sealed).is_none());
        assert!(open(&key(1), &sealed[..sealed.len() - 4]).is_none());
        assert!(open(&key(1), "").is_none());
        assert_ne!(seal(&key(1), &reply), Some(sealed));
    }
}
