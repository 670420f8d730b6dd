//! Chat completions, from the client's body to its last chunk.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use futures_util::{SinkExt, StreamExt};
use muster::coordinator::http::serve::{Connections, serve};
use muster::coordinator::kudos::Prices;
use muster::coordinator::names::Names;
use muster::coordinator::state::DoorSettings;
use muster::protocol::job::{self, Capabilities, FailureKind, FinishReason};
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::support::app::{App, PATIENCE};
use super::support::puppet::{Puppet, done, failed, started, text};

fn body(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_reply_holds_what_the_worker_said() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let request = body(json!({}));
    let (answer, ()) = tokio::join!(app.chat(&request), rig.answer(&["Hel", "lo"]));
    assert_eq!(answer.status, StatusCode::OK);
    let job = answer.header("x-job-id").unwrap();
    assert!(uuid::Uuid::parse_str(job).is_ok(), "{job}");
    let reply = answer.json().await;
    assert_eq!(reply["object"], "chat.completion");
    assert_eq!(reply["choices"][0]["message"]["content"], "Hello");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    assert_eq!(reply["usage"]["total_tokens"], 8);
    assert_eq!(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
    assert!(
        reply["grid"]["worker"]
            .as_str()
            .unwrap()
            .starts_with("rig-")
    );
}

#[tokio::test]
async fn a_stream_holds_what_the_worker_says_as_it_says_it() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let request = body(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let (mut answer, offer) = tokio::join!(app.chat(&request), async {
        let offer = rig.offer().await;
        rig.say(&offer, [started()]).await;
        offer
    });
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert!(answer.header("x-job-id").is_some());
    assert!(
        answer
            .frame()
            .await
            .unwrap()
            .contains("\"role\":\"assistant\"")
    );
    for word in ["one", "two"] {
        rig.say(&offer, [text(word)]).await;
        let frame = answer.frame().await.unwrap();
        assert!(
            frame.contains(&format!("{{\"content\":\"{word}\"}}")),
            "{frame}"
        );
    }
    rig.say(&offer, [done(FinishReason::Length)]).await;
    let chunks = answer.chunks().await;
    assert_eq!(chunks[0]["choices"][0]["finish_reason"], "length");
    assert_eq!(chunks[1]["choices"], json!([]));
    assert_eq!(chunks[1]["usage"]["completion_tokens"], 3);
}

#[tokio::test]
async fn auto_is_the_best_model_that_is_online_and_the_reply_says_which() {
    let app = App::with(DoorSettings {
        sizes: Prices::default().with("tiny", 0.5).with("big", 8.0),
        ..DoorSettings::default()
    })
    .await;
    let nobody = app.chat(&body(json!({"model": "auto"}))).await;
    assert_eq!(nobody.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        app.get("/v1/models/auto").await.status,
        StatusCode::NOT_FOUND
    );
    let tiny = Puppet::connect(&app.board).await;
    let big = Puppet::serving(&app.board, "big", Capabilities::default()).await;
    eventually("the model to be listed", async || {
        app.get("/v1/models/big").await.status == StatusCode::OK
    })
    .await;
    for (name, rig, model) in [
        ("auto", &big, "big"),
        ("auto:fast", &tiny, "tiny"),
        ("auto:quality", &big, "big"),
    ] {
        let routing = json!({"auto": true, "requested": name, "resolved_model": model});
        let request = body(json!({"model": name}));
        let (answer, ()) = tokio::join!(app.chat(&request), rig.answer(&["hi"]));
        let reply = answer.json().await;
        assert_eq!(
            (&reply["model"], &reply["grid"]["routing"]),
            (&json!(model), &routing)
        );
        let request = body(json!({"model": name, "stream": true}));
        let (answer, ()) = tokio::join!(app.chat(&request), rig.answer(&["hi"]));
        let chunks = answer.chunks().await;
        assert_eq!(chunks.last().unwrap()["grid"]["routing"], routing);
    }
    assert_eq!(app.get("/v1/models/auto").await.json().await["id"], "auto");
}

#[tokio::test]
async fn n_choices_are_n_jobs_told_apart_by_their_index() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let request = body(json!({"n": 3, "stream": true}));
    let (answer, ()) = tokio::join!(app.chat(&request), async {
        for word in ["a", "b", "c"] {
            rig.answer(&[word]).await;
        }
    });
    assert_eq!(answer.header("x-job-id").unwrap().split(", ").count(), 3);
    let chunks = answer.chunks().await;
    let mut said: Vec<(u64, String)> = chunks
        .iter()
        .filter_map(|chunk| {
            let choice = &chunk["choices"][0];
            let text = choice["delta"]["content"].as_str()?;
            (!text.is_empty()).then(|| (choice["index"].as_u64().unwrap(), text.to_owned()))
        })
        .collect();
    said.sort();
    let expected = [(0, "a"), (1, "b"), (2, "c")];
    assert_eq!(said, expected.map(|(index, text)| (index, text.to_owned())));
    let ends = chunks.iter().filter(|chunk| !chunk["usage"].is_null());
    assert_eq!(ends.count(), 1);
}

