//! Media of jobs over HTTP: source images come by signed links, outputs go to upload links. Links are secrets: no error
//! names one.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use tokio::time::sleep;
use tokio_rustls::rustls::ClientConfig;
use url::Url;

use super::{Dial, tls};
use muster_protocol::link::UploadSlot;

const CONNECTING: Duration = Duration::from_secs(10);
/// Without a byte in either direction.
const STANDSTILL: Duration = Duration::from_secs(30);
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Reaches the media store of one coordinator. Clones share their connections.
#[derive(Debug, Clone, Default)]
pub struct Transfers(Arc<Connections>);

#[derive(Debug, Default)]
struct Connections {
    /// The coordinator itself, whose certificate may be pinned.
    own: Option<(Url, Arc<ClientConfig>)>,
    own_client: OnceLock<Result<Client, TransferError>>,
    other_client: OnceLock<Result<Client, TransferError>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    #[error("the link is not an HTTP address")]
    NotALink,
    #[error("the media store answered {0}")]
    Refused(StatusCode),
    #[error("the object has more than {most} bytes")]
    TooLarge { most: usize },
    #[error("{0}")]
    Failed(String),
}

impl Transfers {
    pub fn of(dial: &Dial) -> Self {
        match dial {
            Dial::Url { url, tls } => Self::near(url.clone(), tls.clone()),
            Dial::Local(_) | Dial::Pipe(_) => Self::default(),
        }
    }

    /// Of the coordinator at this address.
    pub fn near(url: Url, tls: Arc<ClientConfig>) -> Self {
        Self(Arc::new(Connections {
            own: Some((url, tls)),
            ..Connections::default()
        }))
    }

    /// An object of at most so many bytes.
    pub async fn fetch(&self, link: &str, most: usize) -> Result<Vec<u8>, TransferError> {
        let (client, url) = self.client(link)?;
        let get = || {
            let request = client.get(url.clone());
            async move { read(sent(request).await?, most).await }
        };
        retried(get).await
    }

    pub async fn put(&self, slot: &UploadSlot, bytes: Bytes) -> Result<(), TransferError> {
        let (client, url) = self.client(&slot.put_url)?;
        let put = || {
            let request = client.put(url.clone()).body(bytes.clone());
            let request = request.header(CONTENT_TYPE, &slot.content_type);
            async move { sent(request).await.map(|_| ()) }
        };
        retried(put).await
    }

    fn client(&self, link: &str) -> Result<(Client, Url), TransferError> {
        let url = Url::parse(link).map_err(|_| TransferError::NotALink)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TransferError::NotALink);
        }
        let own = self.0.own.as_ref();
        let own = own.filter(|(own, _)| own.host() == url.host());
        let client = match own {
            Some((_, tls)) => self.0.own_client.get_or_init(|| client(tls.clone())),
            None => self.0.other_client.get_or_init(|| {
                let tls = tls::native_tls().map_err(TransferError::Failed)?;
                client(tls)
            }),
        };
        Ok((client.clone()?, url))
    }
}

fn client(tls: Arc<ClientConfig>) -> Result<Client, TransferError> {
    let built = Client::builder()
        .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
        .tls_backend_preconfigured((*tls).clone())
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECTING)
        .read_timeout(STANDSTILL)
        .build();
    built.map_err(|error| failed(&error.without_url()))
}

async fn sent(request: RequestBuilder) -> Result<Response, TransferError> {
    let response = request.send().await;
    let response = response.map_err(|error| failed(&error.without_url()))?;
    match response.status() {
        status if status.is_success() => Ok(response),
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

/// Tries again while that may help.
async fn retried<T, F: Future<Output = Result<T, TransferError>>>(
    attempt: impl Fn() -> F,
) -> Result<T, TransferError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match attempt().await {
            Err(error) if error.may_pass() => sleep(pause).await,
            ended => return ended,
        }
        pause *= 2;
    }
    attempt().await
}

/// With the causes: the outermost error of a client says little.
fn failed(error: &reqwest::Error) -> TransferError {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
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
            Self::NotALink | Self::TooLarge { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::{TransferError, Transfers};
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
        assert_eq!(file, Err(TransferError::NotALink));
    }
}
