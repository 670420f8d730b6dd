//! Bodies as chat bodies, events as messages and streams.

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::{Value, json};

use super::{Purpose, Signer, read};
use crate::job::{Channel, Event, FinishReason, RequestId, TokenEvent, ToolCallEvent, Usage};
use crate::openai::chat::{ChatRequest, Dialect, Ending, Grid, Head, Reading};
use crate::openai::{IgnoredFields, Problem, Strictness};

/// Signs with the length.
#[derive(Debug)]
struct LengthSigner;

impl Signer for LengthSigner {
    fn sign(&self, thinking: &str) -> String {
        thinking.len().to_string()
    }

    fn verifies(&self, thinking: &str, signature: &str) -> bool {
        self.sign(thinking) == signature
    }
}

fn reading(body: Value) -> Result<Reading, Problem> {
    let signer: Arc<dyn Signer> = Arc::new(LengthSigner);
    read(body, Purpose::Message, &IgnoredFields::None, &signer)
}

fn with(messages: Value) -> Value {
    json!({"model": "tiny", "max_tokens": 10, "messages": messages})
}

fn chat(messages: Value) -> Value {
    reading(with(messages)).unwrap().chat["messages"].clone()
}

#[track_caller]
fn refused(body: Value, param: &str) {
    let problem = reading(body).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some(param), "{problem}");
}

#[test]
fn a_body_becomes_a_chat_body() {
    let tool = json!({"name": "look", "description": "Looks.", "input_schema": {"type": "object"}, "strict": true});
    let body = json!({
        "model": "tiny", "max_tokens": 10, "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": "hi"}], "tools": [tool], "stop_sequences": ["x"],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "thinking": {"type": "enabled", "budget_tokens": 2048},
        "temperature": 0.5, "top_k": 5, "metadata": {"user_id": "u"},
    });
    let chat = reading(body).unwrap().chat;
    assert_eq!(
        chat,
        json!({
            "model": "tiny", "max_tokens": 10, "stop": ["x"], "tool_choice": "required", "parallel_tool_calls": false,
            "reasoning_effort": "low", "enable_thinking": true, "temperature": 0.5, "top_k": 5,
            "tools": [{"type": "function", "function": {
                "name": "look", "description": "Looks.", "parameters": {"type": "object"}, "strict": true,
            }}],
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        })
    );
    assert!(ChatRequest::read(chat, Strictness::Refuse).is_ok());
}

#[test]
fn turns_are_joined_and_tool_results_are_messages() {
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "2"});
    let call = json!({"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}});
    let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "seen"}], "is_error": true});
    let messages = chat(json!([
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "c"}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "d"}]},
    ]));
    assert_eq!(
        messages,
        json!([
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c", "reasoning_content": "hm", "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}},
            ]},
            {"role": "tool", "tool_call_id": "t1", "content": "Error: seen"},
            {"role": "user", "content": "d"},
        ])
    );
}

#[test]
fn a_system_message_may_stand_anywhere() {
    let messages = chat(json!([
        {"role": "user", "content": "a"},
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "b"},
    ]));
    let expected = json!([
        {"role": "user", "content": "a"},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "b"},
    ]);
    assert_eq!(messages, expected);
}

#[test]
fn documents_and_images_are_read() {
    let document = json!({"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "x"}});
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}});
    let messages = chat(json!([{"role": "user", "content": [document, image]}]));
    assert_eq!(messages[0]["content"][0]["text"], "T\nx");
    let url = &messages[0]["content"][1]["image_url"]["url"];
    assert_eq!(url, "data:image/png;base64,AA==");
}

#[test]
fn a_pdf_becomes_a_file_with_its_title_before_it() {
    let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "AA=="});
    let link = json!({"type": "url", "url": "https://example.com/a.pdf"});
    let messages = chat(json!([{"role": "user", "content": [
        {"type": "document", "title": "T", "context": "C", "source": pdf},
        {"type": "document", "source": link},
    ]}]));
    let file = |data: &str| json!({"type": "file", "file": {"file_data": data}});
    let expected = json!([
        {"type": "text", "text": "T\nC"},
        file("data:application/pdf;base64,AA=="),
        file("https://example.com/a.pdf"),
    ]);
    assert_eq!(messages[0]["content"], expected);
}

