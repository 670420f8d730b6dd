//! The coordinator in memory: its router is called as hyper would, its workers are [`Rig`]s without sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use muster::coordinator::accounts::{Accounts, KeyOrder, SecretSource};
use muster::coordinator::dispatch;
use muster::coordinator::http::router;
use muster::coordinator::http::serve::{Connections, serve};
use muster::coordinator::kudos::{Cause, Posting};
use muster::coordinator::media::{Links, Media, MediaSettings};
use muster::coordinator::moderation::Moderation;
use muster::coordinator::people::Development;
use muster::coordinator::requests::Requests;
use muster::coordinator::rigs::{self, Records};
use muster::coordinator::settlements;
use muster::coordinator::start::{Shelves, doors};
use muster::coordinator::state::DoorSettings;
use muster::coordinator::storage::{Location, Store};
use muster::coordinator::switchboard::Switchboard;
use muster::coordinator::values::{Roles, Scopes};
use muster::coordinator::workers::{Workers, mark_large};
use muster::protocol::job::{AccountId, Kudos, UnixMillis};
use muster::reader::Reader;
use muster::tasks::Tasks;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tower::ServiceExt;

use super::contract::assert_documented;
use super::documented::Expected;
use super::rig::Rig;

/// Nothing here takes this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Where links to media begin.
pub const BASE: &str = "http://muster.test";

pub struct App {
    pub router: Router,
    pub board: Switchboard,
    pub accounts: Accounts,
    pub workers: Workers,
    pub media: Media,
    pub moderation: Moderation,
    pub requests: Requests,
    pub store: Store,
    pub tasks: Tasks,
    /// A key with every scope.
    pub key: String,
    pub account: AccountId,
    /// Where links to media begin.
    pub base: String,
    folder: TempDir,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Body,
    expected: Option<Expected>,
}

impl App {
    pub async fn start() -> Self {
        Self::with(DoorSettings::default()).await
    }

    pub async fn with(settings: DoorSettings) -> Self {
        Self::on(tempfile::tempdir().unwrap(), settings, None, 0, BASE).await
    }

    /// Reachable over TCP too, so that workers of ours can use its media store.
    pub async fn listening(settings: DoorSettings) -> Self {
        Self::listening_on(tempfile::tempdir().unwrap(), settings, None).await
    }

    async fn listening_on(
        folder: TempDir,
        settings: DoorSettings,
        known: Option<(String, AccountId)>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let app = Self::on(folder, settings, known, 0, &base).await;
        let router = app.router.clone();
        serve(listener, router, None, Connections::default(), &app.tasks);
        app
    }

    /// With the routes that tests of other programs use.
    pub async fn with_development() -> Self {
        Self::with(DoorSettings {
            development: Some(Development::default()),
            ..DoorSettings::default()
        })
        .await
    }

    /// Beside one large reply there is no room for another, however long it stands still.
    pub async fn with_little_room() -> Self {
        Self::with(DoorSettings {
            largest_request: 16 << 10,
            standstill: PATIENCE * 100,
            ..DoorSettings::default()
        })
        .await
    }

    /// Another process begins on what this one has left on disk: it ends without a word, and nothing else is left.
    pub async fn anew(self) -> Self {
        self.anew_keeping_free(0).await
    }

    /// The same, and there is no room for images any more.
    pub async fn anew_on_a_full_disk(self) -> Self {
        self.anew_keeping_free(u64::MAX).await
    }

    /// The same, reachable over TCP.
    pub async fn anew_listening(self) -> Self {
        let (folder, known) = self.ended().await;
        Self::listening_on(folder, DoorSettings::default(), Some(known)).await
    }

    async fn anew_keeping_free(self, spare: u64) -> Self {
        let (folder, known) = self.ended().await;
        Self::on(folder, DoorSettings::default(), Some(known), spare, BASE).await
    }

    /// Stops the app, and keeps its folder and its key.
    async fn ended(self) -> (TempDir, (String, AccountId)) {
        let Self {
            router,
            board,
            accounts,
            workers,
            media,
            moderation,
            requests,
            store,
            tasks,
            key,
            account,
            folder,
            ..
        } = self;
        tasks.stopping().cancel();
        // Some tasks continue while they can be called.
        drop((router, board, accounts, workers));
        drop((media, moderation, requests, store));
        assert!(tasks.stop(PATIENCE).await, "a task did not end");
        (folder, (key, account))
    }

