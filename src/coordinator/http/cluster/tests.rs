//! Nodes on free ports of this machine, with simulated leaders.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::{FutureExt, SinkExt, StreamExt};
use http_body_util::BodyExt;
use muster_testing::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_tungstenite::tungstenite::Message;
use tower::ServiceExt;

use super::Node;
use super::signature::FORWARDED;
use crate::http::headers::NOT_LEADING;
use crate::http::journal::JournaledRequest;
use crate::http::serve::{Connections, PeerAddress, serve};
use crate::leadership::{Epoch, Leadership};
use crate::storage::Leader;
use muster_process::tasks::Tasks;

const SECRET: [u8; 32] = [3; 32];
const CLIENT: &str = "198.51.100.7";

/// A node and its address.
struct TestNode {
    node: Node,
    url: String,
    tasks: Tasks,
}

impl TestNode {
    async fn start() -> Self {
        Self::with_secret(&SECRET).await
    }

    async fn with_secret(secret: &[u8; 32]) -> Self {
        let tasks = Tasks::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let node = Node::new(&url, secret, "settings", &tasks);
        let limit = serve(
            listener,
            node.router(),
            None,
            Connections::default(),
            &tasks,
        );
        node.exempt_nodes_from(limit);
        node.probe(&tasks);
        Self { node, url, tasks }
    }

    fn follow(&self, epoch: i64, url: &str) {
        self.node.follow(Some(&Leader {
            epoch: Epoch(epoch),
            address: Some(url.to_owned()),
            lease_age: Duration::from_millis(100),
        }));
    }

    /// Sends a request as a client of this node.
    async fn ask(&self, request: Request) -> (StatusCode, String) {
        let (status, _, body) = self.ask_whole(request).await;
        (status, body)
    }

    async fn ask_whole(&self, mut request: Request) -> (StatusCode, HeaderMap, String) {
        let client = PeerAddress(CLIENT.parse().unwrap());
        request.extensions_mut().insert(client);
        let response = self.node.router().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, headers, String::from_utf8_lossy(&body).into_owned())
    }
}

fn request(method: &str, path: &str, body: &'static str) -> Request {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("host", "service.example");
    let request = match body {
        "" => request,
        body => request.header("content-length", body.len()),
    };
    request.body(Body::from(body)).unwrap()
}

/// Replies with the received client, host, some headers and the body.
async fn mirror(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let client = parts.extensions.get::<PeerAddress>().unwrap().0;
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap());
    let text = format!(
        "{client} {:?} {:?} {:?} {}",
        header("host"),
        header("proxy-authorization"),
        header(FORWARDED.as_str()),
        String::from_utf8_lossy(&body)
    );
    (
        [("connection", "x-mine"), ("x-mine", "1"), ("x-all", "2")],
        text,
    )
        .into_response()
}

async fn leading(router: Router, epoch: i64) -> TestNode {
    let place = TestNode::start().await;
    let leadership = Leadership::undisputed(Epoch(epoch));
    place.node.lead(&leadership, router);
    place
}

#[tokio::test]
async fn a_follower_passes_requests_on_with_the_address_of_the_client() {
    let leader = leading(Router::new().fallback(mirror), 1).await;
    let follower = TestNode::start().await;
    follower.follow(1, &leader.url);
    let mut asked = request("POST", "/v1/anything?a=1", "a body");
    let headers = asked.headers_mut();
    headers.insert("proxy-authorization", "passkey".parse().unwrap());
    headers.insert("keep-alive", "timeout=1".parse().unwrap());
    let (status, headers, body) = follower.ask_whole(asked).await;
    assert_eq!(status, StatusCode::OK);
    let expected = format!("{CLIENT} Some(\"service.example\") Some(\"passkey\") None a body");
    assert_eq!(body, expected);
    assert!(headers.contains_key("x-all") && !headers.contains_key("x-mine"));
    // A large body of unknown length is streamed.
    let large = vec![b'x'; 3 << 20];
    let pieces: Vec<_> = large.chunks(1 << 16).map(<[u8]>::to_vec).collect();
    let pieces = pieces
        .into_iter()
        .map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    let asked = Request::builder().method("PUT").uri("/large").body(body);
    let (status, body) = follower.ask(asked.unwrap()).await;
    assert_eq!((status, body.ends_with("xxx")), (StatusCode::OK, true));
    assert!(body.len() > large.len());
    let figures = follower.node.figures(None);
    assert_eq!(
        (figures.is_leader, figures.epoch, figures.failed),
        (false, 1, 0)
    );
    assert_eq!((figures.received, figures.forwarded), (2, 2));
}