#[test]
fn refusals_name_the_place() {
    let user = |block: Value| with(json!([{"role": "user", "content": [block]}]));
    refused(
        user(json!({"type": "hologram"})),
        "messages.0.content.0.type",
    );
    refused(user(json!({"type": "text"})), "messages.0.content.0.text");
    refused(
        user(json!({"type": "text", "text": "x", "txet": 1})),
        "messages.0.content.0.txet",
    );
    let word = json!({"type": "base64", "media_type": "application/msword", "data": ""});
    refused(
        user(json!({"type": "document", "source": word})),
        "messages.0.content.0.source.media_type",
    );
    let stored = json!({"type": "file", "file_id": "file_1"});
    refused(
        user(json!({"type": "document", "source": stored})),
        "messages.0.content.0.source.type",
    );
    let result = json!({"type": "tool_result", "tool_use_id": "t9"});
    refused(user(result), "messages.0.content.0.tool_use_id");
    refused(with(json!([])), "messages");
    refused(
        with(json!([{"role": "assistant", "content": "x"}])),
        "messages.0",
    );
    refused(
        with(json!([{"role": "tool", "content": "x"}])),
        "messages.0.role",
    );
    let forged = json!({"type": "thinking", "thinking": "hm", "signature": "3"});
    let talk =
        json!([{"role": "assistant", "content": [forged]}, {"role": "user", "content": "x"}]);
    refused(with(talk), "messages.0.content.0.signature");
    let tools = |tools: Value| {
        let mut body = with(json!([{"role": "user", "content": "x"}]));
        body["tools"] = tools;
        body
    };
    refused(
        tools(json!([{"type": "web_search_20250305", "name": "web_search"}])),
        "tools.0.type",
    );
    let tool = json!({"name": "look", "input_schema": {"type": "object"}});
    refused(tools(json!([tool, tool])), "tools.1.name");
    let mut called = tool.clone();
    called["allowed_callers"] = json!(["code_execution_20260120"]);
    refused(tools(json!([called])), "tools.0.allowed_callers");
    let renamed = json!([{"type": "bash_20250124", "name": "sh"}]);
    refused(tools(renamed), "tools.0.name");
    for (name, value, param) in [
        ("speed", json!("fast"), "speed"),
        ("thread", json!({"type": "create"}), "thread"),
        (
            "diagnostics",
            json!({"previous_message_id": null}),
            "diagnostics",
        ),
        (
            "thinking",
            json!({"type": "between_tools"}),
            "thinking.type",
        ),
        (
            "thinking",
            json!({"type": "enabled", "display": "loud"}),
            "thinking.display",
        ),
    ] {
        let mut body = with(json!([{"role": "user", "content": "x"}]));
        body[name] = value;
        refused(body, param);
    }
    let mut body = with(json!([{"role": "user", "content": "x"}]));
    body["temprature"] = 1.into();
    refused(body, "temprature");
}

