//! Bodies as chat bodies, events as responses and streams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use serde_json::{Value, json};

use super::{Context, Intent, Recorder, Sealer, read, stored_input};
use crate::job::{Channel, Event, FinishReason, RequestId, TokenEvent, ToolCallEvent, Usage};
use crate::openai::chat::{ChatRequest, Ending, Grid, Head, Reading};
use crate::openai::{IgnoredFields, Problem, Strictness};

/// Seals by writing it backwards.
#[derive(Debug)]
struct Backwards;

impl Sealer for Backwards {
    fn seal(&self, thinking: &str) -> String {
        thinking.chars().rev().collect()
    }

    fn open(&self, sealed: &str) -> Option<String> {
        (sealed != "forged").then(|| self.seal(sealed))
    }
}

#[derive(Debug, Default)]
struct Record(Mutex<Vec<String>>);

impl Recorder for Record {
    fn began(&self, response: &Value) {
        self.note(format!("began {}", response["status"]));
    }

    fn event(&self, event: &[u8]) {
        self.note(String::from_utf8_lossy(event).into_owned());
    }

    fn ended(&self, response: &Value) {
        self.note(format!("ended {}", response["status"]));
    }
}

impl Record {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }
}

fn context(history: Vec<Value>) -> Context {
    Context {
        history: Arc::new(history),
        referenced: Arc::new(HashMap::from([(
            "msg_1_0".to_owned(),
            message("assistant", "kept"),
        )])),
        sealer: Arc::new(Backwards),
        recorder: None,
        dropped: 0,
        stores_by_default: true,
    }
}

fn reading(body: Value) -> Result<Reading, Problem> {
    read(body, &IgnoredFields::None, &context(Vec::new()))
}

fn message(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn with(input: Value) -> Value {
    json!({"model": "tiny", "input": input})
}

fn chat(input: Value) -> Value {
    reading(with(input)).unwrap().chat["messages"].clone()
}

#[track_caller]
fn refused(body: Value, param: &str) {
    let problem = reading(body).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some(param), "{problem}");
}

#[test]
fn a_body_becomes_a_chat_body() {
    let format =
        json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true});
    let body = json!({
        "model": "tiny", "input": "hi", "instructions": "Be brief.", "max_output_tokens": 10, "temperature": 0.5,
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": true}],
        "tool_choice": {"type": "function", "name": "look"}, "text": {"format": format}, "seed": 3,
        "reasoning": {"effort": "low"}, "metadata": {"a": "b"}, "store": false, "top_logprobs": 2,
    });
    let chat = reading(body).unwrap().chat;
    assert_eq!(
        chat,
        json!({
            "model": "tiny", "max_completion_tokens": 10, "temperature": 0.5, "seed": 3, "reasoning_effort": "low",
            "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}, "strict": true}}],
            "tool_choice": {"type": "function", "function": {"name": "look"}}, "metadata": {"a": "b"},
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": true}},
            "logprobs": true, "top_logprobs": 2,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        })
    );
    assert!(ChatRequest::read(chat, Strictness::Refuse).is_ok());
}

#[test]
fn items_of_one_turn_become_one_message() {
    let messages = chat(json!([
        message("user", "weather?"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "mh"},
        {"type": "message", "role": "assistant", "status": "completed", "id": "msg_1",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "run", "input": "ls"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "a"}]},
        {"type": "item_reference", "id": "msg_1_0"},
    ]));
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let part = |text: &str| json!([{"type": "text", "text": text}]);
    assert_eq!(
        messages,
        json!([
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": part("I look."), "reasoning_content": "hm",
                "tool_calls": [call("c1", "look", "{}"), call("c2", "run", r#"{"input":"ls"}"#)]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "c2", "content": "a"},
            {"role": "assistant", "content": part("kept")},
        ])
    );
}

#[test]
fn stored_items_come_first_and_the_oldest_are_dropped_first() {
    let history = vec![message("user", "one"), message("assistant", "two")];
    let texts = |dropped: usize| {
        let context = Context {
            dropped,
            ..context(history.clone())
        };
        let body = json!({"model": "tiny", "instructions": "s", "input": "three"});
        let chat = read(body, &IgnoredFields::None, &context).unwrap().chat;
        chat["messages"].as_array().unwrap().len()
    };
    assert_eq!([texts(0), texts(1), texts(2)], [4, 3, 2]);
}

#[test]
fn an_output_is_dropped_with_its_call() {
    let history = vec![
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "c", "output": "x"}),
    ];
    let context = Context {
        dropped: 1,
        ..context(history)
    };
    let chat = read(with(json!("hi")), &IgnoredFields::None, &context)
        .unwrap()
        .chat;
    assert_eq!(chat["messages"], json!([{"role": "user", "content": "hi"}]));
}

