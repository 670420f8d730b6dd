//! `[[coordinator]]`: whom the worker works for. May be repeated.

use url::{Host, Url};

use super::choice::choice;
use super::fingerprint::Fingerprint;
use super::reader::Reader;
use super::secret::Secret;
use super::setting::settings;

settings! {
    /// Whom the worker works for; repeat the section for several.
    pub struct CoordinatorConfig = "coordinator" {
        /// Its address: wss:// or https:// for a socket (ws:// and http:// on this machine), http:// or https:// for the legacy calls.
        url: Url,
        /// Your key there: its text, "file:PATH" or "env:NAME".
        key: Secret,
        /// How to talk to it: socket, or legacy for the pop and submit calls.
        kind: CoordinatorKind = "socket",
        /// What this worker is called there. Change it to keep names apart on one network.
        name: Option<String>; unset "the name of the worker",
        /// Sockets towards a coordinator that gives each one job at a time, and jobs at once from one with the legacy calls. Raise it for more jobs at once there; Muster's own coordinators send all over one socket.
        sockets: usize where (1..=64) = 4,
        /// Talk to another machine without encryption, the key included. Only for a network that is yours alone.
        insecure: bool = false,
        /// The SHA-256 fingerprint of its certificate, in hexadecimal, which is then the only one accepted. Set it for a certificate that no authority signed, such as that of `worker serve --self-signed`.
        certificate_sha256: Option<Fingerprint>; unset "a certificate that an authority this machine trusts has signed",
    }
}

choice! {
    pub enum CoordinatorKind { Socket = "socket", Legacy = "legacy" }
}

impl CoordinatorConfig {
    /// One section, its address held against its kind and its safety.
    pub(super) fn read_one(reader: &mut Reader<'_>) -> Option<Self> {
        let coordinator = Self::read(reader)?;
        let wrong = coordinator.wrong_scheme().or(coordinator.open_line());
        match wrong.or(coordinator.pin_without_tls()) {
            Some(wrong) => {
                reader.problem_here(wrong);
                None
            }
            None => Some(coordinator),
        }
    }

    fn wrong_scheme(&self) -> Option<String> {
        let schemes: &[&str] = match self.kind {
            CoordinatorKind::Socket => &["ws", "wss", "http", "https"],
            CoordinatorKind::Legacy => &["http", "https"],
        };
        let (found, kind) = (self.url.scheme(), self.kind.word());
        (!schemes.contains(&found)).then(|| {
            format!(
                "a {kind} coordinator's url must begin with {}://, found {found}://",
                schemes.join(":// or ")
            )
        })
    }

    /// A pin that nothing would look at.
    fn pin_without_tls(&self) -> Option<String> {
        let has_tls = matches!(self.url.scheme(), "wss" | "https");
        (self.certificate_sha256.is_some() && !has_tls).then(|| {
            format!(
                "certificate_sha256 is set and {} has no TLS: use wss:// or https:// in url",
                self.url
            )
        })
    }

    /// What is wrong with a line that others could read.
    fn open_line(&self) -> Option<String> {
        let is_safe = matches!(self.url.scheme(), "wss" | "https") || self.insecure;
        (!is_safe && !is_here(&self.url)).then(|| {
            format!(
                "{} would be dialled without encryption, and the key would travel in the clear: use wss:// or https://, or set insecure = true",
                self.url.host_str().unwrap_or_default()
            )
        })
    }
}

/// Whether an address leads to this machine.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