#[tokio::test]
async fn a_header_of_no_node_is_refused_and_counted() {
    let leader = leading(Router::new().fallback(mirror), 1).await;
    let mut forged = request("GET", "/", "");
    let stranger = TestNode::with_secret(&[4; 32]).await;
    let header = stranger
        .node
        .0
        .signer
        .sign(CLIENT.parse().unwrap(), &forged);
    forged.headers_mut().insert(FORWARDED, header);
    assert_eq!(leader.ask(forged).await.0, StatusCode::BAD_REQUEST);
    // A follower refuses such a header from its client, too.
    let follower = TestNode::start().await;
    follower.follow(1, &leader.url);
    let mut forged = request("GET", "/", "");
    forged
        .headers_mut()
        .insert(FORWARDED, "1 127.0.0.1 00".parse().unwrap());
    assert_eq!(follower.ask(forged).await.0, StatusCode::BAD_REQUEST);
    let counts = [&leader, &follower].map(|place| place.node.figures(None).forged);
    assert_eq!(counts, [1, 1]);
}

#[tokio::test]
async fn a_request_waits_for_the_next_leader() {
    let follower = Arc::new(TestNode::start().await);
    let asked = {
        let follower = follower.clone();
        Tasks::default()
            .start(async move { follower.ask(request("POST", "/later", "a body")).await })
    };
    // An address without a listener, then a former leader, then the leader.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    follower.follow(1, &url);
    eventually("a try at the first address", || async {
        let failed = follower.node.figures(None).failed;
        (failed > 0).then_some(()).ok_or("no try yet")
    })
    .await;
    let former = TestNode::start().await;
    let failed = follower.node.figures(None).failed;
    follower.follow(2, &former.url);
    eventually("a try at the second address", || async {
        let now = follower.node.figures(None).failed;
        (now > failed).then_some(()).ok_or("no try yet")
    })
    .await;
    let leader = leading(Router::new().fallback(mirror), 3).await;
    follower.follow(3, &leader.url);
    let (status, body) = asked.await.unwrap();
    assert_eq!(status, StatusCode::OK, "{body}");
    assert!(body.ends_with(" a body"), "{body}");
    // The same if the node itself becomes the leader.
    let other = Arc::new(TestNode::start().await);
    let asked = {
        let other = other.clone();
        Tasks::default().start(async move { other.ask(request("GET", "/own", "")).await })
    };
    eventually("a request that waits", || async {
        // The probe has the other receiver.
        let receivers = other.node.0.role.receiver_count();
        (receivers == 2).then_some(()).ok_or(receivers.to_string())
    })
    .await;
    let leadership = Leadership::undisputed(Epoch(4));
    other.node.lead(&leadership, Router::new().fallback(mirror));
    assert_eq!(asked.await.unwrap().0, StatusCode::OK);
}