    async fn on(
        folder: TempDir,
        settings: DoorSettings,
        known: Option<(String, AccountId)>,
        spare: u64,
        base: &str,
    ) -> Self {
        let tasks = Tasks::default();
        let place = Location::Sqlite(folder.path().join("store.sqlite"));
        let store = Store::open(&place, &tasks).await.unwrap();
        let secret = SecretSource::File(folder.path().join("store.secret"));
        let accounts = Accounts::open(store.clone(), &secret, &tasks)
            .await
            .unwrap();
        let first = accounts.first_start().await.unwrap();
        let first = first.map(|first| (first.text.expose().to_owned(), first.account));
        let (key, account) = known.or(first).unwrap();
        let (owners, records) = (accounts.clone(), Records::new(store.modes()));
        let is_trusted = move |owner| owners.is_trusted(owner);
        let notes = rigs::notes(records.clone());
        let books = settlements::books(store.clone(), Arc::default(), is_trusted, notes);
        let board =
            Switchboard::start(dispatch::Settings::default(), books, &tasks).marking(mark_large);
        let grace = dispatch::Settings::default().grace;
        let links = Links {
            secret: accounts.derived_secret("links to media"),
            base: base.to_owned(),
        };
        let place = MediaSettings {
            spare,
            ..MediaSettings::in_folder(folder.path().join("media"))
        };
        let media = Media::open(&place, &links, &tasks).await.unwrap();
        let shelves = Shelves {
            store,
            media: media.clone(),
            records,
            reader: Reader::of(env!("CARGO_BIN_EXE_worker").into()),
        };
        let doors = doors(shelves, accounts, board.clone(), settings, grace, &tasks).await;
        let doors = doors.unwrap();
        let store = doors.store.clone();
        let (accounts, workers) = (doors.accounts.clone(), doors.workers.clone());
        Self {
            workers,
            moderation: doors.moderation.clone(),
            requests: doors.requests.clone(),
            router: router(doors),
            board,
            accounts,
            media,
            store,
            tasks,
            key,
            account,
            base: base.to_owned(),
            folder,
        }
    }

    /// How many source images it keeps.
    pub fn sources(&self) -> usize {
        let sources = self.folder.path().join("media/sources");
        sources.read_dir().unwrap().count()
    }

