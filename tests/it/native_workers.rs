//! Public workers whose inference servers have the client's API: they get the original body, and their output becomes
//! the reply.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::values::{Roles, Scopes};
use muster_testing::eventually;
use serde_json::{Value, json};

use super::support::app::{Answer, App, request};
use super::support::puppet::Puppet;
use super::support::rig::Rig;

const MESSAGES: &str = "/v1/messages";

fn body(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn post_as(app: &App, key: &str, body: &Value) -> Answer {
    let body = Body::from(body.to_string());
    app.send(request(Method::POST, MESSAGES, &[("x-api-key", key)], body))
        .await
}

async fn post(app: &App, body: &Value) -> Answer {
    post_as(app, &app.key, body).await
}

/// A worker of the public network that speaks these formats.
async fn connect(app: &App, name: &str, formats: &[&str]) -> Rig {
    let mut rig = app.dial().await;
    rig.send(json!({
        "apikey": app.key, "name": name, "models": ["tiny"], "api_formats": formats,
        "max_context_length": 32768,
    }))
    .await;
    assert_eq!(rig.next().await["type"], "ready");
    rig
}

async fn native(app: &App) -> Rig {
    connect(app, "native", &["anthropic"]).await
}

/// One event of the worker's inference server.
async fn pass(rig: &mut Rig, job: &Value, event: Value) {
    rig.send(json!({
        "type": "raw", "id": job["id"], "event": event["type"], "data": event.to_string(),
    }))
    .await;
}

async fn finish(rig: &mut Rig, job: &Value) {
    let usage = json!({"input_tokens": 9, "output_tokens": 4});
    rig.send(json!({"type": "done", "id": job["id"], "usage": usage}))
        .await;
    let ack = rig.frame().await;
    assert_eq!((&ack["type"], &ack["id"]), (&json!("ack"), &job["id"]));
}

fn block(index: u32, content: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": content})
}

fn delta(index: u32, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u32) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn said(text: &str) -> Value {
    delta(0, json!({"type": "text_delta", "text": text}))
}

/// A thought, a text and a call, as Anthropic streams them.
fn message() -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"id": "msg_theirs", "type": "message", "role": "assistant",
            "model": "theirs", "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 9, "output_tokens": 1}}}),
        json!({"type": "ping"}),
        block(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(0, json!({"type": "signature_delta", "signature": "theirs"})),
        stop(0),
        block(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "Let me "})),
        delta(1, json!({"type": "text_delta", "text": "look."})),
        stop(1),
        block(
            2,
            json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}),
        ),
        delta(
            2,
            json!({"type": "input_json_delta", "partial_json": "{\"at\":"}),
        ),
        delta(2, json!({"type": "input_json_delta", "partial_json": "1}"})),
        stop(2),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            "usage": {"output_tokens": 4}}),
        json!({"type": "message_stop"}),
    ]
}

/// Takes the next job and answers it with a message; returns the job's frame.
async fn answer(rig: &mut Rig) -> Value {
    let job = rig.job().await;
    for event in message() {
        pass(rig, &job, event).await;
    }
    finish(rig, &job).await;
    job
}