/// A server that reads a request from each connection and closes it without a response; counts the connections.
async fn breaking() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    Tasks::default().start(async move {
        loop {
            let (mut stream, _): (TcpStream, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (url, count)
}

#[tokio::test]
async fn what_a_lost_leader_may_have_done_is_repeated_by_the_client_alone() {
    let follower = TestNode::start().await;
    let (broken, _) = breaking().await;
    follower.follow(1, &broken);
    let (status, headers, body) = follower
        .ask_whole(request("POST", "/v1/kudos", "give"))
        .await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(
        headers.contains_key("retry-after") && body.contains("repeat it"),
        "{body}"
    );
    // A request with a safe method is sent to the next leader.
    let follower = Arc::new(follower);
    let asked = {
        let follower = follower.clone();
        Tasks::default().start(async move { follower.ask(request("GET", "/v1/models", "")).await })
    };
    eventually("a request that broke", || async {
        let failed = follower.node.figures(None).failed;
        (failed > 1).then_some(()).ok_or("none yet")
    })
    .await;
    let leader = leading(Router::new().fallback(mirror), 2).await;
    follower.follow(2, &leader.url);
    assert_eq!(asked.await.unwrap().0, StatusCode::OK);
}

#[tokio::test]
async fn a_response_of_a_leader_that_stands_still_ends_with_it() {
    let (chunks, stream) = mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    let stream = tokio_stream_of(stream);
    let body = Arc::new(parking_lot::Mutex::new(Some(Body::from_stream(stream))));
    let router = Router::new()
        .route(
            "/stream",
            get(
                |State(body): State<Arc<parking_lot::Mutex<Option<Body>>>>| async move {
                    Response::new(body.lock().take().unwrap())
                },
            ),
        )
        .with_state(body);
    let leader = leading(router, 1).await;
    let follower = TestNode::start().await;
    follower.follow(1, &leader.url);
    let asked = request("GET", "/stream", "");
    let response = follower.node.router().oneshot(asked).await.unwrap();
    let mut body = response.into_body();
    chunks.send(Ok(Bytes::from_static(b"one"))).await.unwrap();
    let first = body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "one");
    // Another coordinator was elected, and is not ready yet.
    follower.node.follow(None);
    // The former one may send the rest.
    chunks.send(Ok(Bytes::from_static(b"two"))).await.unwrap();
    let second = body.frame().await.unwrap().unwrap();
    assert_eq!(second.into_data().unwrap(), "two");
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("leading coordinator"), "{error}");
}

fn tokio_stream_of(
    receiver: mpsc::Receiver<Result<Bytes, std::io::Error>>,
) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
    futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    })
}

#[tokio::test]
async fn a_websocket_goes_through_a_follower() {
    let echo = |request: Request| async move {
        let (mut parts, _) = request.into_parts();
        let upgrade = hyper::upgrade::on(Request::from_parts(parts.clone(), ()));
        let key = parts.headers.remove("sec-websocket-key").unwrap();
        Tasks::default().start(async move {
            let stream = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
            let role = tokio_tungstenite::tungstenite::protocol::Role::Server;
            let socket = tokio_tungstenite::WebSocketStream::from_raw_socket(stream, role, None);
            let (mut sink, mut stream) = socket.await.split();
            while let Some(Ok(message)) = stream.next().await {
                sink.send(message).await.unwrap();
            }
        });
        let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
        let headers = [
            ("connection", "upgrade".to_owned()),
            ("upgrade", "websocket".to_owned()),
            ("sec-websocket-accept", accept),
        ];
        (StatusCode::SWITCHING_PROTOCOLS, headers)
    };
    let leader = leading(Router::new().route("/socket", any(echo)), 1).await;
    let follower = TestNode::start().await;
    follower.follow(1, &leader.url);
    let url = format!("{}/socket", follower.url.replace("http", "ws"));
    let stream = TcpStream::connect(follower.url.trim_start_matches("http://"))
        .await
        .unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
    for size in [1, 1000, 1 << 20] {
        let sent = Message::binary(vec![7; size]);
        socket.send(sent.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), sent);
    }
    // The socket ends when another coordinator leads.
    follower.node.follow(None);
    assert!(!matches!(socket.next().await, Some(Ok(_))));
    assert!(follower.tasks.stop(Duration::from_secs(5)).await);
}

/// Waits for the permit, and answers like a leader that has handed the request over, if it may be repeated.
async fn handing_over(State(permit): State<Arc<Semaphore>>, request: Request) -> Response {
    permit.acquire().await.unwrap().forget();
    let is_kept = request.extensions().get::<JournaledRequest>().is_some();
    let mut response = StatusCode::SERVICE_UNAVAILABLE.into_response();
    if is_kept {
        let yes = "1".parse().unwrap();
        response.headers_mut().insert(NOT_LEADING, yes);
    }
    response
}