#[tokio::test]
async fn what_fails_before_the_first_event_has_a_status_of_its_own() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    for stream in [false, true] {
        let request = body(json!({"stream": stream}));
        let too_long = "This model's maximum context length is 4096 tokens. However, it was more.";
        let (answer, ()) = tokio::join!(app.chat(&request), async {
            let offer = rig.offer().await;
            let failure = failed(FailureKind::ContextLengthExceeded, too_long);
            rig.say(&offer, [failure]).await;
        });
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.header("x-job-id").is_some());
        let error = answer.json().await;
        assert_eq!(error["error"]["code"], "context_length_exceeded");
        assert_eq!(error["error"]["param"], "messages");
        assert_eq!(error["detail"], too_long);
    }
}

#[tokio::test]
async fn what_fails_later_ends_the_stream_with_an_error() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let request = body(json!({"stream": true}));
    let (answer, offer) = tokio::join!(app.chat(&request), async {
        let offer = rig.offer().await;
        rig.say(&offer, [started(), text("a")]).await;
        offer
    });
    assert_eq!(answer.status, StatusCode::OK);
    let refused = failed(FailureKind::InvalidRequest, "this cannot be said");
    rig.say(&offer, [refused]).await;
    let chunks = answer.chunks().await;
    let last = chunks.last().unwrap();
    assert_eq!(last["error"]["code"], "invalid_request");
}

#[tokio::test]
async fn a_silent_stream_says_that_it_lives() {
    let app = App::with(DoorSettings {
        heartbeat: Duration::from_millis(20),
        commit_after: Duration::from_millis(20),
        ..DoorSettings::default()
    })
    .await;
    let rig = Puppet::connect(&app.board).await;
    let mut answer = app.chat(&body(json!({"stream": true}))).await;
    assert_eq!(answer.status, StatusCode::OK);
    let offer = rig.offer().await;
    assert!(answer.frame().await.unwrap().starts_with("data: "));
    for _ in 0..3 {
        assert!(answer.frame().await.unwrap().starts_with(": "));
    }
    rig.say(&offer, [text("late"), done(FinishReason::Stop)])
        .await;
    let chunks = answer.chunks().await;
    assert_eq!(chunks[0]["choices"][0]["delta"]["content"], "late");
}

#[tokio::test]
async fn a_stream_that_is_dropped_cancels_its_job() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let request = body(json!({"stream": true}));
    let (answer, offer) = tokio::join!(app.chat(&request), async {
        let offer = rig.offer().await;
        rig.say(&offer, [started()]).await;
        offer
    });
    drop(answer);
    let within = Duration::from_secs(1);
    timeout(within, rig.cancelled(&offer)).await.unwrap();
}

async fn connected(app: &App) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = app.router.clone();
    serve(listener, router, None, Connections::default(), &app.tasks);
    TcpStream::connect(address).await.unwrap()
}