#[tokio::test]
async fn a_native_worker_gets_the_clients_body_and_its_message_is_the_reply() {
    let app = App::start().await;
    let mut rig = native(&app).await;
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let tool = json!({"name": "look", "input_schema": {"type": "object"}});
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let blocks = json!([{"type": "text", "text": format!("push with {token}"), "cache_control": {"type": "ephemeral"}}]);
    let asked = body(json!({
        "system": "Be brief.", "messages": [{"role": "user", "content": blocks}], "tools": [tool],
        "metadata": {"user_id": "ann"}, "top_k": 5, "temperature": null, "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }));
    let (reply, job) = tokio::join!(post(&app, &asked), answer(&mut rig));
    let payload = &job["payload"];
    assert_eq!(payload["api_format"], "anthropic");
    assert_eq!(payload["max_length"], payload["request"]["max_tokens"]);
    let wanted = &payload["request"];
    assert_eq!(
        wanted["messages"][0]["content"][0]["text"],
        "push with [redacted]"
    );
    assert_eq!(
        wanted["messages"][0]["content"][0]["cache_control"]["type"],
        "ephemeral"
    );
    assert_eq!(
        (&wanted["system"], &wanted["tools"][0]),
        (&json!("Be brief."), &tool)
    );
    assert_eq!(
        (&wanted["model"], &wanted["stream"]),
        (&json!("tiny"), &json!(true))
    );
    assert!(
        wanted["max_tokens"]
            .as_u64()
            .is_some_and(|most| most > 1000)
    );
    for absent in ["metadata", "temperature"] {
        assert!(wanted.get(absent).is_none(), "{wanted}");
    }
    assert_eq!(reply.status, StatusCode::OK);
    let reply = reply.json().await;
    let content = reply["content"].as_array().unwrap();
    assert_eq!(
        (&content[0]["type"], &content[0]["thinking"]),
        (&json!("thinking"), &json!("hm"))
    );
    assert_ne!(content[0]["signature"], "theirs");
    assert_eq!(content[1]["text"], "Let me look.");
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}});
    assert_eq!(content[2], call);
    assert_eq!(reply["stop_reason"], "tool_use");
    assert!(reply["usage"]["output_tokens"].as_u64() > Some(0));
    assert_eq!(reply["grid"]["worker"], "native");
    assert!(reply["grid"].get("translated").is_none(), "{reply}");
    assert_ne!(reply["id"], "msg_theirs");
    let picture = body(json!({"messages": [{"role": "user", "content": [image]}]}));
    let refused = post(&app, &picture).await;
    assert_eq!(
        refused.status,
        StatusCode::BAD_REQUEST,
        "it reads no images"
    );
}

#[tokio::test]
async fn a_native_stream_comes_piece_by_piece() {
    let app = App::start().await;
    let mut rig = native(&app).await;
    let asked = body(json!({
        "stream": true, "max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024},
    }));
    let (mut stream, job) = tokio::join!(post(&app, &asked), async {
        let job = rig.job().await;
        for event in &message()[..4] {
            pass(&mut rig, &job, event.clone()).await;
        }
        job
    });
    assert_eq!(job["payload"]["request"]["max_tokens"], 2000);
    let mut seen = String::new();
    while !seen.contains("thinking_delta") {
        seen += &stream.frame().await.unwrap();
    }
    assert!(seen.contains("\"input_tokens\":9"), "{seen}");
    for event in &message()[4..] {
        pass(&mut rig, &job, event.clone()).await;
    }
    finish(&mut rig, &job).await;
    seen += &stream.text().await;
    let kinds: Vec<&str> = seen
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    assert_eq!(kinds.first(), Some(&"message_start"), "{seen}");
    assert_eq!(kinds.last(), Some(&"message_stop"), "{seen}");
    assert!(
        seen.contains("\"partial_json\":\"1}\"") && seen.contains("\"stop_reason\":\"tool_use\"")
    );
}

#[tokio::test]
async fn a_native_worker_that_does_not_stream_is_read_at_its_end() {
    let app = App::start().await;
    let mut rig = native(&app).await;
    let asked = body(json!({"stop_sequences": ["."]}));
    let whole = json!({"type": "message", "content": [{"type": "text", "text": "Hey"}],
        "stop_reason": "stop_sequence", "stop_sequence": ".", "usage": {"input_tokens": 3, "output_tokens": 1}});
    let (reply, ()) = tokio::join!(post(&app, &asked), async {
        let job = rig.job().await;
        rig.send(json!({"type": "done", "id": job["id"], "full_json": whole}))
            .await;
        assert_eq!(rig.frame().await["type"], "ack");
    });
    let reply = reply.json().await;
    assert_eq!(reply["content"][0]["text"], "Hey");
    assert_eq!(
        (&reply["stop_reason"], &reply["stop_sequence"]),
        (&json!("stop_sequence"), &json!("."))
    );
}

