//! Real sockets on the loopback, and a router that needs nothing.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

use super::accept::accept;
use super::{Connections, Tls, TlsFiles, serve};
use muster_process::tasks::Tasks;

struct Server {
    address: SocketAddr,
    tasks: Tasks,
    /// Lets `/slow` answer.
    go: Arc<Notify>,
    /// Notifies of a request to `/slow`.
    asked: Arc<Notify>,
}

impl Server {
    async fn start(connections: Connections, tls: Option<Tls>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (go, asked) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (wait, tell) = (go.clone(), asked.clone());
        let slow = get(move || async move {
            tell.notify_one();
            wait.notified().await;
            "slowly"
        });
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/slow", slow);
        let tasks = Tasks::default();
        serve(listener, router, tls, connections, &tasks);
        Self {
            address,
            tasks,
            go,
            asked,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, path: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    read(stream).await
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    let _ = timeout(Duration::from_secs(20), reading).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn every_accepted_socket_sends_without_delay() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_client, accepted) = tokio::join!(TcpStream::connect(address), accept(&listener));
    assert!(accepted.unwrap().nodelay().unwrap());
}

#[tokio::test]
async fn beside_a_thousand_slow_connections_others_are_answered_within_seconds() {
    let server = Server::start(Connections::default(), None).await;
    let mut slow = Vec::new();
    for index in 0..1000 {
        let mut stream = server.connect().await;
        let begun: &[u8] = match index % 3 {
            0 => b"",
            1 => b"GET / HT",
            _ => b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nx",
        };
        stream.write_all(begun).await.unwrap();
        slow.push(stream);
    }
    let before = Instant::now();
    for _ in 0..20 {
        let answer = ask(&mut server.connect().await, "/").await;
        assert!(answer.ends_with("here"), "{answer}");
    }
    assert!(before.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_connection_that_never_says_what_it_wants_is_closed() {
    let connections = Connections {
        header_patience: Duration::from_millis(100),
        idle: Duration::from_millis(200),
        ..Connections::default()
    };
    let server = Server::start(connections, None).await;
    for begun in ["", "PRI", "GET / HT", "GET / HTTP/1.1\r\nhost: x\r\n"] {
        let mut stream = server.connect().await;
        stream.write_all(begun.as_bytes()).await.unwrap();
        // The server may close with a 408 or silently.
        read(&mut stream).await;
    }
}

#[tokio::test]
async fn a_request_that_takes_its_time_is_not_idle() {
    let connections = Connections {
        idle: Duration::from_millis(100),
        ..Connections::default()
    };
    let server = Server::start(connections, None).await;
    let mut stream = server.connect().await;
    let go = server.go.clone();
    let (answer, ()) = tokio::join!(ask(&mut stream, "/slow"), async {
        sleep(Duration::from_millis(400)).await;
        go.notify_one();
    });
    assert!(answer.ends_with("slowly"), "{answer}");
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let connections = Connections {
        most: 2,
        ..Connections::default()
    };
    let server = Server::start(connections, None).await;
    let _kept = [server.connect().await, server.connect().await];
    let answer = read(&mut server.connect().await).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("Retry-After: 1"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
}

#[tokio::test]
async fn one_connection_too_many_of_one_address_is_told_so() {
    let connections = Connections {
        most_of_household: Some(2),
        of_many: Vec::new(),
        ..Connections::default()
    };
    let server = Server::start(connections, None).await;
    let _kept = [server.connect().await, server.connect().await];
    let answer = read(&mut server.connect().await).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("from your address"), "{answer}");
}

#[tokio::test]
async fn a_stop_lets_running_requests_end_and_accepts_no_others() {
    let server = Server::start(Connections::default(), None).await;
    let mut idle = server.connect().await;
    let mut stream = server.connect().await;
    let tasks = server.tasks.clone();
    let (answer, stopped) = tokio::join!(ask(&mut stream, "/slow"), async {
        server.asked.notified().await;
        let stopping = tasks.stop(Duration::from_secs(20));
        let end = async {
            // The idle connection is closed at once, while the other is still being answered.
            read(&mut idle).await;
            server.go.notify_one();
        };
        tokio::join!(stopping, end).0
    });
    assert!(answer.ends_with("slowly"), "{answer}");
    assert!(stopped);
    assert!(TcpStream::connect(server.address).await.is_err());
}

fn fixture(name: &str) -> std::path::PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join("tests/fixtures/tls").join(name)
}

#[tokio::test]
async fn connections_from_before_a_stop_are_served_a_request() {
    let server = Server::start(Connections::default(), None).await;
    let mut accepted = server.connect().await;
    assert!(
        ask(&mut server.connect().await, "/")
            .await
            .ends_with("here")
    );
    let address = server.address;
    // Not accepted yet: the task of the listener does not run in between.
    let waiting = std::net::TcpStream::connect(address).unwrap();
    waiting.set_nonblocking(true).unwrap();
    let mut waiting = TcpStream::from_std(waiting).unwrap();
    let stopping = server.tasks.stop(Duration::from_secs(20));
    let clients = async {
        for stream in [&mut accepted, &mut waiting] {
            assert!(ask(stream, "/").await.ends_with("here"));
        }
    };
    let (has_stopped, ()) = tokio::join!(stopping, clients);
    assert!(has_stopped);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn certificates_from_files_encrypt_and_can_be_replaced() {
    let (tls, _) = Tls::read(&files("certificate.pem", "key.pem")).unwrap();
    let server = Server::start(Connections::default(), Some(tls.clone())).await;
    let answer = ask(&mut connect(&server, "certificate.pem").await.unwrap(), "/").await;
    assert!(answer.ends_with("here"), "{answer}");
    let (renewed, _) = Tls::read(&files("other-certificate.pem", "other-key.pem")).unwrap();
    tls.replace(&renewed);
    let answer = ask(
        &mut connect(&server, "other-certificate.pem").await.unwrap(),
        "/",
    )
    .await;
    assert!(answer.ends_with("here"), "{answer}");
    assert!(connect(&server, "certificate.pem").await.is_err());
}

/// A connection that trusts this certificate alone.
async fn connect(
    server: &Server,
    certificate: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    let own = CertificateDer::from_pem_file(fixture(certificate)).unwrap();
    roots.add(own).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, server.connect().await);
    stream.await
}

fn files(certificate: &str, key: &str) -> TlsFiles {
    TlsFiles {
        certificate: fixture(certificate),
        key: fixture(key),
    }
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let error = Tls::read(&files("key.pem", "key.pem")).map(drop);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("key.pem contains no certificate"), "{error}");
    let error = Tls::read(&files("certificate.pem", "none.pem")).map(drop);
    let error = error.unwrap_err();
    assert!(
        error.to_string().contains("none.pem as PEM failed"),
        "{error}"
    );
}
