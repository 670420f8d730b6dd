//! Signed links, each for one object, one operation and a limited time, under the server's secret.
//!
//! `BASE/media/KEY?until=SECONDS&signature=HEX`, for an upload also `most=BYTES`. A link needs no key, and any change
//! invalidates its signature.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use url::form_urlencoded;

use muster_protocol::job::UnixMillis;

use super::key::Key;

/// Creates and verifies links.
#[derive(Clone)]
pub struct Signer {
    mac: Hmac<Sha256>,
    base: String,
}

/// Permission to upload one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub key: Key,
    /// Maximum bytes.
    pub most: u64,
}

/// Why a link is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadLink {
    #[error("the link is incomplete or not from this service")]
    NotOurs,
    #[error("the link has expired")]
    Expired,
}

/// The operation of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Get,
    Put { most: u64 },
}

/// A link's query.
#[derive(Debug, Default)]
struct Query {
    until: Option<i64>,
    most: Option<u64>,
    signature: Option<[u8; 32]>,
}

impl Signer {
    /// `base` is this coordinator's address, without a slash at the end.
    pub fn new(secret: &[u8; 32], base: &str) -> Self {
        let mac = Hmac::new_from_slice(secret).expect("HMAC-SHA-256 accepts keys of any length");
        let base = base.trim_end_matches('/').to_owned();
        Self { mac, base }
    }

    pub fn download(&self, key: Key, until: UnixMillis) -> String {
        self.link(key, until, Use::Get)
    }

    pub fn upload(&self, ticket: Ticket, until: UnixMillis) -> String {
        let Ticket { key, most } = ticket;
        self.link(key, until, Use::Put { most })
    }

    /// The object of a download link.
    pub fn read_download(&self, key: &str, query: &str, now: UnixMillis) -> Result<Key, BadLink> {
        let query = Query::parse(query).ok_or(BadLink::NotOurs)?;
        match query.most {
            None => self.check(key, &query, Use::Get, now),
            Some(_) => Err(BadLink::NotOurs),
        }
    }

    /// Verifies an upload link.
    pub fn read_upload(&self, key: &str, query: &str, now: UnixMillis) -> Result<Ticket, BadLink> {
        let query = Query::parse(query).ok_or(BadLink::NotOurs)?;
        let most = query.most.ok_or(BadLink::NotOurs)?;
        let key = self.check(key, &query, Use::Put { most }, now)?;
        Ok(Ticket { key, most })
    }

    fn link(&self, key: Key, until: UnixMillis, what: Use) -> String {
        let until = until.0.div_euclid(1000);
        let signature = self.signed(key, until, what).finalize().into_bytes();
        let signature = HEXLOWER.encode(&signature);
        let most = match what {
            Use::Get => String::new(),
            Use::Put { most } => format!("&most={most}"),
        };
        let base = &self.base;
        format!("{base}/media/{key}?until={until}{most}&signature={signature}")
    }

    fn check(&self, key: &str, query: &Query, what: Use, now: UnixMillis) -> Result<Key, BadLink> {
        let key: Key = key.parse().map_err(|_| BadLink::NotOurs)?;
        let (Some(until), Some(signature)) = (query.until, query.signature) else {
            return Err(BadLink::NotOurs);
        };
        // Compares in constant time.
        let verified = self.signed(key, until, what).verify_slice(&signature);
        verified.map_err(|_| BadLink::NotOurs)?;
        match now.0.div_euclid(1000) < until {
            true => Ok(key),
            false => Err(BadLink::Expired),
        }
    }

    fn signed(&self, key: Key, until: i64, what: Use) -> Hmac<Sha256> {
        let what = match what {
            Use::Get => "GET".to_owned(),
            Use::Put { most } => format!("PUT {most}"),
        };
        let said = format!("{what}\n{key}\n{until}");
        self.mac.clone().chain_update(said.as_bytes())
    }
}