#[tokio::test]
async fn a_translated_request_says_so() {
    let app = App::start().await;
    let mut rig = connect(&app, "chats", &["openai-chat"]).await;
    let asked = body(json!({}));
    let (reply, ()) = tokio::join!(post(&app, &asked), async {
        let job = rig.job().await;
        assert_eq!(job["payload"]["api_format"], "openai-chat");
        rig.token(&job, "Hey").await;
        rig.done(&job).await;
        assert_eq!(rig.frame().await["type"], "ack");
    });
    let reply = reply.json().await;
    assert_eq!(reply["grid"]["translated"], "anthropic", "{reply}");
    drop(rig);
    let ours = Puppet::connect(&app.board).await;
    let (reply, ()) = tokio::join!(post(&app, &asked), ours.answer(&["Hey"]));
    let reply = reply.json().await;
    assert!(reply["grid"].get("translated").is_none(), "{reply}");
}

#[tokio::test]
async fn a_worker_that_speaks_both_gets_each_request_in_its_own_api() {
    let app = App::start().await;
    let mut rig = connect(&app, "both", &["openai-chat", "anthropic"]).await;
    let asked = body(json!({}));
    let (reply, job) = tokio::join!(post(&app, &asked), answer(&mut rig));
    assert_eq!(
        (reply.status, &job["payload"]["api_format"]),
        (StatusCode::OK, &json!("anthropic"))
    );
    let (reply, ()) = tokio::join!(app.chat(&asked), async {
        let job = rig.job().await;
        assert_eq!(job["payload"]["api_format"], "openai-chat");
        rig.token(&job, "Hey").await;
        rig.done(&job).await;
        assert_eq!(rig.frame().await["type"], "ack");
    });
    assert_eq!(reply.status, StatusCode::OK);
}

