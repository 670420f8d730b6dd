use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex, split};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::McpServer;
use crate::api::{Api, ApiReply, ApiRequest, Unreachable};
use crate::folder::Folder;
use rmcp::ServiceExt;

/// On a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A service that notes its requests.
#[derive(Clone, Default)]
struct FakeApi {
    seen: Arc<Mutex<Vec<(Method, String, Value)>>>,
    /// Releases a slow request.
    release: Arc<Notify>,
    /// Slow requests that are open.
    open: watch::Sender<usize>,
}

/// Counts a request until it ends or is dropped.
struct OpenRequest(watch::Sender<usize>);

impl OpenRequest {
    fn new(open: &watch::Sender<usize>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(open.clone())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl FakeApi {
    fn last(&self) -> (Method, String, Value) {
        let seen = self.seen.lock();
        seen.last().cloned().unwrap()
    }
}

impl Api for FakeApi {
    async fn send(&self, request: ApiRequest) -> Result<ApiReply, Unreachable> {
        let body = request.body.clone().unwrap_or_default();
        if !request.path.starts_with("/v1/progress/") {
            let mut seen = self.seen.lock();
            seen.push((request.method.clone(), request.path.clone(), body.clone()));
        }
        let (status, content_type, reply) = match request.path.as_str() {
            "/v1/models?type=speech" => {
                (200, "application/json", json!({"data": [{"id": "kokoro"}]}))
            }
            "/v1/models?type=ranking" => (200, "application/json", json!({"data": []})),
            "/v1/audio/speech" => (200, "audio/mpeg", json!(null)),
            "/v1/images/generations" if body["prompt"] == "slow" => {
                let _open = OpenRequest::new(&self.open);
                self.release.notified().await;
                (200, "application/json", json!({"data": []}))
            }
            "/v1/images/generations" => (
                400,
                "application/json",
                json!({"error": {"message": "steps must be 1 to 80", "param": "steps"}}),
            ),
            "/v1/images/edits" => (200, "application/json", json!({"data": []})),
            path if path.starts_with("/v1/progress/") => {
                (200, "application/json", json!({"progress": 40}))
            }
            path => panic!("no such route: {path}"),
        };
        Ok(ApiReply {
            status: StatusCode::from_u16(status).unwrap(),
            content_type: content_type.to_owned(),
            body: match content_type {
                "audio/mpeg" => b"ID3".to_vec(),
                _ => reply.to_string().into_bytes(),
            },
        })
    }
}

/// A client at the other end of the server's standard streams.
struct Client {
    lines: BufReader<tokio::io::ReadHalf<DuplexStream>>,
    sent: tokio::io::WriteHalf<DuplexStream>,
    _served: JoinSet<()>,
}

impl Client {
    async fn of(server: McpServer<FakeApi>) -> Self {
        let (ours, theirs) = duplex(1 << 16);
        let mut served = JoinSet::new();
        served.spawn(async move {
            let running = server.serve(split(theirs)).await.unwrap();
            running.waiting().await.unwrap();
        });
        let (lines, sent) = split(ours);
        let lines = BufReader::new(lines);
        let mut client = Self {
            lines,
            sent,
            _served: served,
        };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let reply = client.ask("initialize", hello).await;
        assert_eq!(reply["result"]["serverInfo"]["name"], "muster");
        client
            .send(json!({"method": "notifications/initialized"}))
            .await;
        client
    }

    async fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        let line = format!("{message}\n");
        self.sent.write_all(line.as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line);
        timeout(PATIENCE, read).await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(json!({"id": 1, "method": method, "params": params}))
            .await;
        self.next().await
    }

    async fn call(&mut self, name: &str, arguments: Value) -> Value {
        let params = json!({"name": name, "arguments": arguments});
        self.ask("tools/call", params).await["result"].take()
    }
}

fn document() -> Value {
    let route = |fields: &[&str]| {
        let properties: Value = fields
            .iter()
            .map(|field| ((*field).to_owned(), json!({})))
            .collect::<serde_json::Map<_, _>>()
            .into();
        json!({"post": {"requestBody": {"content": {"application/json": {"schema": {"properties": properties}}}}}})
    };
    json!({"paths": {
        "/v1/images/generations": route(&["prompt", "model", "steps"]),
        "/v1/images/edits": route(&["prompt", "image"]),
        "/v1/audio/speech": route(&["input", "model"]),
        "/v1/rerank": route(&["query", "documents", "model"]),
        "/v1/models": {"get": {}},
    }})
}

#[tokio::test]
async fn tools_are_those_that_the_service_has() {
    let api = FakeApi::default();
    let mut client = Client::of(McpServer::new(api, &document(), None)).await;
    let listed = client.ask("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "generate_image",
            "edit_image",
            "generate_speech",
            "rerank",
            "list_models"
        ]
    );
    assert_eq!(tools[4]["annotations"]["readOnlyHint"], true);
    let absent = client.ask("tools/call", json!({"name": "embed"})).await;
    let message = absent["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("no tool embed is here; there are: generate_image"),
        "{message}"
    );
}