#[test]
fn fields_of_the_chat_body_have_the_clients_names() {
    let mut body =
        with(json!([{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]));
    body["system"] = "s".into();
    let dialect = reading(body).unwrap().dialect;
    let check = |chat: &str, expected: &str| assert_eq!(dialect.param(chat), expected, "{chat}");
    check("messages[0].content", "system");
    check("messages[1].content[0]", "messages.0");
    check(
        "tools[2].function.parameters.properties",
        "tools.2.input_schema.properties",
    );
    check("stop", "stop_sequences");
    check(
        "response_format.json_schema.schema.not",
        "output_config.format.schema.not",
    );
    check("temperature", "temperature");
}

fn said(channel: Channel, text: &str) -> Event {
    Event::Token(TokenEvent {
        channel,
        text: text.to_owned(),
        ..TokenEvent::default()
    })
}

fn piece(index: u32, name: Option<&str>, arguments: &str) -> Event {
    Event::ToolCall(ToolCallEvent {
        index,
        name: name.map(str::to_owned),
        arguments: arguments.to_owned(),
        ..ToolCallEvent::default()
    })
}

fn events() -> Vec<Event> {
    vec![
        Event::Started {
            prompt_tokens: 11,
            cached_tokens: 4,
        },
        said(Channel::Reasoning, "hm"),
        said(Channel::Content, "He\"y"),
        piece(0, Some("look"), "{\"at\":"),
        piece(0, None, "1}"),
        piece(1, Some("look"), "{}"),
    ]
}

fn ending(finish: FinishReason) -> Ending {
    let usage = Usage {
        prompt_tokens: 11,
        cached_tokens: 4,
        completion_tokens: 6,
        reasoning_tokens: 1,
    };
    Ending { finish, usage }
}

/// A request that asks for thinking.
fn started() -> (Box<dyn Dialect>, ChatRequest, Head) {
    let mut body = with(json!([{"role": "user", "content": "x"}]));
    body["thinking"] = json!({"type": "adaptive"});
    started_with(body)
}

fn started_with(body: Value) -> (Box<dyn Dialect>, ChatRequest, Head) {
    let Reading { chat, dialect, .. } = reading(body).unwrap();
    let request = ChatRequest::read(chat, Strictness::Refuse).unwrap();
    let head = Head::new("msg_", RequestId(uuid::Uuid::nil()), 0, "tiny".into());
    (dialect, request, head)
}

#[test]
fn a_message_has_its_blocks_and_reason() {
    let (dialect, request, head) = started();
    let replied = |events: Vec<Event>, finish| {
        let mut reply = dialect.reply(&request, &head);
        events.into_iter().for_each(|event| reply.event(0, event));
        reply.end(0, ending(finish));
        reply.render(&Grid::default())
    };
    let message = replied(events(), FinishReason::ToolCalls);
    let id = |index: u32| format!("toolu_{}_{index}", uuid::Uuid::nil().simple());
    assert_eq!(
        message["content"],
        json!([
            {"type": "thinking", "thinking": "hm", "signature": "2"},
            {"type": "text", "text": "He\"y"},
            {"type": "tool_use", "id": id(0), "name": "look", "input": {"at": 1}},
            {"type": "tool_use", "id": id(1), "name": "look", "input": {}},
        ])
    );
    assert_eq!(message["stop_reason"], "tool_use");
    assert_eq!(message["usage"]["input_tokens"], 7);
    assert_eq!(
        message["usage"]["output_tokens_details"]["thinking_tokens"],
        1
    );
    let stopped = replied(
        vec![said(Channel::Content, "a")],
        FinishReason::StopString("x".into()),
    );
    assert_eq!(stopped["stop_reason"], "stop_sequence");
    assert_eq!(stopped["stop_sequence"], "x");
    let full = replied(vec![said(Channel::Content, "a")], FinishReason::Length);
    assert_eq!(full["stop_reason"], "model_context_window_exceeded");
    let refused = replied(vec![said(Channel::Refusal, "no")], FinishReason::Stop);
    assert_eq!(refused["stop_details"]["type"], "refusal");
}

#[test]
fn thinking_is_off_unless_asked_for() {
    let plain = with(json!([{"role": "user", "content": "x"}]));
    let mut disabled = plain.clone();
    disabled["thinking"] = json!({"type": "disabled"});
    for body in [plain, disabled] {
        let (dialect, request, head) = started_with(body.clone());
        assert_eq!(reading(body).unwrap().chat["enable_thinking"], false);
        let mut reply = dialect.reply(&request, &head);
        let mut writer = dialect.stream(&request, &head);
        let mut out = BytesMut::new();
        for event in events() {
            writer.event(0, &event, &mut out);
            reply.event(0, event);
        }
        reply.end(0, ending(FinishReason::ToolCalls));
        let message = reply.render(&Grid::default());
        assert_eq!(message["content"][0]["text"], "He\"y");
        let details = &message["usage"]["output_tokens_details"];
        assert_eq!(details["thinking_tokens"], 1);
        let text = String::from_utf8(out.to_vec()).unwrap();
        assert!(!text.contains("\"thinking\""), "{text}");
        assert!(
            text.contains("\"index\":0,\"delta\":{\"type\":\"text_delta\""),
            "{text}"
        );
    }
}

#[test]
fn tools_of_known_types_have_a_schema() {
    let mut body = with(json!([{"role": "user", "content": "x"}]));
    body["tools"] = json!([
        {"type": "bash_20250124", "name": "bash", "cache_control": {"type": "ephemeral"}},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9},
        {"type": "text_editor_20250124", "name": "str_replace_editor"},
        {"type": "memory_20250818", "name": "memory", "strict": true},
        {"name": "later", "input_schema": {"type": "object"}, "defer_loading": true},
    ]);
    let chat = reading(body).unwrap().chat;
    let function = |at: usize| &chat["tools"][at]["function"];
    let commands = |at: usize| {
        let commands = &function(at)["parameters"]["properties"]["command"]["enum"];
        commands.as_array().map_or(0, Vec::len)
    };
    assert_eq!([1, 2, 3].map(commands), [4, 5, 6]);
    let properties = &function(0)["parameters"]["properties"];
    assert_eq!(properties["restart"]["type"], "boolean");
    assert_eq!(function(3)["strict"], true);
    assert_eq!(function(4)["name"], "later");
    assert!(ChatRequest::read(chat, Strictness::Refuse).is_ok());
}

