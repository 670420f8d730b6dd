//! Bodies as chat bodies, events as lines.

use bytes::BytesMut;
use serde_json::{Value, json};

use super::{Door, EmbedRequest, LoadRequest, drop_oldest, droppable, error_body, read};
use crate::job::{
    Channel, Event, FinishReason, RequestId, TextInput, TokenEvent, ToolCallEvent, Usage, Vector,
};
use crate::openai::chat::{ChatRequest, Ending, Grid, Head, Reading};
use crate::openai::{IgnoredFields, Problem, Strictness};

fn reading(body: Value, door: Door) -> Result<Reading, Problem> {
    read(body, door, &IgnoredFields::None)
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

#[track_caller]
fn refused(body: Value, door: Door, param: &str) {
    let problem = reading(body, door).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some(param), "{problem}");
}

#[test]
fn a_body_becomes_a_chat_body() {
    let tool =
        json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}});
    let body = json!({
        "model": "tiny:latest", "messages": [user("hi")], "tools": [tool], "stream": false, "think": "low",
        "format": {"type": "object"}, "keep_alive": "5m",
        "options": {"temperature": 0.5, "num_predict": 9, "stop": ["x"], "seed": 3, "repeat_penalty": 1.1, "num_ctx": 4096},
    });
    let chat = reading(body, Door::Chat).unwrap().chat;
    assert_eq!(
        chat,
        json!({
            "model": "tiny", "messages": [user("hi")], "tools": [tool], "stream": false, "enable_thinking": true,
            "reasoning_effort": "low", "temperature": 0.5, "max_tokens": 9, "stop": ["x"], "seed": 3,
            "repetition_penalty": 1.1, "response_format": {"type": "json_schema", "json_schema": {
                "name": "output", "schema": {"type": "object"}, "strict": true,
            }},
        })
    );
    assert!(ChatRequest::read(chat, Strictness::Refuse).is_ok());
}

#[test]
fn results_belong_to_the_first_open_call_of_their_name() {
    let call = |name: &str| json!({"function": {"name": name, "arguments": {"at": 1}}});
    let body = json!({"model": "tiny", "messages": [
        user("hi"),
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call("look"), call("run"), call("look")]},
        {"role": "tool", "tool_name": "run", "content": "ran"},
        {"role": "tool", "tool_name": "look", "content": "seen"},
        {"role": "tool", "content": "again"},
    ]});
    let chat = reading(body, Door::Chat).unwrap().chat;
    let messages = &chat["messages"];
    let ids: Vec<&str> = (2..5)
        .filter_map(|at| messages[at]["tool_call_id"].as_str())
        .collect();
    assert_eq!(ids, ["call_1_1", "call_1_0", "call_1_2"]);
    assert_eq!(messages[1]["reasoning_content"], "hm");
    assert_eq!(
        messages[1]["tool_calls"][0]["function"],
        json!({"name": "look", "arguments": "{\"at\":1}"})
    );
    assert!(ChatRequest::read(chat, Strictness::Refuse).is_ok());
}

#[test]
fn a_prompt_is_a_message_unless_it_is_raw() {
    let body =
        json!({"model": "tiny", "prompt": "hi", "system": "Be brief.", "images": ["/9j/AA=="]});
    let chat = reading(body, Door::Generate).unwrap().chat;
    assert_eq!(chat["messages"][0]["content"], "Be brief.");
    let url = &chat["messages"][1]["content"][1]["image_url"]["url"];
    assert_eq!(url, "data:image/jpeg;base64,/9j/AA==");
    assert_eq!(chat["stream"], true);
    let raw = json!({"model": "tiny", "prompt": "hi", "raw": true});
    let Reading { chat, dialect, .. } = reading(raw, Door::Generate).unwrap();
    let mut request = ChatRequest::read(chat, Strictness::Refuse).unwrap();
    dialect.complete(&mut request).unwrap();
    assert_eq!(request.text.input, TextInput::Prompt("hi".to_owned()));
    assert_eq!(dialect.param("messages[0].content"), "prompt");
}

