//! Media of jobs over HTTP: source images are fetched from signed links, outputs are uploaded to links. Links are
//! secrets and never part of an error.
//!
//! A link may lead to the coordinator, to the hosts that its `ready` frame names, and to those that the owner allows
//! for coordinators that name none, like public ones. Addresses of the owner's network are refused in any notation,
//! unless the coordinator is in that network. Redirects are not followed. All refusals give the same error, so that the
//! coordinator cannot scan the network.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use tokio::net::lookup_host;
use tokio::time::{Instant, sleep};
use tokio_rustls::rustls::ClientConfig;
use tracing::debug;
use url::{Host, Url};

use super::{Dial, tls};
use muster_process::internet::is_public;
use muster_protocol::link::UploadSlot;

const CONNECTING: Duration = Duration::from_secs(10);
/// Without a byte in either direction.
const STANDSTILL: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time for retries of a missing source; other workers may reach it.
const FETCHING: Duration = Duration::from_secs(4);
/// A result is the work of minutes: a store that is restarted meanwhile still gets it.
const PUTTING: Duration = Duration::from_secs(60);

/// Reaches the media store of one coordinator. Clones share their connections.
#[derive(Debug, Clone, Default)]
pub struct Transfers(Arc<Connections>);

#[derive(Debug, Default)]
struct Connections {
    /// The coordinator itself, whose certificate may be pinned. `None` for a local one without a URL.
    own: Option<(Url, Arc<ClientConfig>)>,
    /// Origins of links as the coordinator names them.
    hosts: Mutex<Option<Vec<String>>>,
    /// Hosts that the owner allows: names, `*.` before the domain of many, or `*` for all.
    allowed: Vec<String>,
    /// Whether the coordinator is in the owner's network, once that is known.
    is_inside: OnceLock<bool>,
    own_client: OnceLock<Result<Client, TransferError>>,
    /// May also connect to hosts in the owner's network.
    inside_client: OnceLock<Result<Client, TransferError>>,
    public_client: OnceLock<Result<Client, TransferError>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// Any problem of the link.
    #[error(
        "the link leads neither to the coordinator nor to a public host that it names: set its public URL or bucket right, or \
         allow the host with coordinator.media_hosts"
    )]
    Forbidden,
    #[error("the media store answered {0}")]
    Refused(StatusCode),
    #[error("the object has more than {most} bytes")]
    TooLarge { most: usize },
    #[error("{0}")]
    Failed(String),
}

/// A name that leads into the owner's network.
#[derive(Debug)]
struct NotPublic;

/// Finds no addresses but public ones.
struct PublicNames;

impl Transfers {
    /// `allowed` are hosts besides those of the coordinator.
    pub fn of(dial: &Dial, allowed: &[String]) -> Self {
        match dial {
            Dial::Url { url, tls } => Self::near(url.clone(), tls.clone(), allowed),
            Dial::Local(_) | Dial::Pipe(_) => Self::default(),
        }
    }

    /// For the coordinator at this URL.
    pub fn near(url: Url, tls: Arc<ClientConfig>, allowed: &[String]) -> Self {
        Self(Arc::new(Connections {
            own: Some((url, tls)),
            allowed: allowed.to_vec(),
            ..Connections::default()
        }))
    }

    /// Sets the origins that the coordinator names; `None` if it names none.
    pub fn set_hosts(&self, hosts: Option<&[String]>) {
        *self.hosts() = hosts.map(<[String]>::to_vec);
    }

    /// Fetches an object of at most `most` bytes.
    pub async fn fetch(&self, link: &str, most: usize) -> Result<Vec<u8>, TransferError> {
        let (client, url) = self.client(link).await?;
        let get = || {
            let request = client.get(url.clone());
            async move { read(sent(request).await?, most).await }
        };
        retried(get, FETCHING).await
    }

    pub async fn put(&self, slot: &UploadSlot, bytes: Bytes) -> Result<(), TransferError> {
        let (client, url) = self.client(&slot.put_url).await?;
        let put = || {
            let request = client.put(url.clone()).body(bytes.clone());
            let request = request.header(CONTENT_TYPE, &slot.content_type);
            async move { sent(request).await.map(|_| ()) }
        };
        retried(put, PUTTING).await
    }