#[tokio::test]
async fn a_call_is_a_request_of_its_route() {
    let api = FakeApi::default();
    let mut client = Client::of(McpServer::new(api.clone(), &document(), None)).await;
    let spoken = client
        .call("generate_speech", json!({"input": "hi", "voice": null}))
        .await;
    assert_eq!(spoken["content"][0]["type"], "audio");
    let (method, path, body) = api.last();
    assert_eq!((method, path.as_str()), (Method::POST, "/v1/audio/speech"));
    assert_eq!(body, json!({"input": "hi", "model": "kokoro"}));
}

#[tokio::test]
async fn what_went_wrong_is_told_to_the_model() {
    let mut client = Client::of(McpServer::new(FakeApi::default(), &document(), None)).await;
    let text = async |client: &mut Client, name, arguments| {
        let result = client.call(name, arguments).await;
        assert_eq!(result["isError"], true);
        result["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let refused = text(
        &mut client,
        "generate_image",
        json!({"prompt": "a", "steps": 900}),
    )
    .await;
    assert_eq!(refused, "steps must be 1 to 80");
    let unknown = text(&mut client, "generate_image", json!({"promt": "a"})).await;
    assert!(
        unknown.starts_with("generate_image has no argument promt; it has: prompt"),
        "{unknown}"
    );
    let nobody = text(
        &mut client,
        "rerank",
        json!({"query": "a", "documents": []}),
    )
    .await;
    assert_eq!(nobody, "no model for ranking is online");
}

#[tokio::test]
async fn a_file_of_the_folder_is_sent_in_base64() {
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("a.png"), b"png").unwrap();
    let folder = Folder::open(shared.path()).unwrap();
    let api = FakeApi::default();
    let mut client = Client::of(McpServer::new(api.clone(), &document(), Some(folder))).await;
    client
        .call("edit_image", json!({"prompt": "a", "image": "a.png"}))
        .await;
    assert_eq!(api.last().2["image"], "cG5n");
    let link = "https://a/b.png";
    client
        .call("edit_image", json!({"prompt": "a", "image": link}))
        .await;
    assert_eq!(api.last().2["image"], link);
    let outside = client
        .call(
            "edit_image",
            json!({"prompt": "a", "image": "/etc/hostname"}),
        )
        .await;
    let message = outside["content"][0]["text"].as_str().unwrap();
    assert!(message.contains("outside the shared folder"), "{message}");
}

#[tokio::test]
async fn progress_is_told_to_who_wants_it() {
    let api = FakeApi::default();
    let mut client = Client::of(McpServer::new(api.clone(), &document(), None)).await;
    let params = json!({"name": "generate_image", "arguments": {"prompt": "slow"}, "_meta": {"progressToken": "p"}});
    let told = client.ask("tools/call", params).await;
    assert_eq!(told["method"], "notifications/progress");
    let expected = json!({"progressToken": "p", "progress": 40.0, "total": 100.0});
    assert_eq!(told["params"], expected);
    api.release.notify_one();
    // Equal percentages are not repeated.
    assert_eq!(client.next().await["result"]["isError"], false);
}

#[tokio::test]
async fn a_cancelled_call_ends_its_request() {
    let api = FakeApi::default();
    let mut open = api.open.subscribe();
    let mut client = Client::of(McpServer::new(api, &document(), None)).await;
    let params = json!({"name": "generate_image", "arguments": {"prompt": "slow"}});
    let call = json!({"id": 7, "method": "tools/call", "params": params});
    client.send(call).await;
    let begun = timeout(PATIENCE, open.wait_for(|open| *open == 1)).await;
    drop(begun.unwrap().unwrap());
    let cancel = json!({"method": "notifications/cancelled", "params": {"requestId": 7}});
    client.send(cancel).await;
    let ended = timeout(PATIENCE, open.wait_for(|open| *open == 0)).await;
    drop(ended.unwrap().unwrap());
}
