//! The header with the client's address of a forwarded request, and the settings of the node that forwards it. The
//! signature covers the time, the address, the build and the request line, with a key derived from the server secret.

use std::fmt;
use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::clock::wall_clock;

pub const FORWARDED: HeaderName = HeaderName::from_static("muster-forwarded");

/// Maximum age of a signature. Clocks of nodes are within a second of the database server's.
const MOST_AGE_MILLIS: u64 = 5_000;

pub struct NodeSigner {
    mac: Hmac<Sha256>,
    /// The version and settings of this node, without spaces.
    build: String,
}

/// The content of another node's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHeader {
    pub client: IpAddr,
    pub build: String,
}

/// Does not show the key.
impl fmt::Debug for NodeSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeSigner({})", self.build)
    }
}

impl NodeSigner {
    /// `settings` is a digest of the settings that all nodes share.
    pub fn new(secret: &[u8; 32], settings: &str) -> Self {
        Self {
            mac: Hmac::new_from_slice(secret).expect("HMAC-SHA-256 accepts keys of any length"),
            build: format!("{}/{settings}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Whether another node of the same version has other settings.
    pub fn differs(&self, build: &str) -> bool {
        let (version, settings) = build.split_once('/').unwrap_or((build, ""));
        let own = self.build.split_once('/');
        own.is_some_and(|(own, here)| own == version && here != settings)
    }

    pub fn sign(&self, client: IpAddr, request: &Request) -> HeaderValue {
        self.sign_at(wall_clock().0, client, request)
    }

    fn sign_at(&self, millis: i64, client: IpAddr, request: &Request) -> HeaderValue {
        let text = signed(millis, client, &self.build, request);
        let mac = self.mac.clone().chain_update(text.as_bytes());
        let tag = mac.finalize().into_bytes();
        let tag = HEXLOWER.encode(&tag);
        let value = format!("{millis} {client} {} {tag}", self.build);
        // Digits, an address, a version and digits are valid in a header.
        HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static(""))
    }

    /// `None` unless a node of this cluster has just signed the request.
    pub fn verify(&self, header: &HeaderValue, request: &Request) -> Option<NodeHeader> {
        let parts: Vec<&str> = header.to_str().ok()?.split(' ').collect();
        let [millis, client, build, tag] = parts[..] else {
            return None;
        };
        let (millis, client) = (millis.parse().ok()?, client.parse().ok()?);
        let age = wall_clock().0.abs_diff(millis);
        let text = signed(millis, client, build, request);
        let mac = self.mac.clone().chain_update(text.as_bytes());
        let is_signed = mac
            .verify_slice(&HEXLOWER.decode(tag.as_bytes()).ok()?)
            .is_ok();
        (is_signed && age <= MOST_AGE_MILLIS).then(|| NodeHeader {
            client,
            build: build.to_owned(),
        })
    }
}

fn signed(millis: i64, client: IpAddr, build: &str, request: &Request) -> String {
    let path = request.uri().path_and_query();
    let path = path.map_or("/", |path| path.as_str());
    format!("{millis}\n{client}\n{build}\n{}\n{path}", request.method())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use axum::http::{HeaderValue, Method};

    use super::{MOST_AGE_MILLIS, NodeSigner};
    use crate::clock::wall_clock;

    fn request(method: Method, uri: &str) -> Request {
        let request = Request::builder().method(method).uri(uri);
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn a_signature_is_for_one_request_of_one_moment() {
        let signer = NodeSigner::new(&[7; 32], "settings");
        let client = "192.0.2.7".parse().unwrap();
        let asked = request(Method::POST, "/v1/chat/completions?a=1");
        let signed = signer.sign(client, &asked);
        let client_of = |request| Some(signer.verify(&signed, request)?.client);
        assert_eq!(client_of(&asked), Some(client));
        // In the form of HTTP/2 requests.
        let absolute = request(Method::POST, "http://node/v1/chat/completions?a=1");
        assert_eq!(client_of(&absolute), Some(client));
        for other in [
            request(Method::GET, "/v1/chat/completions?a=1"),
            request(Method::POST, "/v1/chat/completions?a=2"),
            request(Method::POST, "/v1/completions?a=1"),
        ] {
            assert_eq!(signer.verify(&signed, &other), None, "{other:?}");
        }
        assert_eq!(
            NodeSigner::new(&[8; 32], "settings").verify(&signed, &asked),
            None
        );
        let text = signed.to_str().unwrap().to_owned();
        for forged in [
            text.replace("192.0.2.7", "192.0.2.8"),
            text.replace("settings", "settingz"),
            text.split(' ').take(3).collect::<Vec<_>>().join(" "),
            format!("{text} "),
            text[..text.len() - 2].to_owned(),
            format!("{text}zz"),
            String::new(),
        ] {
            let forged = HeaderValue::from_str(&forged).unwrap();
            assert_eq!(signer.verify(&forged, &asked), None, "{forged:?}");
        }
        let old = wall_clock().0 - MOST_AGE_MILLIS.cast_signed() - 1;
        let old = signer.sign_at(old, client, &asked);
        assert_eq!(signer.verify(&old, &asked), None);
    }

    #[test]
    fn nodes_of_one_version_with_other_settings_differ() {
        let signer = NodeSigner::new(&[7; 32], "one");
        let version = env!("CARGO_PKG_VERSION");
        assert!(!signer.differs(&format!("{version}/one")));
        assert!(signer.differs(&format!("{version}/other")));
        // Digests of other versions are not compared.
        assert!(!signer.differs("0.0.1/other"));
    }
}