#[test]
fn results_of_a_clients_tool_search_are_text() {
    let call = json!({"type": "tool_use", "id": "t1", "name": "search", "input": {}});
    let found = json!([{"type": "tool_reference", "tool_name": "look"}]);
    let messages = chat(json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": found}]},
    ]));
    assert_eq!(messages[2]["content"], "The tool look is available.");
}

#[test]
fn thinking_that_is_omitted_has_a_signature_alone() {
    let mut body = with(json!([{"role": "user", "content": "x"}]));
    body["thinking"] = json!({"type": "adaptive", "display": "omitted"});
    let (dialect, request, head) = started_with(body);
    let mut reply = dialect.reply(&request, &head);
    let mut writer = dialect.stream(&request, &head);
    let mut out = BytesMut::new();
    for event in events() {
        writer.event(0, &event, &mut out);
        reply.event(0, event);
    }
    let message = reply.render(&Grid::default());
    let hidden = json!({"type": "thinking", "thinking": "", "signature": "0"});
    assert_eq!(message["content"][0], hidden);
    let text = String::from_utf8(out.to_vec()).unwrap();
    assert!(!text.contains("thinking_delta"), "{text}");
    assert!(text.contains(r#""signature":"0""#), "{text}");
    let talk = json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [hidden, {"type": "text", "text": "y"}]},
        {"role": "user", "content": "z"},
    ]);
    assert_eq!(chat(talk)[1], json!({"role": "assistant", "content": "y"}));
}

#[test]
fn a_stream_has_its_events_in_order() {
    let (dialect, request, head) = started();
    let mut writer = dialect.stream(&request, &head);
    let mut out = BytesMut::new();
    writer.open(0, &mut out);
    for event in events() {
        writer.event(0, &event, &mut out);
    }
    writer.end(
        0,
        ending(FinishReason::ToolCalls),
        &Grid::default(),
        &mut out,
    );
    let text = String::from_utf8(out.to_vec()).unwrap();
    let mut seen = Vec::new();
    for event in text.split_terminator("\n\n") {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        let delta = data["delta"]["type"].as_str();
        seen.push(
            match (data["type"].as_str().unwrap(), data["index"].as_u64()) {
                (kind, Some(index)) => format!("{kind} {index} {}", delta.unwrap_or_default()),
                (kind, None) => kind.to_owned(),
            },
        );
    }
    assert_eq!(
        seen,
        [
            "message_start",
            "ping",
            "content_block_start 0 ",
            "content_block_delta 0 thinking_delta",
            "content_block_delta 0 signature_delta",
            "content_block_stop 0 ",
            "content_block_start 1 ",
            "content_block_delta 1 text_delta",
            "content_block_stop 1 ",
            "content_block_start 2 ",
            "content_block_delta 2 input_json_delta",
            "content_block_delta 2 input_json_delta",
            "content_block_stop 2 ",
            "content_block_start 3 ",
            "content_block_delta 3 input_json_delta",
            "content_block_stop 3 ",
            "message_delta",
            "message_stop",
        ]
    );
}

#[test]
fn context_management_may_keep_all_thinking_and_nothing_else() {
    let body = |edits: Value| {
        let mut body = with(json!([{"role": "user", "content": "hi"}]));
        body["context_management"] = json!({"edits": edits});
        body
    };
    let thinking = "clear_thinking_20251015";
    for kept in [json!("all"), json!({"type": "all"})] {
        assert!(reading(body(json!([{"type": thinking, "keep": kept}]))).is_ok());
    }
    assert!(reading(body(json!([]))).is_ok());
    for edit in [
        json!({"type": thinking, "keep": {"type": "thinking_turns", "value": 1}}),
        json!({"type": "clear_tool_uses_20250919"}),
    ] {
        refused(body(json!([edit])), "context_management.edits.0");
    }
}
