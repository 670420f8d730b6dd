//! From an address to a WebSocket: TCP, TLS or a pipe in memory.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;

use super::Dial;
use crate::intake::{Intake, Uncounted};
use crate::protocol::link::{LARGEST_FRAME, PUBLIC_FRAME};

const READ_BUFFER: usize = 16 << 10;

/// Bytes in both directions, whatever carries them.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

pub type Socket = WebSocketStream<Intake<Box<dyn Bytes>>>;

/// Why no socket came about. Nothing of the key is in it.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("the address names no host")]
    NoHost,
    #[error("no connection: {0}")]
    Connection(#[from] io::Error),
    #[error("no WebSocket: {0}")]
    Handshake(Box<tungstenite::Error>),
}

impl Dial {
    pub(super) async fn open(&self) -> Result<Socket, DialError> {
        match self {
            Self::Url { url, tls } => dial(url, tls).await,
            Self::Pipe(pipe) => {
                let stream = intake(Box::new(pipe()));
                let socket = WebSocketStream::from_raw_socket(stream, Role::Client, Some(config()));
                Ok(socket.await)
            }
        }
    }
}

async fn dial(url: &Url, tls: &Arc<ClientConfig>) -> Result<Socket, DialError> {
    let host = url.host_str().ok_or(DialError::NoHost)?;
    let port = url.port_or_known_default().ok_or(DialError::NoHost)?;
    let tcp = connect(host, port).await?;
    let stream: Box<dyn Bytes> = match url.scheme() {
        "wss" => {
            let name = host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned();
            let name = ServerName::try_from(name).map_err(|_| DialError::NoHost)?;
            let connector = TlsConnector::from(Arc::clone(tls));
            Box::new(connector.connect(name, tcp).await?)
        }
        _ => Box::new(tcp),
    };
    let stream = intake(stream).after_handshake();
    let opened = client_async_with_config(url.as_str(), stream, Some(config())).await;
    let (socket, _) = opened.map_err(|error| DialError::Handshake(Box::new(error)))?;
    Ok(socket)
}

/// Without TCP_NODELAY every small frame waits for the acknowledgement of the one before: 40 ms a token.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let tcp = TcpStream::connect((host, port)).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Until it takes this worker in, a coordinator has nothing large to say.
fn intake(stream: Box<dyn Bytes>) -> Intake<Box<dyn Bytes>> {
    let mut intake = Intake::new(stream, Uncounted, Vec::new(), READ_BUFFER);
    intake.set_limit(PUBLIC_FRAME);
    intake
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(LARGEST_FRAME))
        .max_frame_size(Some(LARGEST_FRAME))
}

/// Trusts whom the machine trusts.
pub fn native_tls() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    ))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::connect;

    #[tokio::test]
    async fn tcp_nodelay_is_set_on_every_dialled_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tcp = connect("127.0.0.1", port).await.unwrap();
        assert!(tcp.nodelay().unwrap());
    }
}