#[tokio::test]
async fn a_chat_for_a_model_of_native_workers_names_the_route_that_works() {
    let app = App::start().await;
    let mut rig = native(&app).await;
    eventually("the model to be listed", async || {
        app.get("/v1/models/tiny").await.status == StatusCode::OK
    })
    .await;
    let refused = app.chat(&body(json!({}))).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let error = refused.json().await;
    assert_eq!(error["error"]["param"], "model", "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains(MESSAGES), "{message}");
    let any = body(json!({"model": "auto"}));
    let (reply, _) = tokio::join!(post(&app, &any), answer(&mut rig));
    assert_eq!(reply.json().await["model"], "tiny");
}

#[tokio::test]
async fn what_a_native_worker_cannot_finish_another_one_does() {
    let app = App::start().await;
    let mut first = native(&app).await;
    let asked = body(json!({}));
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let (reply, ()) = tokio::join!(post(&app, &asked), async {
        let job = first.job().await;
        let mut second = connect(&app, "second", &["openai-chat"]).await;
        pass(&mut first, &job, error.clone()).await;
        finish(&mut first, &job).await;
        let again = second.job().await;
        assert_eq!(again["id"], job["id"]);
        second.token(&again, "Hey").await;
        second.done(&again).await;
        assert_eq!(second.frame().await["type"], "ack");
    });
    let reply = reply.json().await;
    assert_eq!(reply["content"][0]["text"], "Hey", "{reply}");
    assert_eq!(reply["grid"]["translated"], "anthropic");
}

#[tokio::test]
async fn a_native_worker_is_not_struck_for_its_errors_and_answers_the_next_request() {
    let app = App::start().await;
    let mut rig = native(&app).await;
    let asked = body(json!({}));
    for _ in 0..4 {
        let (reply, ()) = tokio::join!(post(&app, &asked), async {
            for _ in 0..2 {
                let job = rig.job().await;
                rig.send(
                    json!({"type": "error", "id": job["id"], "message": "backend answered 503"}),
                )
                .await;
            }
        });
        assert_eq!(reply.status, StatusCode::BAD_GATEWAY);
        assert_eq!(reply.json().await["error"]["type"], "api_error");
    }
    let unreadable = delta(0, json!("no delta"));
    let (reply, ()) = tokio::join!(post(&app, &asked), async {
        for _ in 0..2 {
            let job = rig.job().await;
            pass(&mut rig, &job, said("Hey")).await;
            pass(&mut rig, &job, unreadable.clone()).await;
            pass(&mut rig, &job, said("more")).await;
            finish(&mut rig, &job).await;
        }
    });
    assert_eq!(reply.status, StatusCode::BAD_GATEWAY);
    let (reply, _) = tokio::join!(post(&app, &asked), answer(&mut rig));
    assert_eq!(reply.status, StatusCode::OK);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_native_job() {
    let app = App::start().await;
    let mut rig = native(&app).await;
    let asked = body(json!({"stream": true}));
    let (mut stream, job) = tokio::join!(post(&app, &asked), async {
        let job = rig.job().await;
        pass(&mut rig, &job, said("Hey")).await;
        job
    });
    while !stream.frame().await.unwrap().contains("Hey") {}
    drop(stream);
    let cancel = rig.frame().await;
    assert_eq!(
        (&cancel["type"], &cancel["id"]),
        (&json!("cancel"), &job["id"])
    );
    rig.send(json!({"type": "done", "id": job["id"], "cancelled": true}))
        .await;
    assert_eq!(rig.frame().await["type"], "ack");
    let asked = body(json!({}));
    let (reply, _) = tokio::join!(post(&app, &asked), answer(&mut rig));
    assert_eq!(reply.status, StatusCode::OK);
}

#[tokio::test]
async fn what_the_filters_rewrite_goes_to_no_native_worker() {
    let app = App::start().await;
    let flagged = app
        .account_with(Roles::USER.with(Roles::FLAGGED), Scopes::INFERENCE_SUBMIT)
        .await;
    let mut rig = connect(&app, "both", &["openai-chat", "anthropic"]).await;
    let asked = body(json!({"messages": [{"role": "user", "content": "a kid in a hat"}]}));
    let (reply, ()) = tokio::join!(post_as(&app, &flagged, &asked), async {
        let job = rig.job().await;
        assert_eq!(job["payload"]["api_format"], "openai-chat");
        assert!(!job["payload"].to_string().contains("kid"), "{job}");
        rig.token(&job, "Hey").await;
        rig.done(&job).await;
        assert_eq!(rig.frame().await["type"], "ack");
    });
    assert_eq!(reply.json().await["grid"]["translated"], "anthropic");
}

async fn respond(app: &App, body: &Value) -> Answer {
    let body = Body::from(body.to_string());
    let headers = [("x-api-key", app.key.as_str())];
    app.send(request(Method::POST, "/v1/responses", &headers, body))
        .await
}

/// Takes the next job and answers it with a response that is streamed; returns the job's frame.
async fn answer_response(rig: &mut Rig) -> Value {
    let job = rig.job().await;
    let call = json!({"type": "function_call", "id": "fc_theirs", "call_id": "call_1", "name": "look", "arguments": ""});
    let usage = json!({"input_tokens": 9, "output_tokens": 4, "total_tokens": 13});
    let whole = json!({"id": "resp_theirs", "status": "completed", "usage": usage, "output": []});
    let delta = |kind: &str, index: u32, delta: &str| json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": delta});
    for event in [
        json!({"type": "response.created", "response": {"status": "in_progress", "output": []}}),
        delta("reasoning_text", 0, "hm"),
        delta("output_text", 1, "Let me "),
        delta("output_text", 1, "look."),
        json!({"type": "response.output_item.added", "output_index": 2, "item": call}),
        delta("function_call_arguments", 2, "{\"at\":1}"),
        json!({"type": "response.completed", "response": whole}),
    ] {
        pass(rig, &job, event).await;
    }
    finish(rig, &job).await;
    job
}

#[tokio::test]
async fn a_native_worker_of_responses_gets_all_that_a_response_goes_on_from() {
    let app = App::start().await;
    let mut rig = connect(&app, "native", &["openai-responses"]).await;
    let tool = json!({"type": "function", "name": "look", "parameters": {"type": "object"}});
    let first = json!({"model": "tiny", "input": "hi", "user": "ann", "tools": [tool], "max_output_tokens": 50});
    let (reply, job) = tokio::join!(respond(&app, &first), answer_response(&mut rig));
    let payload = &job["payload"];
    assert_eq!(payload["api_format"], "openai-responses");
    let wanted = &payload["request"];
    assert_eq!(
        (&wanted["input"], &wanted["tools"][0]),
        (&json!("hi"), &tool)
    );
    assert_eq!(
        (&wanted["stream"], &wanted["store"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(wanted["max_output_tokens"], 50);
    assert!(wanted.get("user").is_none(), "{wanted}");
    let reply = reply.json().await;
    assert_eq!(reply["status"], "completed", "{reply}");
    let output = reply["output"].as_array().unwrap();
    let kinds: Vec<_> = output
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(output[1]["content"][0]["text"], "Let me look.");
    assert_eq!(output[2]["arguments"], "{\"at\":1}");
    assert_eq!(reply["grid"]["worker"], "native");
    assert!(reply["grid"].get("translated").is_none(), "{reply}");

    let result = json!({"type": "function_call_output", "call_id": "call_1", "output": "a cat"});
    let next = json!({"model": "tiny", "input": [result], "previous_response_id": reply["id"], "stream": true});
    let (stream, job) = tokio::join!(respond(&app, &next), answer_response(&mut rig));
    let wanted = &job["payload"]["request"];
    assert!(wanted.get("previous_response_id").is_none(), "{wanted}");
    let items = wanted["input"].as_array().unwrap();
    assert_eq!(items.len(), 5, "{wanted}");
    assert_eq!(items[0]["content"][0]["text"], "hi");
    assert_eq!(items[3]["call_id"], "call_1");
    assert_eq!(items[4], result);
    let text = stream.text().await;
    assert!(text.contains("event: response.completed"), "{text}");
}

#[tokio::test]
async fn tools_that_take_text_go_to_workers_that_chat() {
    let app = App::start().await;
    let mut rig = connect(&app, "both", &["openai-chat", "openai-responses"]).await;
    let tool = json!({"type": "custom", "name": "note"});
    let asked = json!({"model": "tiny", "input": "hi", "tools": [tool], "store": false});
    let (reply, ()) = tokio::join!(respond(&app, &asked), async {
        let job = rig.job().await;
        assert_eq!(job["payload"]["api_format"], "openai-chat");
        rig.token(&job, "Hey").await;
        rig.done(&job).await;
        assert_eq!(rig.frame().await["type"], "ack");
    });
    let reply = reply.json().await;
    assert_eq!(reply["grid"]["translated"], "openai-responses", "{reply}");
}

#[tokio::test]
async fn a_prompt_for_a_model_of_chat_workers_alone_is_sent_to_their_route() {
    let app = App::start().await;
    let check = async |route: &str| {
        let body = json!({"model": "tiny", "prompt": "once"}).to_string();
        let headers = [("x-api-key", app.key.as_str())];
        let sent = request(Method::POST, "/v1/completions", &headers, body.into());
        let answer = app.send(sent).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let error = answer.json().await["error"].take();
        assert_eq!(error["param"], "model", "{error}");
        assert!(
            error["message"].as_str().unwrap().contains(route),
            "{error}"
        );
    };
    let _chat = connect(&app, "chat", &["openai-chat"]).await;
    check("/v1/chat/completions now").await;
    let _native = native(&app).await;
    check("/v1/chat/completions and /v1/messages now").await;
}
