//! Opens a WebSocket to an address: over TCP or TLS, locally without TLS, or through a pipe in memory.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;

use super::{Dial, tls};
use muster_process::intake::{Intake, Uncounted};
use muster_protocol::link::{LARGEST_FRAME, PUBLIC_FRAME};

const READ_BUFFER: usize = 16 << 10;

/// A bidirectional byte stream.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

pub type Socket = WebSocketStream<Intake<Box<dyn Bytes>>>;

/// The reason why no socket was opened. Never contains the key.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("the coordinator URL has no host")]
    NoHost,
    #[error("looking up {host} failed ({cause}): check the name in url, and this machine's DNS")]
    Lookup { host: String, cause: io::Error },
    #[error("{}", connection(.0))]
    Connection(#[from] io::Error),
    #[error("{}", handshake(.0))]
    Handshake(Box<tungstenite::Error>),
}

fn connection(error: &io::Error) -> String {
    if let Some(why) = tls::explain(error) {
        return why;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused: check the port in url, and that the coordinator runs".to_owned()
        }
        io::ErrorKind::TimedOut => {
            "connecting timed out: check the address in url, and firewalls in between".to_owned()
        }
        io::ErrorKind::UnexpectedEof => {
            "the connection was closed during the handshake: check the port in url".to_owned()
        }
        _ => {
            format!(
                "connecting failed ({error}): check the address in url, and this machine's network"
            )
        }
    }
}

fn handshake(error: &tungstenite::Error) -> String {
    use tungstenite::Error;
    use tungstenite::error::ProtocolError;
    match error {
        Error::Io(error) => connection(error),
        Error::Http(answer) => format!(
            "expected a WebSocket, got the response {}: check the path in url; a coordinator with only the AI Horde API needs kind = \"legacy\"",
            answer.status()
        ),
        Error::HttpFormat(_)
        | Error::Protocol(ProtocolError::HttparseError(_) | ProtocolError::HandshakeIncomplete) => {
            "the response is not HTTP: a coordinator with TLS needs wss:// or https:// in url"
                .to_owned()
        }
        error => format!("the WebSocket handshake failed ({error}): check the path in url"),
    }
}

impl Dial {
    pub(super) async fn open(&self) -> Result<Socket, DialError> {
        match self {
            Self::Url { url, tls } => dial(url, tls).await,
            Self::Local(address) => {
                let tcp = TcpStream::connect(address).await?;
                tcp.set_nodelay(true)?;
                Ok(bare_socket(Box::new(tcp)).await)
            }
            Self::Pipe(pipe) => Ok(bare_socket(Box::new(pipe())).await),
        }
    }
}

/// Frames from the first byte on.
async fn bare_socket(stream: Box<dyn Bytes>) -> Socket {
    WebSocketStream::from_raw_socket(intake(stream), Role::Client, Some(config())).await
}

async fn dial(url: &Url, tls: &Arc<ClientConfig>) -> Result<Socket, DialError> {
    let host = url.host_str().ok_or(DialError::NoHost)?;
    let port = url.port_or_known_default().ok_or(DialError::NoHost)?;
    let tcp = connect(host, port).await?;
    let stream: Box<dyn Bytes> = match url.scheme() {
        "wss" => Box::new(encrypt(host, tls, tcp).await?),
        _ => Box::new(tcp),
    };
    let stream = intake(stream).after_handshake();
    let opened = client_async_with_config(url.as_str(), stream, Some(config())).await;
    let (socket, _) = opened.map_err(|error| DialError::Handshake(Box::new(error)))?;
    Ok(socket)
}

pub(super) async fn encrypt(
    host: &str,
    tls: &Arc<ClientConfig>,
    tcp: TcpStream,
) -> Result<TlsStream<TcpStream>, DialError> {
    let name = bare(host).to_owned();
    let name = ServerName::try_from(name).map_err(|_| DialError::NoHost)?;
    let connector = TlsConnector::from(Arc::clone(tls));
    Ok(connector.connect(name, tcp).await?)
}

/// A host of an address without the brackets of IPv6.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Without TCP_NODELAY every small frame waits for the acknowledgement of the one before: 40 ms a token.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let addresses = lookup(host, port).await?;
    let tcp = TcpStream::connect(&addresses[..]).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Before the registration a coordinator sends only small frames.
fn intake(stream: Box<dyn Bytes>) -> Intake<Box<dyn Bytes>> {
    let mut intake = Intake::new(stream, Uncounted, Vec::new(), READ_BUFFER);
    intake.set_limit(PUBLIC_FRAME);
    intake
}

pub(super) async fn lookup(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    let failed = |cause| DialError::Lookup {
        host: bare(host).to_owned(),
        cause,
    };
    let found = lookup_host((bare(host), port)).await.map_err(failed)?;
    Ok(found.collect())
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(LARGEST_FRAME))
        .max_frame_size(Some(LARGEST_FRAME))
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::net::TcpListener;

    use super::{DialError, connect};

    #[test]
    fn a_failed_connection_says_what_to_check() {
        let refused = DialError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(
            refused.to_string(),
            "connection refused: check the port in url, and that the coordinator runs"
        );
    }

    #[tokio::test]
    async fn tcp_nodelay_is_set_on_every_dialled_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tcp = connect("127.0.0.1", port).await.unwrap();
        assert!(tcp.nodelay().unwrap());
    }
}