#[test]
fn what_cannot_be_served_is_refused_by_its_name() {
    let user = || json!([message("user", "hi")]);
    let more = |name: &str, value: Value| {
        let mut body = with(user());
        body[name] = value;
        body
    };
    refused(
        more("tools", json!([{"type": "web_serch"}])),
        "tools[0].type",
    );
    let mut demanded = more("tools", json!([{"type": "web_search"}]));
    demanded["tool_choice"] = json!("required");
    refused(demanded.clone(), "tools[0].type");
    demanded["tool_choice"] = json!({"type": "web_search"});
    refused(demanded.clone(), "tool_choice.type");
    demanded["tool_choice"] =
        json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]});
    refused(demanded, "tool_choice.tools[0].type");
    refused(more("conversation", json!("conv_1")), "conversation");
    refused(more("temprature", json!(1)), "temprature");
    refused(
        more("include", json!(["file_search_call.results"])),
        "include[0]",
    );
    refused(
        more("reasoning", json!({"summary": "concise"})),
        "reasoning.summary",
    );
    refused(
        json!({"model": "tiny", "input": "x", "background": true, "store": false}),
        "background",
    );
    refused(json!({"model": "tiny"}), "input");
    refused(with(json!([{"type": "web_search_call"}])), "input[0].type");
    refused(
        with(json!([{"type": "item_reference", "id": "msg_2_0"}])),
        "input[0]",
    );
    let forged = json!([{"type": "reasoning", "summary": [], "encrypted_content": "forged"}]);
    refused(with(forged), "input[0].encrypted_content");
    let orphan = json!([{"type": "function_call_output", "call_id": "c", "output": "x"}]);
    refused(with(orphan), "input[0].call_id");
    let twice = json!([{"type": "custom", "name": "a"}, {"type": "function", "name": "a"}]);
    refused(more("tools", twice), "tools[1].name");
    let lark = json!([{"type": "custom", "name": "a", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}}]);
    refused(more("tools", lark), "tools[0].format.syntax");
}

/// Tools as a coding agent declares them.
fn agents_tools() -> Value {
    json!([
        {"type": "web_search", "external_web_access": true},
        {"type": "function", "name": "run", "strict": false, "parameters": {"type": "object"}},
        {"type": "namespace", "name": "team", "description": "Other agents.", "tools": [
            {"type": "function", "name": "run", "parameters": {"type": "object"}},
            {"type": "custom", "name": "note"},
        ]},
    ])
}

