//! How the coordinator of this data folder was last started, for commands beside it, since its flags are not stored
//! elsewhere.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::config::Fingerprint as Pin;
use crate::link::{Fingerprint, native_tls, pinned_tls};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    pub address: SocketAddr,
    pub has_tls: bool,
    /// Digest of a self-signed certificate.
    pub certificate_sha256: Option<String>,
}

impl Serving {
    /// URL for programs on this machine.
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            let here: IpAddr = match address.is_ipv4() {
                true => Ipv4Addr::LOCALHOST.into(),
                false => Ipv6Addr::LOCALHOST.into(),
            };
            address.set_ip(here);
        }
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    /// TLS that accepts the coordinator's certificate.
    pub fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let pin = self.certificate_sha256.as_deref();
        match pin.and_then(Pin::read) {
            Some(pin) => pinned_tls(Fingerprint(pin.0)),
            None => native_tls(),
        }
    }

    pub fn read(data_dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(file(data_dir)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// A failed write only affects `worker key join`, which then needs --url.
    pub fn note(&self, data_dir: &Path) {
        let file = file(data_dir);
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        let written = fs::create_dir_all(data_dir).and_then(|()| fs::write(&file, text));
        if let Err(error) = written {
            let file = file.display();
            warn!("writing {file} failed, `worker key join` needs --url: {error}");
        }
    }
}

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("serving.json")
}
