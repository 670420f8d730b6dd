//! `[[coordinator]]`: the coordinators that the worker connects to. May be repeated.

use url::{Host, Url};

use super::choice::choice;
use super::fingerprint::Fingerprint;
use super::reader::Reader;
use super::secret::Secret;
use super::setting::settings;

settings! {
    /// A coordinator to work for; repeat the section for several.
    pub struct CoordinatorConfig = "coordinator" {
        /// URL of the coordinator: wss:// or https:// (ws:// and http:// on this machine) for kind = "socket", https:// or http:// for kind = "legacy".
        url: Url,
        /// Your API key there: the key itself, "file:PATH" or "env:NAME".
        key: Secret,
        /// How to connect: socket, or legacy to poll an AI Horde server (pop and submit).
        kind: CoordinatorKind = "socket",
        /// Name of this worker at the coordinator. Set it to keep names apart on one network.
        name: Option<String>; unset "worker.name",
        /// Sockets to a coordinator that sends one job per socket, or jobs polled at once with kind = "legacy". Raise it for more jobs at once; Muster's own coordinators need one socket.
        sockets: usize where (1..=64) = 4,
        /// Software name at an AI Horde server, as NAME:VERSION:URL, with kind = "legacy". Such servers know the features of a worker by it: one that does not know the name gives no requests whose images are uploaded.
        agent: Option<String>; unset "Muster",
        /// Whose jobs to take: all, your own account's first, or own, which a coordinator must know and AI Horde servers do not. Set it to own to use your machine from elsewhere and lend it to no others.
        jobs: CoordinatorJobs = "all",
        /// Take image requests that may be not safe for work. Otherwise such requests are not taken, and an image that engine.safety_checker flags is not sent: with kind = "legacy" an empty one replaces it, on a socket its job fails. Set it to what you allow there.
        nsfw: Option<bool>; unset "true with kind = \"socket\", false with kind = \"legacy\"",
        /// Take image requests that name LoRAs, and offer the adapters of text models. Set it to false to keep the files of engine.loras and engine.adapters to yourself or to another coordinator.
        loras: bool = true,
        /// Take image requests of clients behind a VPN or a proxy, as far as the coordinator knows them. Set it to false where you do not trust such clients.
        hidden_addresses: bool = true,
        /// Models to offer there, by their names in `/v1/models`. Set it to keep others to yourself or to another coordinator.
        models: Option<Vec<String>>; unset "all that the worker serves",
        /// Hosts, besides those of the coordinator and those that it names, from which jobs may fetch media and to which they may upload it: names, "*.DOMAIN", or "*" for every public host. Set it for a public coordinator that keeps media elsewhere.
        media_hosts: Option<Vec<String>>; unset "\"*.r2.cloudflarestorage.com\", where AI Horde keeps media, with kind = \"legacy\"; otherwise none",
        /// Connect to another machine without TLS, sending the key in plain text. Set it only on a private network.
        insecure: bool = false,
        /// SHA-256 fingerprint, in hexadecimal, of the only certificate to accept. Set it for a self-signed certificate, such as that of `worker serve --self-signed`.
        certificate_sha256: Option<Fingerprint>; unset "any certificate from an authority that this machine trusts",
    }
}

choice! {
    pub enum CoordinatorKind { Socket = "socket", Legacy = "legacy" }
}

choice! {
    pub enum CoordinatorJobs { All = "all", Own = "own" }
}

/// AI Horde's bucket.
const HORDE_MEDIA: &str = "*.r2.cloudflarestorage.com";

impl CoordinatorConfig {
    pub fn takes_nsfw(&self) -> bool {
        let usual = self.kind == CoordinatorKind::Socket;
        self.nsfw.unwrap_or(usual)
    }

    pub fn media_hosts(&self) -> Vec<String> {
        let usual = match self.kind {
            CoordinatorKind::Socket => Vec::new(),
            CoordinatorKind::Legacy => vec![HORDE_MEDIA.to_owned()],
        };
        self.media_hosts.clone().unwrap_or(usual)
    }

    /// Reads one section, and checks its URL, its kind and its transport security.
    pub(super) fn read_one(reader: &mut Reader<'_>) -> Option<Self> {
        let coordinator = Self::read(reader)?;
        let wrong = coordinator.wrong_scheme().or(coordinator.open_line());
        let wrong = wrong.or(coordinator.own_jobs_by_polling());
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

    fn own_jobs_by_polling(&self) -> Option<String> {
        let is_polled = self.kind == CoordinatorKind::Legacy;
        (is_polled && self.jobs == CoordinatorJobs::Own).then(|| {
            "jobs = \"own\" needs kind = \"socket\": an AI Horde server knows it as maintenance of the worker, which you set there".to_owned()
        })
    }

    /// Refuses a pinned certificate without TLS.
    fn pin_without_tls(&self) -> Option<String> {
        let has_tls = matches!(self.url.scheme(), "wss" | "https");
        (self.certificate_sha256.is_some() && !has_tls).then(|| {
            format!(
                "certificate_sha256 is set and {} has no TLS: use wss:// or https:// in url",
                self.url
            )
        })
    }

    /// Refuses an unencrypted connection to another machine.
    fn open_line(&self) -> Option<String> {
        let is_safe = matches!(self.url.scheme(), "wss" | "https") || self.insecure;
        (!is_safe && !is_here(&self.url)).then(|| {
            format!(
                "connecting to {} without TLS would send the key in plain text: use wss:// or https://, or set insecure = true",
                self.url.host_str().unwrap_or_default()
            )
        })
    }
}

/// Whether an address leads to this machine.
pub(super) fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
