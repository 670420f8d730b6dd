//! Features that common clients depend on: errors they recognize, headers they obey, fields they send, and a reply
//! wherever one is possible.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::kudos::Prices;
use muster::coordinator::state::DoorSettings;
use muster::protocol::job::{self, Capabilities, FailureKind, FinishReason};
use muster::protocol::openai::IgnoredFields;
use muster_testing::eventually;
use serde_json::{Value, json};

use super::support::app::{Answer, App, request};
use super::support::puppet::{Puppet, done, failed, started, text};

fn body(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn call(app: &App, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    app.send(request(method, path, headers, Body::from("{}")))
        .await
}

#[tokio::test]
async fn a_wrong_key_is_an_authentication_error() {
    let app = App::start().await;
    for headers in [&[][..], &[("authorization", "Bearer wrong")]] {
        let answer = call(&app, Method::POST, "/v1/chat/completions", headers).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        let error = answer.json().await;
        assert_eq!(error["error"]["type"], "authentication_error");
        assert_eq!(error["error"]["code"], "invalid_api_key");
    }
}

#[tokio::test]
async fn what_is_not_implemented_is_not_retried() {
    let app = App::start().await;
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let answer = call(&app, Method::POST, "/v1/videos/none/remix", &headers).await;
    assert_eq!(answer.status, StatusCode::NOT_IMPLEMENTED);
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    let offline = app.chat(&body(json!({}))).await;
    assert_eq!(offline.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(offline.header("x-should-retry"), None);
}

#[tokio::test]
async fn errors_of_messages_have_anthropics_envelope() {
    let app = App::with(DoorSettings {
        requests_per_minute: Some(1),
        ..DoorSettings::default()
    })
    .await;
    let cases = [
        (
            Method::POST,
            "/v1/messages",
            false,
            401,
            "authentication_error",
        ),
        (
            Method::POST,
            "/v1/messages",
            true,
            400,
            "invalid_request_error",
        ),
        (Method::POST, "/v1/messages", true, 429, "rate_limit_error"),
        (
            Method::GET,
            "/v1/messages",
            true,
            405,
            "invalid_request_error",
        ),
        (
            Method::POST,
            "/v1/messages/count_tokens",
            true,
            429,
            "rate_limit_error",
        ),
        (
            Method::POST,
            "/v1/messages/batches",
            false,
            404,
            "not_found_error",
        ),
    ];
    for (method, path, has_key, status, kind) in cases {
        let key = [("x-api-key", app.key.as_str())];
        let headers = if has_key { &key[..] } else { &[] };
        let answer = call(&app, method, path, headers).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        let id = answer.header("request-id").unwrap().to_owned();
        assert_eq!(answer.header("x-request-id"), Some(id.as_str()));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("retry-after").is_some(), status == 429);
        let error = answer.json().await;
        assert_eq!(error["type"], "error", "{error}");
        assert_eq!(error["error"]["type"], kind);
        assert!(error["error"]["message"].is_string());
        assert_eq!(error["request_id"], id.as_str());
    }
    let other = call(&app, Method::POST, "/v1/messagesx", &[]).await;
    assert!(other.json().await.get("request_id").is_none());
}

#[tokio::test]
async fn an_encoded_body_is_415() {
    let app = App::start().await;
    let bearer = format!("Bearer {}", app.key);
    let send = async |path: &str, encoding: &str| {
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-encoding", encoding),
        ];
        call(&app, Method::POST, path, &headers).await.status
    };
    for encoding in ["gzip", "identity, br", "zstd"] {
        for path in ["/v1/chat/completions", "/api/v2/generate/async"] {
            let status = send(path, encoding).await;
            assert_eq!(
                status,
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "{path} {encoding}"
            );
        }
    }
    let status = send("/v1/chat/completions", "identity").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "no model is named");
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_told_in_the_words_that_clients_match() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let long = json!([{"role": "user", "content": "word ".repeat(20_000)}]);
    let answer = app.chat(&body(json!({"messages": long}))).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let error = answer.json().await;
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    assert_eq!(error["error"]["param"], "messages");
    let message = error["error"]["message"].as_str().unwrap();
    let wanted = "This model's maximum context length is 4096 tokens. However, your messages resulted in at least 16667 tokens.";
    assert!(message.starts_with(wanted), "{message}");
}

#[tokio::test]
async fn the_descriptor_names_the_version_of_the_api() {
    let app = App::start().await;
    for path in ["/", "/v1/status"] {
        assert_eq!(
            app.get(path).await.json().await["version"],
            "1.0.0",
            "{path}"
        );
    }
}