#[test]
fn a_namespace_is_the_functions_in_it_and_hosted_tools_are_left_out() {
    let mut body = with(json!([
        message("user", "hi"),
        {"type": "function_call", "call_id": "c0", "namespace": "team", "name": "run", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c0", "output": "x"},
    ]));
    body["tools"] = agents_tools();
    body["tool_choice"] = json!("auto");
    body["client_metadata"] = json!({"turn": "1"});
    let reading = reading(body.clone()).unwrap();
    assert_eq!(reading.ignored, ["tools.web_search"]);
    let names: Vec<&str> = reading.chat["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert_eq!(names, ["run", "team__run", "team__note"]);
    let called = &reading.chat["messages"][1]["tool_calls"][0]["function"]["name"];
    assert_eq!(called, "team__run");
    let param = |chat: &str| reading.dialect.param(chat).into_owned();
    assert_eq!(
        param("tools[1].function.parameters.if"),
        "tools[2].tools[0].parameters.if"
    );
    let item = |name: &str| {
        let events = vec![call(name, r#"{"input":"x"}"#)];
        let mut item = response(body.clone(), events, FinishReason::ToolCalls)["output"][0].clone();
        item["id"] = Value::Null;
        item
    };
    let (run, note) = (item("team__run"), item("team__note"));
    assert_eq!(
        [&run["type"], &run["namespace"], &run["name"]],
        ["function_call", "team", "run"]
    );
    assert_eq!(
        [&note["type"], &note["namespace"], &note["name"]],
        ["custom_tool_call", "team", "note"]
    );
    assert_eq!(note["input"], "x");
    assert_eq!(item("run")["namespace"], Value::Null);
}

#[test]
fn a_choice_between_hosted_tools_alone_allows_none() {
    let allowed =
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]});
    let mut body = with(json!("hi"));
    body["tools"] = agents_tools();
    body["tool_choice"] = allowed;
    let chat = reading(body).unwrap().chat;
    assert_eq!(chat["tool_choice"], "none");
    let chat = ChatRequest::read(chat, Strictness::Refuse).unwrap();
    assert_eq!(chat.text.tool_choice, None);
}

#[test]
fn errors_of_the_chat_body_name_the_clients_fields() {
    let reading =
        reading(json!({"model": "tiny", "instructions": "s", "input": [message("user", "a")]}))
            .unwrap();
    let check = |chat: &str, expected: &str| assert_eq!(reading.dialect.param(chat), expected);
    check("messages[0].content", "instructions");
    check("messages[1].content[0]", "input[0]");
    check("max_completion_tokens", "max_output_tokens");
    check("response_format.json_schema.schema", "text.format.schema");
    check("tools[2].function.parameters", "tools[2].parameters");
}

fn token(channel: Channel, text: &str) -> Event {
    Event::Token(TokenEvent {
        channel,
        text: text.to_owned(),
        ..TokenEvent::default()
    })
}

fn call(name: &str, arguments: &str) -> Event {
    Event::ToolCall(ToolCallEvent {
        index: 0,
        id: Some("c1".to_owned()),
        name: Some(name.to_owned()),
        arguments: arguments.to_owned(),
        ids: Vec::new(),
    })
}

fn head() -> Head {
    Head::new(
        "resp_",
        RequestId(uuid::Uuid::from_u128(1)),
        7,
        "tiny".into(),
    )
}

fn ending(finish: FinishReason) -> Ending {
    let usage = Usage {
        prompt_tokens: 3,
        completion_tokens: 2,
        ..Usage::default()
    };
    Ending { finish, usage }
}

/// The response that events make.
fn response(body: Value, events: Vec<Event>, finish: FinishReason) -> Value {
    let Reading { chat, dialect, .. } = reading(body).unwrap();
    let request = ChatRequest::read(chat, Strictness::Refuse).unwrap();
    let mut reply = dialect.reply(&request, &head());
    for event in events {
        reply.event(0, event);
    }
    reply.end(0, ending(finish));
    reply.render(&Grid::default())
}

/// The events of a stream.
fn stream(context: &Context, body: Value, events: &[Event]) -> Vec<Value> {
    let Reading { chat, dialect, .. } = read(body, &IgnoredFields::None, context).unwrap();
    let request = ChatRequest::read(chat, Strictness::Refuse).unwrap();
    let mut out = BytesMut::new();
    let mut writer = dialect.stream(&request, &head());
    writer.open(0, &mut out);
    for event in events {
        writer.event(0, event, &mut out);
    }
    writer.end(0, ending(FinishReason::Stop), &Grid::default(), &mut out);
    parsed(std::str::from_utf8(&out).unwrap())
}

fn parsed(text: &str) -> Vec<Value> {
    let events = text.split("\n\n").filter(|event| !event.is_empty());
    events
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
            data
        })
        .collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

