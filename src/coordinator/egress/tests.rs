use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::names::{LOOKUPS, Lookups, Names};
use super::target::Permitted;
use super::{Egress, EgressError, Limits, Schemes};
use muster_process::tasks::Tasks;
use muster_testing::eventually;

const LIMITS: Limits = Limits {
    schemes: Schemes::HttpToo,
    bytes: 1000,
    time: Duration::from_secs(10),
    redirects: 2,
};

/// A server on this machine that sends a given reply and records its requests.
pub struct Server {
    pub port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    _tasks: Tasks,
}

/// Behaviour after the reply.
#[derive(Clone, Copy)]
enum After {
    Nothing,
    Silence,
    More,
}

impl Server {
    pub async fn start(answer: impl Into<Vec<u8>>) -> Self {
        Self::going_on(answer, After::Nothing).await
    }

    async fn going_on(answer: impl Into<Vec<u8>>, after: After) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (tasks, heard, answer) = (Tasks::default(), asked.clone(), answer.into());
        tasks.start(async move {
            while let Ok((socket, _)) = listener.accept().await {
                answer_one(socket, &answer, after, &heard).await;
            }
        });
        Self {
            port,
            asked,
            _tasks: tasks,
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

async fn answer_one(
    mut socket: TcpStream,
    answer: &[u8],
    after: After,
    heard: &Mutex<Vec<String>>,
) {
    let mut said = Vec::new();
    while !said.windows(4).any(|end| end == b"\r\n\r\n") {
        match socket.read_buf(&mut said).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    let whole = said.len().max(length(&said));
    while said.len() < whole && socket.read_buf(&mut said).await.is_ok_and(|more| more > 0) {}
    heard
        .lock()
        .push(String::from_utf8_lossy(&said).into_owned());
    let _ = socket.write_all(answer).await;
    match after {
        After::Nothing => {}
        After::Silence => {
            let _ = socket.read_u8().await;
        }
        After::More => {
            while socket
                .write_all(b"10\r\n0123456789abcdef\r\n")
                .await
                .is_ok()
            {}
        }
    }
}

/// Bytes of a head and the body it announces.
fn length(said: &[u8]) -> usize {
    let said = String::from_utf8_lossy(said).to_lowercase();
    let (head, _) = said.split_once("\r\n\r\n").unwrap_or_default();
    let announced = head.split("content-length: ").nth(1).unwrap_or("0");
    let body: usize = announced.lines().next().unwrap().parse().unwrap();
    head.len() + 4 + body
}

pub fn ok(headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}

fn moved(place: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n")
}

fn permitting(servers: &[&Server]) -> Egress {
    Egress::permitting_own_ports(servers.iter().map(|server| server.port))
}

fn told(answers: &[(&'static str, &str)], servers: &[&Server]) -> Egress {
    let parse = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
    let answers = answers.iter().map(|(name, text)| (*name, parse(text)));
    let names = Names::Told(Arc::new(Mutex::new(answers.collect())));
    let ports = servers.iter().map(|server| server.port).collect();
    Egress::with(names, Permitted(ports))
}

async fn refusal(egress: &Egress, url: &str) -> EgressError {
    egress.fetch(url, LIMITS).await.unwrap_err()
}

#[tokio::test]
async fn what_is_there_is_fetched() {
    let server = Server::start(ok("content-type: image/png\r\n", "pixels")).await;
    let fetched = permitting(&[&server]).fetch(&server.url(), LIMITS).await;
    let fetched = fetched.unwrap();
    assert_eq!(fetched.bytes, "pixels");
    assert_eq!(fetched.content_type.as_deref(), Some("image/png"));
    let asked = server.asked().concat().to_lowercase();
    assert!(asked.contains("accept-encoding: identity"), "{asked}");
    assert!(asked.contains("user-agent: muster/"), "{asked}");
}

#[tokio::test]
async fn this_machine_is_not_asked() {
    let server = Server::start(ok("", "secret")).await;
    let port = server.port;
    let egress = Egress::new();
    for url in [
        server.url(),
        format!("http://localhost:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://017700000001:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0:{port}/"),
    ] {
        assert_eq!(refusal(&egress, &url).await, EgressError::Inside, "{url}");
    }
    assert_eq!(server.asked(), [""; 0]);
}

#[tokio::test]
async fn internal_names_are_not_asked_and_fail_like_unknown_ones() {
    let server = Server::start(ok("", "secret")).await;
    let unknown = refusal(&told(&[], &[]), "http://unknown.example/").await;
    assert_eq!(unknown, EgressError::Unreachable);
    for inside in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "fd00::1", "::1"] {
        let egress = told(&[("innocent.example", inside)], &[]);
        let refused = refusal(&egress, "http://innocent.example/").await;
        assert_eq!(refused, unknown, "{inside}");
        // The port is refused before the lookup, so the error reveals nothing of the name.
        let url = format!("http://innocent.example:{}/", server.port);
        assert_eq!(refusal(&egress, &url).await, EgressError::Port(server.port));
    }
    assert_eq!(server.asked(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_lookups_keep_their_permit_until_they_return() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static HIGHEST: AtomicUsize = AtomicUsize::new(0);
    static SLOW: AtomicBool = AtomicBool::new(true);
    const MOST_PAUSES: usize = 12_000;
    fn resolve(_: &str) -> io::Result<Vec<IpAddr>> {
        let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
        HIGHEST.fetch_max(running, Ordering::SeqCst);
        // Bounded: the runtime of a failing test waits for its threads.
        for _ in 0..MOST_PAUSES {
            if !SLOW.load(Ordering::SeqCst) {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        Err(io::ErrorKind::NotFound.into())
    }
    let names = Names::System(Lookups::with(resolve));
    let egress = Egress::with(names, Permitted::default());
    let limits = Limits {
        time: Duration::from_millis(50),
        ..LIMITS
    };
    let fetch = || egress.fetch("http://slow.example/", limits);
    let fetches = futures_util::future::join_all((0..3 * LOOKUPS).map(|_| fetch()));
    for outcome in fetches.await {
        assert_eq!(outcome, Err(EgressError::TooSlow(limits.time)));
    }
    // All requests have timed out, and their lookups are still running, or start on a late thread.
    assert_eq!(fetch().await, Err(EgressError::TooSlow(limits.time)));
    eventually("all lookups to run", async || {
        let running = RUNNING.load(Ordering::SeqCst);
        (running == LOOKUPS).then_some(()).ok_or(running)
    })
    .await;
    assert_eq!(HIGHEST.load(Ordering::SeqCst), LOOKUPS);
    SLOW.store(false, Ordering::SeqCst);
    let refused = refusal(&egress, "http://slow.example/").await;
    assert_eq!(refused, EgressError::Unreachable);
}

#[tokio::test]
async fn a_name_is_resolved_once_and_what_was_looked_at_is_asked() {
    let server = Server::start(ok("", "pixels")).await;
    // A second lookup would get no answer.
    let egress = told(&[("two-faced.example", "127.0.0.1")], &[&server]);
    let url = format!("http://two-faced.example:{}/", server.port);
    assert_eq!(egress.fetch(&url, LIMITS).await.unwrap().bytes, "pixels");
    let again = moved(&format!("http://two-faced.example:{}/", server.port));
    let mover = Server::start(again).await;
    let answers = [
        ("two-faced.example", "127.0.0.1"),
        ("two-faced.example", "10.0.0.1"),
    ];
    let egress = told(&answers, &[&server, &mover]);
    let url = format!("http://two-faced.example:{}/", mover.port);
    assert_eq!(refusal(&egress, &url).await, EgressError::Unreachable);
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn nobody_redirects_us_inward() {
    let inside = Server::start(ok("", "secret")).await;
    let places = [
        (inside.url(), EgressError::Inside),
        (format!("//localhost:{}/", inside.port), EgressError::Inside),
        ("http://10.0.0.1/".to_owned(), EgressError::Inside),
        ("http://[::ffff:a00:1]/".to_owned(), EgressError::Inside),
        (
            "http://169.254.169.254/latest".to_owned(),
            EgressError::Inside,
        ),
        (
            "file:///etc/passwd".to_owned(),
            EgressError::Scheme(Schemes::HttpToo),
        ),
        ("http://me:x@8.8.8.8/".to_owned(), EgressError::Credentials),
        ("http://".to_owned(), EgressError::NotAnAddress),
    ];
    for (place, expected) in places {
        let server = Server::start(moved(&place)).await;
        let refused = refusal(&permitting(&[&server]), &server.url()).await;
        assert_eq!(refused, expected, "{place}");
    }
    assert_eq!(inside.asked(), [""; 0]);
}

#[tokio::test]
async fn a_redirect_is_followed_and_a_circle_is_not() {
    let end = Server::start(ok("", "pixels")).await;
    let start = Server::start(moved(&end.url())).await;
    let egress = permitting(&[&start, &end]);
    assert_eq!(
        egress.fetch(&start.url(), LIMITS).await.unwrap().bytes,
        "pixels"
    );
    let circle = Server::start(moved("/round")).await;
    let refused = refusal(&permitting(&[&circle]), &circle.url()).await;
    assert_eq!(refused, EgressError::Redirects);
    assert_eq!(circle.asked().len(), 3);
}

#[tokio::test]
async fn large_endless_slow_and_compressed_bodies_are_given_up() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let large = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
    let gzip = ok("content-encoding: gzip\r\n", "\u{1f}");
    let cases = [
        (large, After::Silence, EgressError::TooLarge(1000)),
        (chunked, After::More, EgressError::TooLarge(1000)),
        (&gzip, After::Nothing, EgressError::Encoded),
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            After::Nothing,
            EgressError::Status(404),
        ),
        ("nonsense\r\n\r\n", After::Nothing, EgressError::Unreachable),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
            After::Nothing,
            EgressError::Unreachable,
        ),
    ];
    for (answer, after, expected) in cases {
        let server = Server::going_on(answer, after).await;
        let refused = refusal(&permitting(&[&server]), &server.url()).await;
        assert_eq!(refused, expected, "{answer}");
    }
    let slow = Server::going_on(chunked, After::Silence).await;
    let limits = Limits {
        time: Duration::from_millis(300),
        ..LIMITS
    };
    let refused = permitting(&[&slow]).fetch(&slow.url(), limits).await;
    assert_eq!(refused, Err(EgressError::TooSlow(limits.time)));
}

#[tokio::test]
async fn json_is_posted_and_the_status_told() {
    let server = Server::start(moved("http://10.0.0.1/")).await;
    let egress = permitting(&[&server]);
    let body = Bytes::from_static(b"{}");
    let status = egress.post_json(&server.url(), body.clone(), LIMITS).await;
    assert_eq!(status, Ok(302));
    let asked = server.asked().concat().to_lowercase();
    assert!(asked.starts_with("post / http/1.1"), "{asked}");
    assert!(asked.contains("content-type: application/json"), "{asked}");
    let url = server.url();
    let status = egress.post_json(&url, body.clone(), Limits::WEBHOOK).await;
    assert_eq!(status, Ok(302));
    let egress = Egress::new();
    let refused = egress.post_json("http://8.8.8.8/", body, Limits::WEBHOOK);
    let refused = refused.await;
    assert_eq!(refused, Err(EgressError::Scheme(Schemes::Https)));
}

#[test]
fn errors_tell_nothing_of_what_is_inside() {
    for error in [EgressError::Inside, EgressError::Unreachable] {
        let said = error.to_string();
        assert!(
            !said.contains(|letter: char| letter.is_ascii_digit()),
            "{said}"
        );
    }
}