    /// The client that may follow the link.
    async fn client(&self, link: &str) -> Result<(Client, Url), TransferError> {
        let url = Url::parse(link).map_err(|_| TransferError::Forbidden)?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        if !matches!(url.scheme(), "http" | "https") || !is_plain {
            return Err(TransferError::Forbidden);
        }
        let own = self.0.own.as_ref();
        if let Some((_, tls)) = own.filter(|(own, _)| own.host() == url.host()) {
            let client = self.0.own_client.get_or_init(|| client(tls.clone(), None));
            return Ok((client.clone()?, url));
        }
        if !self.is_named(&url) {
            return Err(TransferError::Forbidden);
        }
        let client = match self.is_inside().await {
            true => self.0.inside_client.get_or_init(|| other_client(None)),
            false if leads_inside(&url) => return Err(TransferError::Forbidden),
            false => {
                let names = Some(Arc::new(PublicNames));
                self.0.public_client.get_or_init(|| other_client(names))
            }
        };
        Ok((client.clone()?, url))
    }

    fn is_named(&self, url: &Url) -> bool {
        let origin = url.origin().ascii_serialization();
        let is_named = match self.hosts().as_ref() {
            Some(hosts) => hosts.contains(&origin),
            // The coordinator is in this process or on this machine.
            None => self.0.own.is_none(),
        };
        is_named || self.is_allowed(url)
    }

    fn is_allowed(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_end_matches('.');
        let fits = |allowed: &String| match allowed.strip_prefix('*') {
            Some(end) => host.ends_with(end) && host.len() > end.len(),
            None => host == allowed,
        };
        self.0.allowed.iter().any(fits)
    }

    /// Whether the coordinator is on this machine or in its network, whose hosts it may then name.
    async fn is_inside(&self) -> bool {
        let Some((url, _)) = &self.0.own else {
            return true;
        };
        if let Some(known) = self.0.is_inside.get() {
            return *known;
        }
        let found = match url.host() {
            Some(Host::Domain(name)) => addresses(name).await.map(|found| !all_public(&found)),
            _ => Ok(leads_inside(url)),
        };
        // If its name cannot be resolved, no connection exists either.
        found.is_ok_and(|found| *self.0.is_inside.get_or_init(|| found))
    }

    fn hosts(&self) -> parking_lot::MutexGuard<'_, Option<Vec<String>>> {
        self.0.hosts.lock()
    }
}

/// An address that is not public, or a name that every machine has for itself.
fn leads_inside(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => !is_public(address.into()),
        Some(Host::Ipv6(address)) => !is_public(address.into()),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        None => true,
    }
}

async fn addresses(name: &str) -> std::io::Result<Vec<SocketAddr>> {
    Ok(lookup_host((name, 0)).await?.collect())
}

fn all_public(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| is_public(address.ip()))
}

/// Resolves names to checked addresses, which the client connects to without another look-up.
impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = addresses(name.as_str()).await?;
            if !all_public(&found) {
                return Err(NotPublic.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name leads to no public address")
    }
}

impl Error for NotPublic {}

/// Trusts the authorities of this machine.
fn other_client(names: Option<Arc<PublicNames>>) -> Result<Client, TransferError> {
    let tls = tls::native_tls().map_err(TransferError::Failed)?;
    client(tls, names)
}

/// Without a proxy, which would resolve names itself.
fn client(
    tls: Arc<ClientConfig>,
    names: Option<Arc<PublicNames>>,
) -> Result<Client, TransferError> {
    let builder = Client::builder()
        .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
        .tls_backend_preconfigured((*tls).clone())
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECTING)
        .read_timeout(STANDSTILL);
    let builder = match names {
        Some(names) => builder.dns_resolver(names),
        None => builder,
    };
    builder
        .build()
        .map_err(|error| failed(&error.without_url()))
}

async fn sent(request: RequestBuilder) -> Result<Response, TransferError> {
    let response = request.send().await;
    let response = response.map_err(|error| failed(&error.without_url()))?;
    match response.status() {
        status if status.is_success() => Ok(response),
        // Redirects are refused, because they could lead to any host.
        status if status.is_redirection() => Err(TransferError::Forbidden),
        status => Err(TransferError::Refused(status)),
    }
}

async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, TransferError> {
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await;
        let Some(chunk) = chunk.map_err(|error| failed(&error.without_url()))? else {
            return Ok(bytes);
        };
        if bytes.len() + chunk.len() > most {
            return Err(TransferError::TooLarge { most });
        }
        bytes.extend_from_slice(&chunk);
    }
}