#[test]
fn values_that_cannot_be_honoured_are_refused_by_name() {
    let chat = |name: &str, value: Value| {
        let mut body = json!({"model": "tiny", "messages": [user("hi")]});
        body[name] = value;
        body
    };
    refused(
        chat("options", json!({"mirostat": 2})),
        Door::Chat,
        "options.mirostat",
    );
    refused(chat("format", json!("xml")), Door::Chat, "format");
    let stray = json!([user("hi"), {"role": "tool", "content": "x"}]);
    refused(chat("messages", stray), Door::Chat, "messages[1]");
    let more = json!({"model": "tiny", "prompt": "hi", "context": [1]});
    refused(more, Door::Generate, "context");
    refused(json!({"prompt": "hi"}), Door::Generate, "model");
}

#[test]
fn what_ollama_does_not_read_is_left_out_and_named() {
    let call = json!({"function": {"name": "look", "arguments": {}}, "type": "function", "at": 1});
    let body = json!({
        "model": "tiny", "temprature": 1, "options": {"tempature": 1, "seed": 3},
        "messages": [user("hi"), {"role": "assistant", "content": "", "mood": 1, "tool_calls": [call]},
            {"role": "user", "content": "go on", "mood": 2}],
    });
    let Reading { chat, ignored, .. } = reading(body, Door::Chat).unwrap();
    assert_eq!(
        ignored,
        [
            "temprature",
            "options.tempature",
            "messages.mood",
            "messages.tool_calls.at"
        ]
    );
    assert_eq!(chat["seed"], 3);
    assert!(ChatRequest::read(chat, Strictness::Refuse).is_ok());
    let embed = json!({"model": "m", "input": "a", "prompt": "b"});
    assert_eq!(EmbedRequest::read(embed).unwrap().ignored, ["prompt"]);
}

#[test]
fn a_chat_that_is_too_long_loses_its_oldest_messages() {
    let call = json!({"function": {"name": "look", "arguments": {}}});
    let body = json!({"messages": [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "x"},
        user("a"),
        user("b"),
    ]});
    assert_eq!(droppable(&body), 3);
    let left = |count: usize| {
        let mut body = body.clone();
        drop_oldest(&mut body, count);
        let messages = body["messages"].as_array().unwrap().iter();
        let texts = messages.map(|message| message["content"].as_str().unwrap().to_owned());
        texts.collect::<Vec<_>>()
    };
    assert_eq!(left(0), ["s", "", "x", "a", "b"]);
    // The result of a call goes with it.
    assert_eq!(left(1), ["s", "a", "b"]);
    assert_eq!(left(3), ["s", "b"]);
}

#[test]
fn the_older_route_has_one_text_and_one_vector() {
    let body = json!({"model": "m", "prompt": "a", "options": {}, "more": 1});
    let request = EmbedRequest::read_old(body).unwrap();
    assert_eq!(request.ignored, ["more"]);
    let input = TextInput::Prompt("a".to_owned());
    assert_eq!(request.embeddings.inputs, [input]);
    let reply = EmbedRequest::reply_old(&[Vector(vec![0.5, -1.0])]);
    assert_eq!(reply, r#"{"embedding":[0.5,-1.0]}"#);
    let problem = EmbedRequest::read_old(json!({"model": "m"})).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some("prompt"));
}

#[test]
fn a_body_without_a_message_loads_a_model() {
    let load = |body: Value, door| LoadRequest::of(&body, door).unwrap();
    assert_eq!(
        load(json!({"model": "a", "prompt": "x"}), Door::Generate),
        None
    );
    let asked = load(
        json!({"model": "a:latest", "stream": false}),
        Door::Generate,
    )
    .unwrap();
    assert_eq!((&*asked.model, asked.streams), ("a", false));
    assert_eq!(asked.reply(0)["done_reason"], "load");
    let body = json!({"model": "a", "messages": [], "keep_alive": 0});
    let gone = load(body, Door::Chat).unwrap();
    assert_eq!(gone.reply(0)["done_reason"], "unload");
    assert!(LoadRequest::of(&json!({}), Door::Chat).is_err());
    let wrong = json!({"model": "a", "messages": [], "keep_alive": "soon"});
    let problem = LoadRequest::of(&wrong, Door::Chat).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some("keep_alive"));
}