impl Query {
    /// Each parameter once, and no others.
    fn parse(text: &str) -> Option<Self> {
        let mut query = Self::default();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let new = match &*name {
                "until" => query.until.replace(value.parse().ok()?).is_none(),
                "most" => query.most.replace(value.parse().ok()?).is_none(),
                "signature" => query.signature.replace(bytes(&value)?).is_none(),
                _ => false,
            };
            if !new {
                return None;
            }
        }
        Some(query)
    }
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    let bytes = HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok()?;
    bytes.try_into().ok()
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::{BadLink, Signer, Ticket};
    use crate::media::{Area, Key, MediaType};
    use muster_protocol::job::UnixMillis;

    const KEY: Key = Key::new(Area::Results, Uuid::from_u128(7), 1, MediaType::Webp);
    const UNTIL: UnixMillis = UnixMillis(1_800_000_000_000);
    const EARLY: UnixMillis = UnixMillis(1_799_999_999_999);

    fn signer() -> Signer {
        Signer::new(&[7; 32], "https://muster.example/")
    }

    fn ticket() -> Ticket {
        Ticket {
            key: KEY,
            most: 1000,
        }
    }

    /// A link in the form that the server gets: object and query.
    fn parts(link: &str) -> (&str, &str) {
        let path = link.strip_prefix("https://muster.example/media/").unwrap();
        path.split_once('?').unwrap()
    }

    #[test]
    fn a_link_is_good_until_its_time() {
        let download = signer().download(KEY, UNTIL);
        let (key, query) = parts(&download);
        assert_eq!(signer().read_download(key, query, EARLY), Ok(KEY));
        let late = signer().read_download(key, query, UNTIL);
        assert_eq!(late, Err(BadLink::Expired));
        let upload = signer().upload(ticket(), UNTIL);
        let (key, query) = parts(&upload);
        assert_eq!(signer().read_upload(key, query, EARLY), Ok(ticket()));
        let late = signer().read_upload(key, query, UNTIL);
        assert_eq!(late, Err(BadLink::Expired));
    }

    #[test]
    fn a_link_is_good_for_one_use_of_one_object_of_one_service() {
        let download = signer().download(KEY, UNTIL);
        let upload = signer().upload(ticket(), UNTIL);
        let ((key, down), (_, up)) = (parts(&download), parts(&upload));
        let refused = Err(BadLink::NotOurs);
        assert_eq!(signer().read_download(key, up, EARLY), refused);
        assert!(signer().read_upload(key, down, EARLY).is_err());
        let wider = up.replace("most=1000", "most=9000");
        assert!(signer().read_upload(key, &wider, EARLY).is_err());
        let longer = down.replace("until=18", "until=19");
        assert_eq!(signer().read_download(key, &longer, EARLY), refused);
        let twice = format!("{down}&until=1800000000");
        assert_eq!(signer().read_download(key, &twice, EARLY), refused);
        let other = key.replace("-1.webp", "-2.webp");
        assert_eq!(signer().read_download(&other, down, EARLY), refused);
        let stranger = Signer::new(&[8; 32], "https://muster.example");
        assert_eq!(stranger.read_download(key, down, EARLY), refused);
    }

    proptest! {
        #[test]
        fn a_link_with_anything_changed_is_refused(at in 0_usize..200, letter in any::<char>()) {
            let link = signer().upload(ticket(), UNTIL);
            let (key, query) = parts(&link);
            let whole = format!("{key}?{query}");
            let mut letters: Vec<char> = whole.chars().collect();
            let at = at % letters.len();
            // The case of hexadecimal digits does not change the bytes.
            prop_assume!(!letters[at].eq_ignore_ascii_case(&letter));
            letters[at] = letter;
            let changed: String = letters.into_iter().collect();
            let (key, query) = changed.split_once('?').unwrap_or((&changed, ""));
            prop_assert!(signer().read_upload(key, query, EARLY).is_err());
        }

        #[test]
        fn what_nobody_signed_is_refused(key in "\\PC{0,60}", query in "\\PC{0,100}|until=[0-9]{1,12}&signature=[0-9a-f]{60,66}") {
            prop_assert!(signer().read_upload(&key, &query, EARLY).is_err());
            prop_assert!(signer().read_download(&key, &query, EARLY).is_err());
        }
    }
}
