//! A server that behaves like the hub, and like the second host of large files.
//!
//! The server runs on a separate thread, on separate ports, and fails on demand.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::Response,
};
use futures_util::stream;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use tokio::{net::TcpListener, sync::watch};

pub const REPOSITORY: &str = "org/model";

/// What goes wrong with one request.
#[derive(Debug, Clone)]
pub enum Fault {
    Nothing,
    Status(u16),
    /// 429, with `Retry-After` in seconds.
    TooMany(u64),
    /// The connection breaks after so many bytes of the body.
    CutAfter(usize),
    /// From this request on a file has other bytes (and the repository another commit).
    Change(&'static str, Vec<u8>),
    /// The bytes are not those that the hub named.
    Corrupt,
}

/// A request as it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub range: Option<String>,
    pub token: Option<String>,
    pub second_host: bool,
}

pub struct FakeHub {
    pub endpoint: String,
    shared: Arc<Shared>,
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    second_host: SocketAddr,
    inner: Mutex<Inner>,
    served: AtomicU64,
    /// How many bytes of bodies may leave; those beyond it wait.
    allowance: watch::Sender<u64>,
    held: watch::Sender<bool>,
    open_bodies: watch::Sender<usize>,
}

/// Counts a body for as long as it may still send something.
struct OpenBody(Arc<Shared>);