#[tokio::test]
async fn loads_are_those_of_now_and_told_apart_by_what_is_made() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    assert_eq!(app.get("/v1/status").await.json().await["running"], 0);
    let asked = body(json!({}));
    let (answer, ()) = tokio::join!(app.chat(&asked), async {
        let offer = rig.offer().await;
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        let status = app.get("/v1/status").await.json().await;
        assert_eq!(status["running_by_type"], json!({"text": 1, "media": 0}));
        rig.say(&offer, [text("a"), done(FinishReason::Stop)]).await;
    });
    assert_eq!(answer.status, StatusCode::OK);
    let bearer = [("apikey", app.key.as_str())];
    let image = json!({"prompt": "a cat", "params": {"n": 2}}).to_string();
    let asked = request(
        Method::POST,
        "/api/v2/generate/async",
        &bearer,
        image.into(),
    );
    assert_eq!(app.send(asked).await.status, StatusCode::ACCEPTED);
    tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    let status = app.get("/v1/status").await.json().await;
    assert_eq!(status["queue"], json!({"text": 0, "media": 2}));
    let performance = app.get("/api/v2/status/performance").await.json().await;
    assert_eq!(performance["queued_requests"], 2, "{performance}");
}

#[tokio::test]
async fn an_answer_that_was_not_delivered_is_made_by_another_worker() {
    let app = App::start().await;
    let first = Puppet::connect(&app.board).await;
    let asked = body(json!({"n": 2}));
    let (answer, ()) = tokio::join!(app.chat(&asked), async {
        let (one, two) = (first.offer().await, first.offer().await);
        first.say(&one, [started(), text("lost")]).await;
        first
            .say(&two, [text("kept"), done(FinishReason::Stop)])
            .await;
        let second = Puppet::connect(&app.board).await;
        drop(first);
        second.answer(&["whole"]).await;
    });
    assert_eq!(answer.status, StatusCode::OK);
    let reply = answer.json().await;
    let said = [0, 1].map(|index| reply["choices"][index]["message"]["content"].clone());
    assert_eq!(said, ["whole", "kept"]);
}

/// With a worker of each.
async fn two_sizes() -> (App, Puppet, Puppet) {
    let app = App::with(DoorSettings {
        sizes: Prices::default().with("tiny", 0.5).with("big", 8.0),
        ..DoorSettings::default()
    })
    .await;
    let tiny = Puppet::connect(&app.board).await;
    let big = Puppet::serving(&app.board, "big", Capabilities::default()).await;
    // What came a moment ago is shown a moment later.
    eventually("the model to be listed", async || {
        app.board.current().await.model("big").is_some()
    })
    .await;
    (app, tiny, big)
}

#[tokio::test]
async fn auto_goes_to_the_next_model_where_the_first_cannot() {
    let (app, tiny, big) = two_sizes().await;
    for stream in [false, true] {
        let asked = body(json!({"model": "auto", "stream": stream}));
        let (answer, ()) = tokio::join!(app.chat(&asked), async {
            // All there are give up, the same one twice.
            for _ in 0..2 {
                let offer = big.offer().await;
                let failure = failed(FailureKind::WorkerFailed, "out of memory");
                big.say(&offer, [failure]).await;
            }
            tiny.answer(&["hi"]).await;
        });
        assert_eq!(answer.status, StatusCode::OK);
        let reply = match stream {
            true => answer.chunks().await.remove(0),
            false => answer.json().await,
        };
        assert_eq!(reply["model"], "tiny");
    }
}

#[tokio::test]
async fn what_the_request_gets_wrong_is_not_tried_with_every_model() {
    let (app, _tiny, big) = two_sizes().await;
    let asked = body(json!({"model": "auto"}));
    let (answer, ()) = tokio::join!(app.chat(&asked), async {
        let offer = big.offer().await;
        let failure = failed(FailureKind::InvalidRequest, "no such role");
        big.say(&offer, [failure]).await;
    });
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn fields_of_other_servers_reach_the_job() {
    let app = App::start().await;
    let can = Capabilities::TOOLS.with(Capabilities::STOP_RULES);
    let rig = Puppet::serving(&app.board, "tiny", can).await;
    let asked = body(json!({
        "repeat_penalty": 1.25, "typical_p": 0.5, "min_tokens": 3, "ignore_eos": true,
        "stop_token_ids": [7, 8], "enable_thinking": false, "max_tokens": 9,
        "chat_template_kwargs": {"style": "brief"},
    }));
    let (answer, offer) = tokio::join!(app.chat(&asked), async {
        let offer = rig.offer().await;
        rig.say(&offer, [text("a"), done(FinishReason::Stop)]).await;
        offer
    });
    assert_eq!(answer.status, StatusCode::OK);
    let job::Body::Text(asked) = &offer.job.body else {
        panic!("a text was asked for");
    };
    assert_eq!(asked.sampling.repetition_penalty, Some(1.25));
    let typical = asked.sampling.legacy.as_ref().and_then(|it| it.typical);
    assert_eq!(typical, Some(0.5));
    let rules = job::StopRules {
        min_tokens: Some(3),
        ignore_eos: true,
        stop_token_ids: vec![7, 8],
    };
    assert_eq!(asked.stop_rules, rules);
    let job::TextInput::Chat(chat) = &asked.input else {
        panic!("a chat was asked for");
    };
    assert_eq!(
        Value::Object(chat.variables.clone()),
        json!({"enable_thinking": false, "style": "brief"})
    );
    for (field, more) in [
        ("min_tokens", json!({"min_tokens": 10, "max_tokens": 9})),
        (
            "repeat_penalty",
            json!({"repeat_penalty": 2, "repetition_penalty": 1}),
        ),
        ("stop_token_ids", json!({"stop_token_ids": ["x"]})),
    ] {
        let answer = app.chat(&body(more)).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert_eq!(answer.json().await["error"]["param"], field);
    }
}

#[tokio::test]
async fn rules_that_a_worker_does_not_know_are_not_ignored() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let answer = app.chat(&body(json!({"ignore_eos": true}))).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.json().await["error"]["param"], "ignore_eos");
}