/// Retries while that may help, with the last attempt after `patience`.
async fn retried<T, F: Future<Output = Result<T, TransferError>>>(
    attempt: impl Fn() -> F,
    patience: Duration,
) -> Result<T, TransferError> {
    let last = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt().await {
            Err(error) if error.may_pass() && Instant::now() < last => {
                debug!(
                    "a transfer failed, retrying in {} ms: {error}",
                    pause.as_millis()
                );
                sleep(pause).await;
            }
            ended => return ended,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// With the causes: the outermost error of a client has few details.
fn failed(error: &reqwest::Error) -> TransferError {
    let mut words = error.to_string();
    let mut cause = Error::source(error);
    while let Some(error) = cause {
        if error.is::<NotPublic>() {
            return TransferError::Forbidden;
        }
        words = format!("{words}: {error}");
        cause = error.source();
    }
    TransferError::Failed(words)
}

impl TransferError {
    fn may_pass(&self) -> bool {
        match self {
            Self::Failed(_) => true,
            Self::Refused(status) => {
                status.is_server_error()
                    || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(status)
            }
            Self::Forbidden | Self::TooLarge { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::{PUTTING, TransferError, Transfers, retried};
    use muster_protocol::link::UploadSlot;
    use reqwest::StatusCode;

    /// A server that gives these answers, one to a connection, and returns the requests.
    async fn answering(answers: &[&str]) -> (String, impl Future<Output = Vec<String>> + use<>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!(
            "http://{}/object?signature=s",
            listener.local_addr().unwrap()
        );
        let answers: Vec<String> = answers.iter().map(|&it| it.to_owned()).collect();
        let served = async move {
            let mut requests = Vec::new();
            for answer in answers {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let mut length = 0;
                // Every request here ends with this or has no body.
                while !request[..length].ends_with(b"END")
                    && !request[..length].ends_with(b"\r\n\r\n")
                {
                    length += socket.read(&mut request[length..]).await.unwrap();
                }
                requests.push(String::from_utf8_lossy(&request[..length]).into_owned());
                socket.write_all(answer.as_bytes()).await.unwrap();
                socket.shutdown().await.unwrap();
            }
            requests
        };
        (base, served)
    }

    #[tokio::test]
    async fn an_upload_has_the_type_of_its_slot_and_is_tried_again() {
        let (put_url, served) = answering(&[
            "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ])
        .await;
        let slot = UploadSlot {
            put_url,
            key: "key".to_owned(),
            content_type: "image/webp".to_owned(),
        };
        let transfers = Transfers::default();
        let put = transfers.put(&slot, Bytes::from_static(b"END"));
        let (put, requests) = tokio::join!(put, served);
        assert_eq!(put, Ok(()));
        assert_eq!(requests.len(), 2);
        let request = requests[1].to_lowercase();
        assert!(request.starts_with("put /object?signature=s"), "{request}");
        assert!(request.contains("content-type: image/webp"), "{request}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_restarted_still_gets_an_upload() {
        let began = Instant::now();
        let tries = AtomicU32::new(0);
        let attempt = || {
            tries.fetch_add(1, Ordering::Relaxed);
            async move {
                match began.elapsed() < Duration::from_secs(40) {
                    true => Err(TransferError::Failed("connection refused".to_owned())),
                    false => Ok(()),
                }
            }
        };
        assert_eq!(retried(attempt, PUTTING).await, Ok(()));
        assert!(tries.load(Ordering::Relaxed) < 20);
        let gone = || async { Err::<(), _>(TransferError::Refused(StatusCode::BAD_GATEWAY)) };
        let began = Instant::now();
        assert!(retried(gone, PUTTING).await.is_err());
        assert!(began.elapsed() >= PUTTING);
    }

    #[tokio::test]
    async fn a_refused_or_large_object_is_not_fetched_again() {
        let (link, served) = answering(&["HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n"]).await;
        let transfers = Transfers::default();
        let (fetched, _) = tokio::join!(transfers.fetch(&link, 10), served);
        assert_eq!(fetched, Err(TransferError::Refused(StatusCode::FORBIDDEN)));
        let (link, served) = answering(&["HTTP/1.1 200 OK\r\n\r\n12345678901"]).await;
        let (fetched, _) = tokio::join!(transfers.fetch(&link, 10), served);
        assert_eq!(fetched, Err(TransferError::TooLarge { most: 10 }));
        let file = transfers.fetch("file:///etc/hosts", 10).await;
        assert_eq!(file, Err(TransferError::Forbidden));
    }

    /// For a coordinator at this URL that names these origins.
    fn transfers(coordinator: &str, hosts: Option<&[&str]>) -> Transfers {
        let tls = crate::link::tls::native_tls().unwrap();
        let allowed = ["*".to_owned()];
        let allowed = &allowed[..usize::from(hosts.is_none())];
        let transfers = Transfers::near(coordinator.parse().unwrap(), tls, allowed);
        let hosts = hosts.map(|hosts| hosts.iter().map(|&host| host.to_owned()).collect());
        let hosts: Option<Vec<String>> = hosts;
        transfers.set_hosts(hosts.as_deref());
        transfers
    }

    #[tokio::test]
    async fn a_public_coordinator_sends_nobody_into_the_owners_network() {
        let inside = [
            "http://127.0.0.1:7861/object",
            "http://2130706433/",
            "http://[::1]:9000/",
            "http://[::ffff:10.0.0.1]/",
            "http://192.168.1.1/",
            "http://169.254.169.254/latest/meta-data",
            "http://localhost:7861/",
            "https://nas.localhost/",
        ];
        let named: Vec<String> = inside
            .iter()
            .map(|link| {
                link.parse::<url::Url>()
                    .unwrap()
                    .origin()
                    .ascii_serialization()
            })
            .collect();
        let named: Vec<&str> = named.iter().map(|origin| &**origin).collect();
        for hosts in [None, Some(&named[..])] {
            let transfers = transfers("wss://93.184.216.34/v1/workers/ws", hosts);
            for link in inside {
                let fetched = transfers.fetch(link, 10).await;
                assert_eq!(fetched, Err(TransferError::Forbidden), "{link}");
            }
        }
    }

    #[tokio::test]
    async fn links_lead_to_the_coordinator_and_to_the_hosts_that_it_names() {
        let answer = "HTTP/1.1 200 OK\r\n\r\nhello";
        let (own, served) = answering(&[answer]).await;
        // In the same network, at another address.
        let (store, stored) = answering(&[answer]).await;
        let store = store.replace("127.0.0.1", "localhost");
        let origin = store.strip_suffix("/object?signature=s").unwrap();
        let transfers = transfers("ws://127.0.0.1:7010/v1/workers/ws", Some(&[origin]));
        let (fetched, _) = tokio::join!(transfers.fetch(&own, 10), served);
        assert_eq!(fetched.unwrap(), b"hello");
        let (fetched, _) = tokio::join!(transfers.fetch(&store, 10), stored);
        assert_eq!(fetched.unwrap(), b"hello");
        for link in [
            "http://localhost:1/object",
            "https://store.example/object",
            "https://me:secret@127.0.0.1/object",
            "ftp://127.0.0.1/object",
        ] {
            let fetched = transfers.fetch(link, 10).await;
            assert_eq!(fetched, Err(TransferError::Forbidden), "{link}");
        }
    }

    /// For a coordinator that names no hosts.
    #[test]
    fn a_link_leads_to_hosts_that_the_owner_allows() {
        let tls = crate::link::tls::native_tls().unwrap();
        let check = |allowed: &[&str], link: &str, expected| {
            let allowed: Vec<String> = allowed.iter().map(|&host| host.to_owned()).collect();
            let coordinator = "wss://horde.example/".parse().unwrap();
            let transfers = Transfers::near(coordinator, tls.clone(), &allowed);
            assert_eq!(
                transfers.is_named(&link.parse().unwrap()),
                expected,
                "{allowed:?} {link}"
            );
        };
        let buckets = ["*.bucket.example"];
        check(&[], "https://a.bucket.example/object", false);
        check(&buckets, "https://a.bucket.example/object", true);
        check(&buckets, "https://A.Bucket.example./object", true);
        check(&buckets, "https://bucket.example/object", false);
        check(&buckets, "https://notbucket.example/object", false);
        check(&buckets, "https://a.bucket.example.evil.example/", false);
        check(&["bucket.example"], "https://bucket.example/object", true);
        check(&["bucket.example"], "https://a.bucket.example/", false);
        check(&["*"], "https://any.example/object", true);
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed() {
        let moved =
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        let (link, served) = answering(&[moved]).await;
        let transfers = transfers("ws://127.0.0.1:7010/v1/workers/ws", Some(&[]));
        let (fetched, requests) = tokio::join!(transfers.fetch(&link, 10), served);
        assert_eq!(fetched, Err(TransferError::Forbidden));
        assert_eq!(requests.len(), 1);
    }

    /// `localhost` represents any name with a private address.
    #[tokio::test]
    async fn a_name_that_leads_inside_has_no_addresses() {
        use reqwest::dns::Resolve;
        let found = super::PublicNames
            .resolve("localhost".parse().unwrap())
            .await;
        let error = found.err().unwrap();
        assert!(error.is::<super::NotPublic>(), "{error}");
    }
}