fn token(channel: Channel, text: &str) -> Event {
    Event::Token(TokenEvent {
        channel,
        text: text.to_owned(),
        ..TokenEvent::default()
    })
}

fn call(arguments: &str) -> Event {
    Event::ToolCall(ToolCallEvent {
        name: (!arguments.starts_with(':')).then(|| "look".to_owned()),
        arguments: arguments.to_owned(),
        ..ToolCallEvent::default()
    })
}

#[test]
fn a_stream_is_lines_and_the_last_one_has_counts() {
    let body = json!({"model": "tiny", "messages": [user("hi")]});
    let Reading { chat, dialect, .. } = reading(body, Door::Chat).unwrap();
    let request = ChatRequest::read(chat, Strictness::Refuse).unwrap();
    let head = Head::new("", RequestId(uuid::Uuid::nil()), 0, "tiny".into());
    let events = [
        token(Channel::Reasoning, "hm"),
        token(Channel::Content, "He\"y"),
        call("{\"at\""),
        call(":1}"),
    ];
    let usage = Usage {
        prompt_tokens: 11,
        completion_tokens: 6,
        ..Usage::default()
    };
    let ending = || Ending {
        finish: FinishReason::Length,
        usage,
    };
    let grid = Grid {
        gen_time: 1.5,
        ttft: Some(0.5),
        ..Grid::default()
    };
    let (mut writer, mut out) = (dialect.stream(&request, &head), BytesMut::new());
    let mut reply = dialect.reply(&request, &head);
    for event in events {
        writer.event(0, &event, &mut out);
        reply.event(0, event);
    }
    writer.heartbeat(&mut out);
    writer.end(0, ending(), &grid, &mut out);
    reply.end(0, ending());
    let text = std::str::from_utf8(&out).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let messages: Vec<&Value> = lines.iter().map(|line| &line["message"]).collect();
    let calls = json!([{"function": {"index": 0, "name": "look", "arguments": {"at": 1}}}]);
    assert_eq!(messages[0]["thinking"], "hm");
    assert_eq!(messages[1]["content"], "He\"y");
    assert_eq!(messages[2]["content"], "");
    assert_eq!(messages[3]["tool_calls"], calls);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["done"], &last["done_reason"]),
        (&json!(true), &json!("length"))
    );
    assert_eq!(last["prompt_eval_duration"], 500_000_000);
    assert_eq!(last["eval_duration"], 1_000_000_000);
    assert_eq!(last["created_at"], "1970-01-01T00:00:00Z");
    let whole = reply.render(&grid);
    assert_eq!(whole["message"]["content"], "He\"y");
    assert_eq!(whole["message"]["thinking"], "hm");
    assert_eq!(whole["message"]["tool_calls"], calls);
    assert_eq!(whole["eval_count"], 6);
}

#[test]
fn vectors_come_in_the_order_of_their_texts() {
    let request = EmbedRequest::read(json!({"model": "m:latest", "input": ["a", "b"]})).unwrap();
    assert_eq!(&*request.embeddings.model, "m");
    let vectors = [Vector(vec![1.0]), Vector(vec![-0.5])];
    let took = std::time::Duration::from_micros(2);
    let reply: Value =
        serde_json::from_str(&request.reply(&vectors, Usage::default(), took)).unwrap();
    assert_eq!(reply["embeddings"], json!([[1.0], [-0.5]]));
    assert_eq!(reply["total_duration"], 2000);
}

#[test]
fn an_error_is_one_text() {
    let body = json!({"error": {"message": "no", "code": "c", "param": null}, "detail": "no"});
    assert_eq!(
        error_body(&body),
        json!({"error": "no", "code": "c", "param": null})
    );
}