#[tokio::test]
async fn fields_are_ignored_where_the_operator_wants_it_and_named() {
    let named = IgnoredFields::Named(["mirostat", "store"].map(str::to_owned).into());
    for (ignored, sends) in [
        (named, json!({"mirostat": 2, "store": true})),
        (
            IgnoredFields::All,
            json!({"mirostat": 2, "store": true, "prediction": {}}),
        ),
    ] {
        let app = App::with(DoorSettings {
            ignored_fields: ignored.clone(),
            ..DoorSettings::default()
        })
        .await;
        let rig = Puppet::connect(&app.board).await;
        let asked = body(sends.clone());
        let (answer, ()) = tokio::join!(app.chat(&asked), rig.answer(&["hi"]));
        assert_eq!(answer.status, StatusCode::OK, "{sends}");
        let header = answer.header("x-ignored-fields").unwrap();
        let mut names: Vec<&str> = header.split(", ").collect();
        names.sort_unstable();
        let sent = sends.as_object().unwrap().keys();
        let mut sent: Vec<&str> = sent.map(String::as_str).collect();
        sent.sort_unstable();
        assert_eq!(names, sent);
        let plain = body(json!({}));
        let (answer, ()) = tokio::join!(app.chat(&plain), rig.answer(&["hi"]));
        assert_eq!(answer.header("x-ignored-fields"), None);
        let wrong = app.chat(&body(json!({"temperature": 9}))).await;
        assert_eq!(
            wrong.status,
            StatusCode::BAD_REQUEST,
            "what is known is never ignored"
        );
    }
    let app = App::start().await;
    let refused = app.chat(&body(json!({"mirostat": 2}))).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn fields_inside_of_others_are_ignored_by_their_path() {
    let path = "messages[].content[].cache_control";
    let part = |text: &str| json!({"type": "text", "text": text, "cache_control": {"type": "x"}});
    let messages = json!([
        {"role": "system", "content": [part("a")]},
        {"role": "user", "content": [part("b"), part("c")]},
    ]);
    let sent = body(json!({"messages": messages}));
    for ignored in [
        IgnoredFields::Named([path.to_owned()].into()),
        IgnoredFields::All,
    ] {
        let app = App::with(DoorSettings {
            ignored_fields: ignored,
            ..DoorSettings::default()
        })
        .await;
        let rig = Puppet::connect(&app.board).await;
        let (answer, ()) = tokio::join!(app.chat(&sent), rig.answer(&["hi"]));
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.header("x-ignored-fields"), Some(path));
        let wrong = json!([{"role": "user", "content": [{"type": "text", "text": 5}]}]);
        let wrong = app.chat(&body(json!({"messages": wrong}))).await;
        assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    }
    for others in [
        IgnoredFields::None,
        IgnoredFields::Named(["cache_control".to_owned()].into()),
    ] {
        let app = App::with(DoorSettings {
            ignored_fields: others,
            ..DoorSettings::default()
        })
        .await;
        let _rig = Puppet::connect(&app.board).await;
        let refused = app.chat(&sent).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        let error = refused.json().await;
        let param = "messages[0].content[0].cache_control";
        assert_eq!(error["error"]["param"], param, "{error}");
    }
}

#[tokio::test]
async fn prices_are_in_the_shape_that_clients_know() {
    let app = App::start().await;
    let answer = app.get("/v1/pricing").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("cache-control"), Some("public, max-age=300"));
    let prices = answer.json().await;
    assert_eq!(prices["currency"], "USD");
    assert_eq!(prices["price_book"]["models"], json!([]));
}