impl OpenBody {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open_bodies.send_modify(|open| *open += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for OpenBody {
    fn drop(&mut self) {
        self.0.open_bodies.send_modify(|open| *open -= 1);
    }
}

#[derive(Default)]
struct Inner {
    files: HashMap<String, File>,
    changes: u8,
    token: Option<String>,
    ignores_ranges: bool,
    on_question: VecDeque<Fault>,
    on_redirect: VecDeque<Fault>,
    on_bytes: VecDeque<Fault>,
    seen: Vec<Seen>,
}

#[derive(Clone)]
struct File {
    bytes: Bytes,
    is_large: bool,
}

fn serve(
    shared: Arc<Shared>,
    listeners: [std::net::TcpListener; 2],
    mut stopped: watch::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async move {
        let [first, second] = listeners.map(|listener| TcpListener::from_std(listener).unwrap());
        let router = |is_second: bool| {
            let answer = move |State(shared): State<Arc<Shared>>, request: Request| async move {
                shared.answer(&request, is_second)
            };
            Router::new()
                .fallback(answer)
                .with_state(Arc::clone(&shared))
        };
        tokio::select! {
            result = axum::serve(first, router(false)).into_future() => result.unwrap(),
            result = axum::serve(second, router(true)).into_future() => result.unwrap(),
            _ = stopped.changed() => {}
        }
    });
}

/// Bytes that look like nothing, the same for the same seed.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub fn git_sha1(bytes: &[u8]) -> String {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hex(&hasher.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl FakeHub {
    pub fn start() -> Self {
        let bind = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let [first, second] = [bind(), bind()];
        let endpoint = format!("http://{}", first.local_addr().unwrap());
        let shared = Arc::new(Shared {
            second_host: second.local_addr().unwrap(),
            inner: Mutex::default(),
            served: AtomicU64::new(0),
            allowance: watch::channel(u64::MAX).0,
            held: watch::channel(false).0,
            open_bodies: watch::channel(0).0,
        });
        let (stop, stopped) = watch::channel(());
        let served = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serve(served, [first, second], stopped));
        Self {
            endpoint,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// A file that comes from the second host, named by its SHA-256.
    pub fn large_file(&self, path: &str, bytes: Vec<u8>) -> &Self {
        self.add(path, bytes, true)
    }

    /// The same of another repository than [`REPOSITORY`].
    pub fn large_file_of(&self, repository: &str, path: &str, bytes: Vec<u8>) -> &Self {
        self.add(&format!("{repository}/{path}"), bytes, true)
    }

    /// A file that the hub serves itself, named as git does.
    pub fn small_file(&self, path: &str, bytes: impl Into<Vec<u8>>) -> &Self {
        self.add(path, bytes.into(), false)
    }

    fn add(&self, path: &str, bytes: Vec<u8>, is_large: bool) -> &Self {
        let bytes = Bytes::from(bytes);
        self.inner()
            .files
            .insert(path.to_owned(), File { bytes, is_large });
        self
    }

    pub fn wants_token(&self, token: &str) -> &Self {
        self.inner().token = Some(token.to_owned());
        self
    }

    pub fn ignores_ranges(&self) -> &Self {
        self.inner().ignores_ranges = true;
        self
    }

    /// Faults of the next metadata requests.
    pub fn on_questions(&self, faults: impl IntoIterator<Item = Fault>) -> &Self {
        self.inner().on_question.extend(faults);
        self
    }

    /// The next requests for bytes go like this at the hub, before it sends them on.
    pub fn on_redirects(&self, faults: impl IntoIterator<Item = Fault>) -> &Self {
        self.inner().on_redirect.extend(faults);
        self
    }

    /// The next requests for bytes go like this where the bytes are.
    pub fn on_bytes(&self, faults: impl IntoIterator<Item = Fault>) -> &Self {
        self.inner().on_bytes.extend(faults);
        self
    }

    /// After so many bytes, all bodies stand still.
    pub fn hold_after(&self, bytes: u64) -> &Self {
        self.shared.held.send_replace(false);
        self.shared
            .allowance
            .send_replace(self.served_bytes() + bytes);
        self
    }

    pub fn release(&self) -> &Self {
        self.shared.allowance.send_replace(u64::MAX);
        self
    }

    /// Until a body stands still.
    pub async fn until_held(&self) {
        self.shared
            .held
            .subscribe()
            .wait_for(|held| *held)
            .await
            .unwrap();
    }

    /// Waits until no client reads from the server.
    pub async fn until_alone(&self) {
        self.shared
            .open_bodies
            .subscribe()
            .wait_for(|open| *open == 0)
            .await
            .unwrap();
    }

    /// Bytes of files that have left, since the start.
    pub fn served_bytes(&self) -> u64 {
        self.shared.served.load(Ordering::SeqCst)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.inner().seen.clone()
    }

    pub fn commit(&self) -> String {
        self.inner().commit()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap()
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Inner {
    fn commit(&self) -> String {
        format!("{:040x}", 0xc0_ffee_u32 + u32::from(self.changes))
    }
}

impl Shared {
    fn answer(self: &Arc<Self>, request: &Request, second_host: bool) -> Response {
        let mut inner = self.inner.lock().unwrap();
        let text = |name| Some(request.headers().get(name)?.to_str().unwrap().to_owned());
        let path = request.uri().path().to_owned();
        inner.seen.push(Seen {
            method: request.method().to_string(),
            path: path.clone(),
            range: text(header::RANGE),
            token: text(header::AUTHORIZATION),
            second_host,
        });
        if second_host {
            return self.bytes(&mut inner, path.trim_start_matches('/'), request.headers());
        }
        let wanted = inner.token.as_ref().map(|token| format!("Bearer {token}"));
        if wanted.is_some() && wanted != text(header::AUTHORIZATION) {
            let answer = Response::builder().status(StatusCode::UNAUTHORIZED);
            let answer = answer.header("x-error-message", "Access to this model is restricted.");
            return answer.body(Body::empty()).unwrap();
        }
        if path == format!("/api/models/{REPOSITORY}/revision/main") {
            return listing(&inner);
        }
        let asked = path.trim_start_matches('/').split_once("/resolve/");
        let asked = asked.and_then(|(repository, rest)| {
            let (_, file) = rest.split_once('/')?;
            Some(match repository {
                REPOSITORY => file.to_owned(),
                other => format!("{other}/{file}"),
            })
        });
        match asked {
            Some(file) => self.resolve(&mut inner, &file, request),
            None => status(404),
        }
    }

    fn resolve(self: &Arc<Self>, inner: &mut Inner, path: &str, request: &Request) -> Response {
        let is_question = request.method() == Method::HEAD;
        let faults = match is_question {
            true => &mut inner.on_question,
            false => &mut inner.on_redirect,
        };
        let fault = faults.pop_front();
        if let Some(response) = fault.and_then(|fault| inner.suffer(fault)) {
            return response;
        }
        let commit = inner.commit();
        let Some(file) = inner.files.get(path).cloned() else {
            return status(404);
        };
        if !file.is_large && !is_question {
            return self.bytes(inner, path, request.headers());
        }
        let answer = Response::builder().header("x-repo-commit", commit);
        let length = file.bytes.len();
        let answer = match file.is_large {
            true => answer
                .status(StatusCode::FOUND)
                .header("x-linked-etag", format!("\"{}\"", sha256(&file.bytes)))
                .header("x-linked-size", length)
                .header(
                    header::LOCATION,
                    format!("http://{}/{path}?signature=abc", self.second_host),
                ),
            false => answer
                .header(header::ETAG, format!("W/\"{}\"", git_sha1(&file.bytes)))
                .header(header::CONTENT_LENGTH, length),
        };
        answer.body(Body::empty()).unwrap()
    }

    /// A body: the whole file or a range of it.
    fn bytes(self: &Arc<Self>, inner: &mut Inner, path: &str, headers: &HeaderMap) -> Response {
        let fault = inner.on_bytes.pop_front().unwrap_or(Fault::Nothing);
        if let Some(response) = inner.suffer(fault.clone()) {
            return response;
        }
        let Some(file) = inner.files.get(path).cloned() else {
            return status(404);
        };
        let mut bytes = file.bytes;
        if matches!(fault, Fault::Corrupt) {
            bytes = bytes.iter().map(|byte| byte ^ 1).collect();
        }
        let size = bytes.len();
        let range = headers
            .get(header::RANGE)
            .and_then(|value| range(value.to_str().unwrap()));
        let answer = Response::builder().header(
            header::ETAG,
            match file.is_large {
                // The second host has names of its own.
                true => "\"another-name\"".to_owned(),
                false => format!("\"{}\"", git_sha1(&bytes)),
            },
        );
        let (answer, body) = match range.filter(|_| !inner.ignores_ranges) {
            Some((start, last)) if last < size => (
                answer.status(StatusCode::PARTIAL_CONTENT).header(
                    header::CONTENT_RANGE,
                    format!("bytes {start}-{last}/{size}"),
                ),
                bytes.slice(start..=last),
            ),
            Some(_) => return status(416),
            None => (answer, bytes),
        };
        let cut = match fault {
            Fault::CutAfter(bytes) => bytes,
            _ => usize::MAX,
        };
        let answer = answer.header(header::CONTENT_LENGTH, body.len());
        answer.body(self.body(body, cut)).unwrap()
    }

    fn body(self: &Arc<Self>, bytes: Bytes, cut: usize) -> Body {
        const CHUNK: usize = 16 * 1024;
        let state = (OpenBody::new(self), bytes, cut);
        Body::from_stream(stream::unfold(state, |(open, mut bytes, cut)| async move {
            if bytes.is_empty() {
                return None;
            }
            if cut == 0 {
                // Bytes already sent shall arrive before the connection breaks.
                tokio::task::yield_now().await;
                let broken = Err(io::Error::from(io::ErrorKind::ConnectionReset));
                return Some((broken, (open, Bytes::new(), 0)));
            }
            let chunk = bytes.split_to(CHUNK.min(bytes.len()).min(cut));
            open.0.leave(chunk.len() as u64).await;
            let cut = cut - chunk.len();
            Some((Ok(chunk), (open, bytes, cut)))
        }))
    }

    async fn leave(&self, bytes: u64) {
        let mut allowance = self.allowance.subscribe();
        let may_leave = |allowed: &u64| self.served.load(Ordering::SeqCst) + bytes <= *allowed;
        if !may_leave(&allowance.borrow()) {
            self.held.send_replace(true);
            allowance.wait_for(may_leave).await.unwrap();
        }
        self.served.fetch_add(bytes, Ordering::SeqCst);
    }
}

impl Inner {
    /// An answer that is nothing but a fault.
    fn suffer(&mut self, fault: Fault) -> Option<Response> {
        match fault {
            Fault::Status(code) => Some(status(code)),
            Fault::TooMany(seconds) => {
                let answer = Response::builder().status(StatusCode::TOO_MANY_REQUESTS);
                Some(
                    answer
                        .header(header::RETRY_AFTER, seconds)
                        .body(Body::empty())
                        .unwrap(),
                )
            }
            Fault::Change(path, bytes) => {
                self.changes += 1;
                self.files.get_mut(path).unwrap().bytes = bytes.into();
                None
            }
            Fault::Nothing | Fault::CutAfter(_) | Fault::Corrupt => None,
        }
    }
}

fn status(code: u16) -> Response {
    Response::builder()
        .status(code)
        .body(Body::empty())
        .unwrap()
}

fn listing(inner: &Inner) -> Response {
    let mut names: Vec<&String> = inner.files.keys().collect();
    names.sort();
    let siblings: Vec<_> = names
        .iter()
        .map(|name| serde_json::json!({ "rfilename": name }))
        .collect();
    let body = serde_json::json!({ "sha": inner.commit(), "siblings": siblings });
    Response::new(Body::from(body.to_string()))
}

fn range(value: &str) -> Option<(usize, usize)> {
    let (start, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    Some((start.parse().ok()?, last.parse().ok()?))
}