#[test]
fn events_become_items() {
    let body = json!({"model": "tiny", "input": "hi", "tools": [{"type": "custom", "name": "run"}], "metadata": {"a": "b"},
        "include": ["reasoning.encrypted_content"]});
    let events = vec![
        token(Channel::Reasoning, "hm"),
        token(Channel::Content, "I "),
        token(Channel::Content, "run."),
        call("run", r#"{"input":"ls"}"#),
    ];
    let response = response(body, events, FinishReason::ToolCalls);
    let request = "00000000000000000000000000000001";
    assert_eq!(response["id"], format!("resp_{request}"));
    assert_eq!(response["status"], "completed");
    assert_eq!(response["metadata"], json!({"a": "b"}));
    assert_eq!(
        response["output"],
        json!([
            {"id": format!("rs_{request}_0"), "type": "reasoning", "status": "completed", "summary": [],
                "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": "mh"},
            {"id": format!("msg_{request}_1"), "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "I run.", "annotations": [], "logprobs": []}]},
            {"id": format!("ctc_{request}_2"), "type": "custom_tool_call", "status": "completed", "call_id": "c1",
                "name": "run", "input": "ls"},
        ])
    );
    assert_eq!(response["usage"]["total_tokens"], 5);
}

#[test]
fn a_limit_makes_an_incomplete_response() {
    let events = vec![token(Channel::Content, "I")];
    let response = response(with(json!("hi")), events, FinishReason::Length);
    assert_eq!(response["status"], "incomplete");
    assert_eq!(
        response["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    assert_eq!(response["output"][0]["status"], "incomplete");
}

#[test]
fn a_stream_opens_and_closes_every_item_in_order() {
    let body = json!({"model": "tiny", "input": "hi", "stream": true, "tools": [{"type": "function", "name": "f"}]});
    let events = [
        token(Channel::Content, "a\"b"),
        call("f", "{\"x\""),
        call("f", ":1}"),
    ];
    let events = stream(&context(Vec::new()), body, &events);
    let numbers: Vec<_> = events
        .iter()
        .map(|event| event["sequence_number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(
        types(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert_eq!(events[4]["delta"], "a\"b");
    assert_eq!(events[11]["arguments"], "{\"x\":1}");
    let output = &events[13]["response"]["output"];
    assert_eq!(
        [&output[0], &output[1]],
        [&events[7]["item"], &events[12]["item"]]
    );
}

#[test]
fn a_background_stream_is_recorded_from_its_first_event() {
    let record = Arc::new(Record::default());
    let context = Context {
        recorder: Some(record.clone()),
        ..context(Vec::new())
    };
    let body = json!({"model": "tiny", "input": "hi", "background": true});
    let sent = stream(&context, body, &[token(Channel::Content, "a")]);
    let recorded = record.0.lock().unwrap().clone();
    assert_eq!(recorded[0], "began \"queued\"");
    assert_eq!(recorded[recorded.len() - 1], "ended \"completed\"");
    let events: String = recorded
        .into_iter()
        .filter(|text| text.starts_with("event"))
        .collect();
    let events = parsed(&events);
    assert_eq!(
        types(&events)[..3],
        [
            "response.created",
            "response.queued",
            "response.in_progress"
        ]
    );
    assert_eq!(events[2..], sent);
}

#[test]
fn reasoning_is_its_own_summary_where_one_is_wanted() {
    let body =
        json!({"model": "tiny", "input": "hi", "stream": true, "reasoning": {"summary": "auto"}});
    let events = stream(
        &context(Vec::new()),
        body,
        &[token(Channel::Reasoning, "hm")],
    );
    assert_eq!(
        types(&events)[2..8],
        [
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
        ]
    );
    assert_eq!(
        events[7]["item"]["summary"],
        json!([{"type": "summary_text", "text": "hm"}])
    );
}

#[test]
fn stored_input_has_ids_and_parts() {
    assert_eq!(
        stored_input(&json!("hi"), "0f"),
        [
            json!({"id": "msg_0f_i0", "type": "message", "role": "user", "status": "completed",
            "content": [{"type": "input_text", "text": "hi"}]})
        ]
    );
    let given =
        json!({"type": "function_call_output", "id": "mine", "call_id": "c", "output": "x"});
    assert_eq!(stored_input(&json!([given]), "0f")[0]["id"], "mine");
}

#[test]
fn an_intent_is_read_from_any_body() {
    let body = json!({"input": [{"type": "item_reference", "id": "msg_1_0"}], "background": true, "store": 7});
    let intent = Intent::of(&body);
    assert_eq!(intent.references, ["msg_1_0"]);
    assert!(intent.background && intent.store.is_none() && !intent.stream);
    assert_eq!(Intent::of(&json!([])).previous, None);
    assert_eq!(Intent::of(&json!({"store": false})).store, Some(false));
}

#[test]
fn a_background_request_has_to_ask_to_be_stored_where_that_is_no_default() {
    let context = Context {
        stores_by_default: false,
        ..context(Vec::new())
    };
    let body = json!({"model": "tiny", "input": "hi", "background": true});
    let refused = read(body.clone(), &IgnoredFields::None, &context).err();
    assert!(refused.unwrap().failure.message.contains("\"store\": true"));
    let mut asking = body;
    asking["store"] = true.into();
    assert!(read(asking, &IgnoredFields::None, &context).is_ok());
}

#[test]
fn tools_that_the_client_runs_are_functions_and_have_items_of_their_own() {
    let mut body = with(json!([
        message("user", "hi"),
        {"type": "shell_call", "call_id": "c0", "action": {"commands": ["ls"], "timeout_ms": null}},
        {"type": "shell_call_output", "call_id": "c0", "output": [
            {"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        ]},
        {"type": "local_shell_call", "id": "lsh_0", "call_id": "c1", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "c1", "output": "b.txt"},
        {"type": "apply_patch_call", "call_id": "c2", "operation": {"type": "delete_file", "path": "a.txt"}},
        {"type": "apply_patch_call_output", "call_id": "c2", "status": "failed", "output": "no such file"},
    ]));
    body["tools"] = json!([{"type": "shell"}, {"type": "local_shell"}, {"type": "apply_patch"}]);
    body["tool_choice"] = json!({"type": "apply_patch"});
    let reading = reading(body.clone()).unwrap();
    assert_eq!(reading.ignored, [""; 0]);
    let chat = &reading.chat;
    let names = (0..3).map(|at| &chat["tools"][at]["function"]["name"]);
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["shell", "local_shell", "apply_patch"]
    );
    assert_eq!(chat["tool_choice"]["function"]["name"], "apply_patch");
    let called = |at: usize| &chat["messages"][at]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(called(1), r#"{"commands":["ls"]}"#);
    assert_eq!(called(3), r#"{"command":["ls"],"env":{}}"#);
    let said = [2, 4, 6].map(|at| chat["messages"][at]["content"].as_str().unwrap());
    assert_eq!(
        said,
        ["a.txt\nexit code 0", "b.txt", "failed\nno such file"]
    );
    let item = |name: &str, arguments: &str| {
        let events = vec![call(name, arguments)];
        let mut item = response(body.clone(), events, FinishReason::ToolCalls)["output"][0].clone();
        item["id"] = Value::Null;
        item["call_id"] = Value::Null;
        item
    };
    assert_eq!(
        item("shell", r#"{"commands":["ls","pwd"],"timeout_ms":5}"#),
        json!({"id": null, "call_id": null, "type": "shell_call", "status": "completed",
            "action": {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": null}})
    );
    let patch = r#"{"type":"create_file","path":"a","diff":"+b"}"#;
    let patched = item("apply_patch", patch);
    assert_eq!(patched["type"], "apply_patch_call");
    assert_eq!(
        patched["operation"],
        serde_json::from_str::<Value>(patch).unwrap()
    );
    let local = item("local_shell", r#"{"command":["ls","-l"]}"#);
    assert_eq!(local["action"]["command"], json!(["ls", "-l"]));
    assert_eq!(local["action"]["type"], "exec");
}

#[test]
fn a_shell_of_the_service_is_left_out() {
    let mut body = with(json!("hi"));
    body["tools"] = json!([{"type": "shell", "environment": {"type": "container_auto"}}]);
    assert_eq!(reading(body).unwrap().ignored, ["tools.shell"]);
}

#[test]
fn calls_of_tools_of_the_client_are_streamed_as_whole_items() {
    let body =
        json!({"model": "tiny", "input": "hi", "tools": [{"type": "shell"}], "stream": true});
    let events = [call("shell", r#"{"commands":["ls"]}"#)];
    let events = stream(&context(Vec::new()), body, &events);
    let done: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .collect();
    assert_eq!(done.len(), 1);
    assert_eq!(done[0]["item"]["action"]["commands"], json!(["ls"]));
    assert!(!types(&events).iter().any(|name| name.contains("arguments")));
}