#[tokio::test]
async fn requests_that_a_leader_hands_over_are_repeated_at_the_next_one() {
    let permit = Arc::new(Semaphore::new(0));
    let router = Router::new()
        .route("/health/live", get(|| async {}))
        .fallback(handing_over);
    let first = leading(router.clone().with_state(permit.clone()), 1).await;
    let first = Arc::new(first);
    let follower = Arc::new(TestNode::start().await);
    follower.follow(1, &first.url);
    eventually("a leader that knows of its follower", || async {
        let knows = first.node.has_followers();
        knows.then_some(()).ok_or("it does not")
    })
    .await;
    let asked: Vec<_> = [&first, &follower]
        .map(|node| {
            let node = node.clone();
            let asked = async move { node.ask(request("POST", "/v1/text", "a body")).await };
            Tasks::default().start(asked)
        })
        .into_iter()
        .collect();
    eventually("two open requests", || async {
        let open = [&first, &follower].map(|place| place.node.open_requests());
        (open == [1, 1]).then_some(()).ok_or(format!("{open:?}"))
    })
    .await;
    first.node.resign();
    // Neither is answered before another node leads, and the former leader does not follow itself.
    permit.add_permits(2);
    eventually("a request that was returned", || async {
        let failed = follower.node.figures(None).failed;
        (failed > 0).then_some(()).ok_or("none")
    })
    .await;
    first.follow(1, &first.url);
    let status = first.ask(request("GET", "/health/ready", "")).await;
    assert!(
        status.0 == 503 && status.1.contains("draining"),
        "{status:?}"
    );
    let second = leading(Router::new().fallback(mirror), 2).await;
    first.follow(2, &second.url);
    follower.follow(2, &second.url);
    for asked in asked {
        let (status, body) = asked.await.unwrap();
        assert_eq!(status, StatusCode::OK, "{body}");
        assert!(body.ends_with(" a body"), "{body}");
    }
    assert!(second.node.leaving().now_or_never().is_none());
    // A request that may not be repeated keeps its reply.
    permit.add_permits(1);
    let third = leading(router.with_state(permit), 3).await;
    let mut form = request("POST", "/v1/text", "a body");
    let kind = "multipart/form-data; boundary=a".parse().unwrap();
    form.headers_mut().insert("content-type", kind);
    assert_eq!(third.ask(form).await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_follower_is_ready_while_its_leader_answers() {
    let follower = TestNode::start().await;
    let status = async || {
        let (status, body) = follower.ask(request("GET", "/health/ready", "")).await;
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        (status.as_u16(), body["status"].as_str().unwrap().to_owned())
    };
    assert_eq!(status().await, (503, "starting".to_owned()));
    let leader = leading(Router::new().route("/health/live", get(|| async {})), 1).await;
    follower.follow(1, &leader.url);
    eventually("a ready follower", async || match status().await {
        (200, word) if word == "ready" => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let (_, metrics) = follower.ask(request("GET", "/metrics", "")).await;
    assert!(metrics.contains("muster_cluster_leader 0\n"), "{metrics}");
    assert!(metrics.contains("muster_cluster_epoch 1\n"), "{metrics}");
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split(' ').nth(1));
        value.and_then(|value| value.parse::<f64>().ok())
    };
    let age = value("muster_cluster_lease_age_seconds").unwrap();
    assert!((0.1..60.0).contains(&age), "{metrics}");
    let round_trip = value("muster_cluster_round_trip_seconds").unwrap();
    assert!(round_trip > 0.0 && round_trip < 1.0, "{metrics}");
    // Checks of health are not requests of clients.
    assert_eq!(value("muster_cluster_requests_total"), Some(0.0));
    assert_eq!(value("muster_cluster_nodes"), None);
    let leading = Leadership::elected(Epoch(1));
    let figures = leader.node.figures(Some(&leading));
    let (heard, cut_off) = figures
        .nodes
        .map(|nodes| (nodes.heard, nodes.cut_off))
        .unwrap();
    assert_eq!((heard, cut_off, figures.round_trip), (2, 0, None));
    assert!(figures.lease_age.unwrap() < Duration::from_secs(60));
    let others = || leader.node.0.others.list();
    let known = others().into_iter().map(|node| node.address.to_string());
    assert_eq!(known.collect::<Vec<_>>(), [follower.url.as_str()]);
    // The former leader keeps its connections, and replies that it does not lead.
    leader.node.follow(None);
    eventually("a follower that is cut off", async || {
        match status().await {
            (503, word) if word == "cut_off" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let mut stream = TcpStream::connect(follower.url.trim_start_matches("http://"))
        .await
        .unwrap();
    stream
        .write_all(b"GET /health/live HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    // A follower that stops takes its leave.
    assert!(follower.tasks.stop(Duration::from_secs(5)).await);
    assert_eq!(others(), []);
}