async fn write_chat(client: &mut TcpStream, app: &App, body: &Value) {
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-length: {}\r\n\r\n{body}",
        app.key,
        body.len()
    );
    client.write_all(head.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_client_that_hangs_up_frees_the_worker_within_a_second() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    for stream in [false, true] {
        let mut client = connected(&app).await;
        write_chat(&mut client, &app, &body(json!({"stream": stream}))).await;
        let offer = rig.offer().await;
        rig.say(&offer, [started(), text("a")]).await;
        if stream {
            let mut first = [0; 1];
            client.read_exact(&mut first).await.unwrap();
        }
        drop(client);
        let within = Duration::from_secs(1);
        timeout(within, rig.cancelled(&offer)).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_is_noticed_whatever_it_sent_after_its_request() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    for further in ["\r\n", "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        for stream in [false, true] {
            let mut client = connected(&app).await;
            write_chat(&mut client, &app, &body(json!({"stream": stream}))).await;
            client.write_all(further.as_bytes()).await.unwrap();
            let offer = rig.offer().await;
            drop(client);
            let within = Duration::from_secs(1);
            timeout(within, rig.cancelled(&offer)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_a_row() {
    let app = App::start().await;
    let mut client = connected(&app).await;
    let head = "GET /health HTTP/1.1\r\nhost: localhost\r\n";
    let requests = format!("{head}\r\n{head}\r\n{head}connection: close\r\n\r\n");
    client.write_all(requests.as_bytes()).await.unwrap();
    let mut answers = String::new();
    let reading = client.read_to_string(&mut answers);
    timeout(PATIENCE, reading).await.unwrap().unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
}

#[tokio::test]
async fn large_requests_do_not_take_more_memory_than_there_is() {
    let app = App::with(DoorSettings {
        largest_request: 20 << 10,
        ..DoorSettings::default()
    })
    .await;
    let rig = Puppet::connect(&app.board).await;
    // Each is there eighteen times: as it came, as JSON, and for each choice.
    let large =
        body(json!({"n": 16, "messages": [{"role": "user", "content": "x ".repeat(10_000)}]}));
    let (first, refused) = tokio::join!(app.chat(&large), async {
        let offer = rig.offer().await;
        let refused = app.chat(&large).await;
        rig.say(
            &offer,
            [failed(FailureKind::InvalidRequest, "this cannot be said")],
        )
        .await;
        refused
    });
    assert_eq!(first.status, StatusCode::BAD_REQUEST);
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.header("retry-after").is_some());
}

#[tokio::test]
async fn a_model_nobody_knows_is_404_and_one_that_is_offline_503() {
    let app = App::with(DoorSettings {
        names: Names::of([("catalogued", ["Org/Catalogued"])]),
        ..DoorSettings::default()
    })
    .await;
    let nobody = app.chat(&body(json!({"model": "nobody"}))).await;
    assert_eq!(nobody.status, StatusCode::SERVICE_UNAVAILABLE);
    let _rig = Puppet::connect(&app.board).await;
    let unknown = app.chat(&body(json!({"model": "nobody"}))).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let error = unknown.json().await;
    assert_eq!(error["error"]["code"], "model_not_found");
    assert_eq!(error["error"]["param"], "model");
    assert!(error["detail"].as_str().unwrap().contains("online: tiny"));
    for name in ["catalogued", "Org/Catalogued"] {
        let offline = app.chat(&body(json!({"model": name}))).await;
        assert_eq!(offline.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(offline.header("retry-after"), Some("30"));
        assert_eq!(offline.json().await["error"]["code"], "model_offline");
    }
}

#[tokio::test]
async fn a_model_is_the_same_by_all_of_its_names() {
    let app = App::with(DoorSettings {
        names: Names::of([("tiny", ["Org/Tiny"])]).with_aliases([("gpt-4o-mini", "Org/Tiny")]),
        ..DoorSettings::default()
    })
    .await;
    let rig = Puppet::connect(&app.board).await;
    for (name, stream) in [
        ("Org/Tiny", false),
        ("gpt-4o-mini", false),
        ("Org/Tiny", true),
    ] {
        let request = body(json!({"model": name, "stream": stream}));
        let (answer, ()) = tokio::join!(app.chat(&request), rig.answer(&["hi"]));
        assert_eq!(answer.status, StatusCode::OK);
        let reply = match stream {
            true => answer.chunks().await.remove(0),
            false => answer.json().await,
        };
        assert_eq!(reply["model"], "tiny", "the id, as of any alias");
    }
    let misspelled = app.chat(&body(json!({"model": "gpt4o-mini"}))).await;
    assert_eq!(misspelled.status, StatusCode::NOT_FOUND);
    let said = misspelled.json().await["detail"].to_string();
    assert!(said.contains("did you mean gpt-4o-mini?"), "{said}");
    let listed = app.get("/v1/models").await.json().await;
    assert_eq!(listed["data"][1]["id"], "tiny");
    assert_eq!(
        listed["data"][1]["aliases"],
        json!(["Org/Tiny", "gpt-4o-mini"])
    );
    for path in [
        "/v1/models/tiny",
        "/v1/models/gpt-4o-mini",
        "/v1/models/Org/Tiny",
        "/v1/models/Org%2FTiny",
    ] {
        assert_eq!(app.get(path).await.json().await["id"], "tiny");
    }
    let exactly = app.chat(&body(json!({"model": "org/tiny"}))).await;
    assert_eq!(exactly.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_no_worker_can_do_is_400_and_names_the_field() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let look = json!([{"type": "function", "function": {"name": "look"}}]);
    let cases = [
        (
            "tool_choice",
            json!({"tools": look, "tool_choice": "required"}),
        ),
        (
            "response_format",
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
        ),
        ("echo", json!({"echo": true})),
    ];
    for (param, fields) in cases {
        let answer = app.chat(&body(fields)).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{param}");
        let error = answer.json().await;
        assert_eq!(error["error"]["param"], param);
        assert_eq!(error["error"]["code"], "unsupported_value");
    }
}

#[tokio::test]
async fn a_worker_with_grammars_takes_what_others_cannot() {
    let app = App::start().await;
    let _plain = Puppet::connect(&app.board).await;
    let can = Capabilities::TOOLS.with(Capabilities::GRAMMAR);
    let rig = Puppet::serving(&app.board, "tiny", can).await;
    let look = json!([{"type": "function", "function": {"name": "look"}}]);
    let request = body(json!({"tools": look, "tool_choice": "required"}));
    let (answer, ()) = tokio::join!(app.chat(&request), rig.answer(&["{}"]));
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn bodies_nobody_can_read_are_400_and_the_server_goes_on() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let long = "x".repeat(300_000);
    let cases: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"{".to_vec(),
        b"[]".to_vec(),
        b"\xff\xfe".to_vec(),
        "[".repeat(100_000).into_bytes(),
        br#"{"model":"\ud800"}"#.to_vec(),
        br#"{"model":"tiny","messages":[{"role":"user","content":"a"}],"temperature":NaN}"#
            .to_vec(),
        br#"{"model":"tiny","messages":[{"role":"user","content":"a"}],"seed":1e999}"#.to_vec(),
        br#"{"model":"tiny","model":"tiny","messages":[{"role":"user","content":"a"}]}"#.to_vec(),
        body(json!({"messages": long})).to_string().into_bytes(),
        body(json!({"temperature": "hot"})).to_string().into_bytes(),
    ];
    for case in cases {
        let shown = String::from_utf8_lossy(&case[..case.len().min(60)]).into_owned();
        let answer = app.post_chat(case).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{shown}");
        let error = answer.json().await;
        assert!(error["error"]["message"].is_string(), "{shown}");
        assert!(!error.to_string().contains("xxx"), "{shown}");
    }
    let request = body(json!({}));
    let (answer, ()) = tokio::join!(app.chat(&request), rig.answer(&["fine"]));
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_413() {
    let app = App::with(DoorSettings {
        largest_request: 1000,
        ..DoorSettings::default()
    })
    .await;
    let _rig = Puppet::connect(&app.board).await;
    let answer = app.post_chat("x".repeat(1001)).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer.json().await["error"]["code"], "request_too_large");
    let pieces = (0..20).map(|_| Ok::<_, std::io::Error>("x".repeat(100)));
    let streamed = Body::from_stream(futures_util::stream::iter(pieces));
    let answer = app.post_chat(streamed).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_body_that_never_ends_is_given_up() {
    let app = App::with(DoorSettings {
        body_patience: Duration::from_millis(50),
        ..DoorSettings::default()
    })
    .await;
    let pending = futures_util::stream::pending::<Result<&str, std::io::Error>>();
    let answer = app.post_chat(Body::from_stream(pending)).await;
    assert_eq!(answer.status, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn a_key_that_asks_too_often_is_429_with_a_time() {
    let app = App::with(DoorSettings {
        requests_per_minute: Some(1),
        ..DoorSettings::default()
    })
    .await;
    let bad = body(json!({"n": 0}));
    let first = app.chat(&bad).await;
    assert_eq!(first.status, StatusCode::BAD_REQUEST);
    assert_eq!(first.header("x-ratelimit-remaining-requests"), Some("0"));
    let answer = app.chat(&bad).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("1"));
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), Some("0"));
    assert_eq!(answer.header("x-ratelimit-reset-requests"), Some("60s"));
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((50..=60).contains(&wait), "{wait}");
    assert_eq!(answer.json().await["error"]["type"], "rate_limit_error");
}

#[tokio::test]
async fn listings_show_who_is_online() {
    let app = App::start().await;
    let path = "/v1/models";
    assert_eq!(app.get(path).await.json().await["data"], json!([]));
    let _rig = Puppet::connect(&app.board).await;
    let _other = Puppet::serving(&app.board, "org/big", Capabilities::default()).await;
    // What came a moment ago is shown a moment later.
    let models = eventually("three models to be listed", async || {
        let models = app.get(path).await.json().await;
        match models["data"].as_array().unwrap().len() {
            3 => Ok(models),
            _ => Err(models),
        }
    })
    .await;
    assert_eq!(models["object"], "list");
    let ids = [0, 1, 2].map(|index| &models["data"][index]["id"]);
    assert_eq!(ids, ["auto", "org/big", "tiny"]);
    assert_eq!(models["data"][1]["input_modalities"], json!(["text"]));
    for path in ["/v1/models/org/big", "/v1/models/org%2Fbig"] {
        assert_eq!(app.get(path).await.json().await["id"], "org/big");
    }
    let workers = app.get("/v1/workers").await.json().await;
    assert_eq!(workers["count"], 2);
    assert_eq!(workers["workers"][0]["job_types"], json!(["text"]));
    let health = app.get("/health").await.json().await;
    assert_eq!(health["status"], "ok");
    assert_eq!(health["models_available"], json!(["org/big", "tiny"]));
    let status = app.get("/v1/status").await.json().await;
    assert_eq!(status["workers"]["by_type"], json!({"text": 2}));
    let metrics = app.get("/metrics").await.text().await;
    assert!(metrics.contains("grid_models_available 2\n"), "{metrics}");
}

/// A worker of the public network on the other side of a socket.
struct Stranger(WebSocketStream<TcpStream>);

impl Stranger {
    async fn connect(app: &App, model: &str) -> Self {
        let stream = connected(app).await;
        let url = "ws://localhost/v1/workers/ws";
        let (socket, answer) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        assert!(answer.headers().contains_key("x-request-id"));
        let mut stranger = Self(socket);
        let registration = json!({"apikey": app.key, "name": "rig", "models": [model]});
        stranger.say(registration).await;
        assert_eq!(stranger.hear().await["type"], "ready");
        stranger
    }

    async fn say(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        loop {
            let message = timeout(PATIENCE, self.0.next()).await.unwrap();
            if let Message::Text(text) = message.unwrap().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    /// Answers the next job, and returns its frame.
    async fn answer(&mut self, text: &str) -> Value {
        let job = self.hear().await;
        assert_eq!(job["type"], "job", "{job}");
        self.say(json!({"type": "token", "id": job["id"], "text": text}))
            .await;
        self.say(json!({"type": "done", "id": job["id"]})).await;
        assert_eq!(self.hear().await["type"], "ack");
        job
    }
}

#[tokio::test]
async fn a_worker_connects_through_the_door_over_http() {
    let app = App::start().await;
    let _stranger = Stranger::connect(&app, "tiny").await;
    eventually("one worker to be listed", async || {
        app.get("/v1/workers").await.json().await["count"] == 1
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_knows_an_alias_serves_the_model_and_hears_its_own_name() {
    let app = App::with(DoorSettings {
        names: Names::of([("tiny", ["Org/Tiny", "Tiny v1"])]),
        ..DoorSettings::default()
    })
    .await;
    let mut stranger = Stranger::connect(&app, "Org/Tiny").await;
    for asked_for in ["tiny", "Org/Tiny", "Tiny v1"] {
        let request = body(json!({"model": asked_for}));
        let (answer, job) = tokio::join!(app.chat(&request), stranger.answer("hi"));
        let reply = answer.json().await;
        assert_eq!(reply["choices"][0]["message"]["content"], "hi", "{reply}");
        assert_eq!(reply["model"], "tiny");
        assert_eq!(job["model"], "Org/Tiny");
        assert_eq!(job["payload"]["request"]["model"], "Org/Tiny");
    }
}

#[tokio::test]
async fn strangers_do_not_get_the_secrets_in_a_prompt() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let request = body(json!({"messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": format!("push with {token}, please")}]},
    ]}));
    for scrub_secrets in [true, false] {
        let app = App::with(DoorSettings {
            scrub_secrets,
            ..DoorSettings::default()
        })
        .await;
        let mut stranger = Stranger::connect(&app, "tiny").await;
        let (answer, job) = tokio::join!(app.chat(&request), stranger.answer("hi"));
        assert_eq!(answer.status, StatusCode::OK);
        let payload = job["payload"].to_string();
        assert_eq!(payload.contains(&token), !scrub_secrets, "{payload}");
        assert!(payload.contains("please"), "{payload}");
    }
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let (_, offer) = tokio::join!(app.chat(&request), async {
        let offer = rig.offer().await;
        rig.say(&offer, [done(FinishReason::Stop)]).await;
        offer
    });
    let job::Body::Text(asked) = &offer.job.body else {
        panic!("a text was asked for");
    };
    assert!(
        format!("{:?}", asked.input).contains(&token),
        "our own read it"
    );
}