    /// The database with its log, or the folder of media, whose files hold this word: also as the UTF-16 of metadata.
    pub fn places_of(&self, word: &str) -> Vec<&'static str> {
        let utf16 = |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            word.encode_utf16().flat_map(bytes).collect()
        };
        let spellings = [
            word.as_bytes().to_vec(),
            utf16(u16::to_le_bytes),
            utf16(u16::to_be_bytes),
        ];
        let holds = |path: &Path| {
            let bytes = std::fs::read(path).unwrap_or_default();
            let found =
                |spelling: &Vec<u8>| bytes.windows(spelling.len()).any(|part| part == spelling);
            spellings.iter().any(found)
        };
        let files = |folder: PathBuf| {
            let entries = folder.read_dir().unwrap();
            let paths = entries.map(|entry| entry.unwrap().path());
            paths.filter(|path| path.is_file()).collect::<Vec<_>>()
        };
        let media = self.folder.path().join("media");
        let mut places = Vec::new();
        if files(self.folder.path().to_owned())
            .iter()
            .any(|path| holds(path))
        {
            places.push("database");
        }
        let areas = ["results", "sources"].map(|area| files(media.join(area)));
        if areas.concat().iter().any(|path| holds(path)) {
            places.push("media");
        }
        places
    }

    /// Files in the folder of media.
    pub fn media_files(&self) -> usize {
        let results = self.folder.path().join("media/results");
        let names = results.read_dir().unwrap();
        let names = names.map(|entry| entry.unwrap().file_name());
        let is_object = |name: &std::ffi::OsString| !name.to_string_lossy().ends_with(".deleted");
        names.filter(is_object).count()
    }

    /// A key of the admin's account that is good for these.
    pub async fn key_for(&self, scopes: Scopes) -> String {
        let order = KeyOrder {
            scopes,
            ..KeyOrder::default()
        };
        let key = self.accounts.create_key(self.account, order).await.unwrap();
        key.text.expose().to_owned()
    }

    /// Gives the admin kudos out of the house's pocket.
    pub async fn enrich(&self, kudos: Kudos) {
        let now = UnixMillis(1_700_000_000_000);
        let gift = Posting::from_house(Cause::Award, self.account, kudos, now);
        self.store.post(gift).await.unwrap();
    }

    /// A key of an account of its own.
    pub async fn account_with(&self, roles: Roles, scopes: Scopes) -> String {
        let name = format!("{roles:?} {scopes:?}");
        let account = self.accounts.create_account(&name, roles).await.unwrap();
        let order = KeyOrder {
            scopes,
            ..KeyOrder::default()
        };
        let key = self.accounts.create_key(account, order).await.unwrap();
        key.text.expose().to_owned()
    }

    /// A worker on a socket, which has not said anything yet.
    pub async fn dial(&self) -> Rig {
        self.dial_from("127.0.0.1").await
    }

    /// A worker's connection from this address.
    pub async fn dial_from(&self, address: &str) -> Rig {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (workers, moderation) = (self.workers.clone(), self.moderation.clone());
        let address: std::net::IpAddr = address.parse().unwrap();
        self.tasks.start(async move {
            let met = |name: &Arc<str>| moderation.whereabouts().note(name, address);
            let serving = workers.serve_met(near, Vec::new(), Some(address), met);
            serving.await;
        });
        Rig {
            socket: WebSocketStream::from_raw_socket(far, Role::Client, None).await,
        }
    }

    /// The reply is checked against the OpenAPI document.
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let expected = Expected::of(&request).await;
        let answer = self.router.clone().oneshot(request);
        let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
        let (parts, body) = answer.into_parts();
        if let Some(expected) = &expected {
            expected.check_head(parts.status, &parts.headers);
        }
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
            expected,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path, &[], Body::empty()))
            .await
    }

    /// A chat request with the admin's key.
    pub async fn chat(&self, body: &Value) -> Answer {
        self.post_chat(body.to_string()).await
    }

    pub async fn post_chat(&self, body: impl Into<Body>) -> Answer {
        let bearer = format!("Bearer {}", self.key);
        let headers = [("authorization", bearer.as_str())];
        let path = "/v1/chat/completions";
        self.send(request(Method::POST, path, &headers, body.into()))
            .await
    }
}

pub fn request(method: Method, path: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

impl Answer {
    pub async fn bytes(self) -> Bytes {
        let read = timeout(PATIENCE, self.body.collect()).await;
        let bytes = read.unwrap().unwrap().to_bytes();
        if let Some(expected) = &self.expected {
            expected.check_body(self.status, &self.headers, &bytes);
        }
        bytes
    }

    pub async fn text(self) -> String {
        String::from_utf8(self.bytes().await.to_vec()).unwrap()
    }

    pub async fn json(self) -> Value {
        let status = self.status;
        let body = serde_json::from_slice(&self.bytes().await).unwrap();
        assert_documented(status, &body);
        body
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The next piece of a stream.
    pub async fn frame(&mut self) -> Option<String> {
        let frame = timeout(PATIENCE, self.body.frame()).await.unwrap()?;
        let data = frame.unwrap().into_data().unwrap();
        Some(String::from_utf8(data.to_vec()).unwrap())
    }

    /// The chunks of a whole stream, and whether it ended as one should.
    pub async fn chunks(self) -> Vec<Value> {
        let text = self.text().await;
        let events: Vec<&str> = text
            .split_terminator("\n\n")
            .filter(|event| !event.starts_with(':'))
            .map(|event| event.strip_prefix("data: ").unwrap())
            .collect();
        let (last, chunks) = events.split_last().unwrap();
        assert_eq!(*last, "[DONE]");
        chunks
            .iter()
            .map(|chunk| serde_json::from_str(chunk).unwrap())
            .collect()
    }
}
