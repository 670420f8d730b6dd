//! Refused requests, by the name of the faulty field.

use serde_json::{Value, json};

use super::{check, read, refused, with};
use crate::job::FailureKind;

#[test]
fn unknown_names_are_refused_with_the_nearest_known_one() {
    check(
        json!({"temprature": 1}),
        "temprature",
        "unknown field temprature; did you mean temperature?",
    );
    check(json!({"zzz": 1}), "zzz", "unknown field zzz");
    check(
        json!({"messages": [{"role": "user", "contents": "hi"}]}),
        "messages[0].contents",
        "unknown field messages[0].contents; did you mean messages[0].content?",
    );
    check(
        json!({"stream": true, "stream_options": {"include_usag": true}}),
        "stream_options.include_usag",
        "unknown field stream_options.include_usag; did you mean stream_options.include_usage?",
    );
}

#[test]
fn wrong_types_and_absurd_numbers_are_refused_by_name() {
    check(
        json!({"temperature": "hot"}),
        "temperature",
        "temperature must be a number from 0 to 2, found a string",
    );
    check(
        json!({"n": 1e300}),
        "n",
        "n must be an integer from 1 to 16, found 1e+300",
    );
    check(
        json!({"n": 0}),
        "n",
        "n must be an integer from 1 to 16, found 0",
    );
    check(
        json!({"stop": vec!["a"; 65]}),
        "stop",
        "stop must contain at most 64 strings, found 65",
    );
    check(
        json!({"logit_bias": {"x": 1}}),
        "logit_bias",
        "logit_bias must map token ids to numbers from -100 to 100",
    );
    check(
        json!({"top_logprobs": 3}),
        "top_logprobs",
        "top_logprobs requires logprobs: true",
    );
    check(
        json!({"max_tokens": 5, "max_completion_tokens": 6}),
        "max_tokens",
        "max_tokens is 5 and max_completion_tokens is 6: send only one of them",
    );
    check(
        json!({"stream_options": {"include_usage": true}}),
        "stream_options",
        "stream_options requires stream: true",
    );
    check(
        json!({"messages": []}),
        "messages",
        "messages is empty: send at least one",
    );
    check(
        json!({"model": ""}),
        "model",
        "model is missing: use a name listed by /v1/models",
    );
    check(
        json!({"messages": [{"role": "boss", "content": "hi"}]}),
        "messages[0].role",
        "messages[0].role must be one of system, developer, user, assistant, tool, function, found \"boss\"",
    );
    check(
        json!({"messages": [{"role": "user"}]}),
        "messages[0].content",
        "messages[0].content is missing",
    );
}

#[test]
fn entries_nobody_reads_are_refused_wherever_they_stand() {
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    let chosen = |choice: Value| json!({"tools": tools, "tool_choice": choice});
    let called = |call: Value| json!({"messages": [{"role": "assistant", "tool_calls": [call]}]});
    let cases = [
        (
            "tool_choice.strict",
            chosen(json!({"type": "function", "function": {"name": "look"}, "strict": true})),
        ),
        (
            "tool_choice.function.strict",
            chosen(json!({"type": "function", "function": {"name": "look", "strict": true}})),
        ),
        (
            "tool_choice.allowed_tools.max",
            chosen(
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "max": 1, "tools": tools}}),
            ),
        ),
        (
            "tool_choice.allowed_tools.tools[0].type",
            chosen(
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "mcp"}]}}),
            ),
        ),
        (
            "function_call.arguments",
            json!({"functions": [{"name": "look"}], "function_call": {"name": "look", "arguments": "{}"}}),
        ),
        (
            "messages[0].tool_calls[0].type",
            called(
                json!({"id": "1", "type": "magic", "function": {"name": "look", "arguments": "{}"}}),
            ),
        ),
        (
            "messages[0].tool_calls[0].function.result",
            called(json!({"id": "1", "type": "function",
                          "function": {"name": "look", "arguments": "{}", "result": 1}})),
        ),
    ];
    for (param, fields) in cases {
        let problem = refused(fields);
        assert_eq!(problem.param.as_deref(), Some(param));
    }
}

#[test]
fn arguments_of_calls_do_not_unpack_without_end() {
    let arguments = format!("{{\"a\":[{}0]}}", "0,".repeat(300_000));
    let call =
        json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}});
    let once = json!({"messages": [{"role": "assistant", "tool_calls": [call]}]});
    read(with(once));
    let twice = json!({"messages": [{"role": "assistant", "tool_calls": [call, call]}]});
    check(
        twice,
        "messages[0].tool_calls[1].function.arguments",
        "messages[0].tool_calls[1].function.arguments: the tool calls contain more than 500000 values in total",
    );
}

#[test]
fn what_nobody_can_do_is_refused_by_name() {
    let cases = [
        ("echo", json!(true)),
        ("continue_final_message", json!(true)),
        ("add_generation_prompt", json!(false)),
        ("service_tier", json!("priority")),
        ("modalities", json!(["text", "audio"])),
        ("audio", json!({"voice": "alloy", "format": "wav"})),
        ("prediction", json!({"type": "content", "content": "x"})),
        ("moderation", json!({"model": "omni"})),
        ("web_search_options", json!({})),
        ("verbosity", json!("low")),
        ("prompt_cache_retention", json!("24h")),
        ("prompt_cache_options", json!({"ttl": "30m"})),
    ];
    for (name, value) in cases {
        let problem = refused(json!({ name: value }));
        assert_eq!(
            problem.failure.kind,
            FailureKind::UnsupportedValue,
            "{name}"
        );
        assert_eq!(problem.param.as_deref(), Some(name));
    }
    let parts = [("input_audio", json!({})), ("file", json!({}))];
    for (word, value) in parts {
        let content = json!([{"type": word, word: value}]);
        let problem = refused(json!({"messages": [{"role": "user", "content": content}]}));
        assert_eq!(problem.param.as_deref(), Some("messages[0].content[0]"));
        assert_eq!(problem.failure.kind, FailureKind::UnsupportedValue);
    }
}

#[test]
fn a_form_that_cannot_be_kept_is_refused_by_its_path() {
    let formed = |schema: Value| {
        let schema = json!({"name": "x", "schema": schema});
        json!({"response_format": {"type": "json_schema", "json_schema": schema}})
    };
    let place = "response_format.json_schema.schema";
    let cannot = "cannot be enforced: leave it out, and check it yourself";
    let unique = formed(json!({"properties": {"a": {"items": {"uniqueItems": true}}}}));
    let path = format!("{place}.properties.a.items.uniqueItems");
    check(unique, &path, &format!("{path} {cannot}"));
    let not = formed(json!({"anyOf": [{"type": "null"}, {"not": {}}]}));
    let path = format!("{place}.anyOf[1].not");
    check(not, &path, &format!("{path} {cannot}"));
    let idle = formed(json!({"uniqueItems": false, "properties": {"not": {"const": {"if": 1}}}}));
    assert!(read(with(idle)).text.format.is_some());

    let strict = json!([{"type": "function", "function": {"name": "f", "strict": true,
        "parameters": {"type": "object", "propertyNames": {"pattern": "^a"}}}}]);
    let path = "tools[0].function.parameters.propertyNames";
    check(json!({"tools": strict}), path, &format!("{path} {cannot}"));

    let mut deep = json!({});
    for _ in 0..70 {
        deep = json!({"items": deep});
    }
    let problem = refused(formed(deep));
    assert!(
        problem
            .to_string()
            .ends_with("is nested more than 64 levels deep")
    );
}

#[test]
fn one_field_gives_the_answer_its_form() {
    check(
        json!({"guided_regex": "a+", "guided_choice": ["a"]}),
        "guided_choice",
        "guided_regex and guided_choice both give the answer a form: use one of them",
    );
    check(
        json!({"structured_outputs": {"regex": "a", "json": {}}}),
        "structured_outputs",
        "structured_outputs may hold one form, found several",
    );
    check(
        json!({"structured_outputs": {"jsn": {}}}),
        "structured_outputs.jsn",
        "unknown field structured_outputs.jsn; did you mean structured_outputs.json?",
    );
    check(
        json!({"guided_choice": []}),
        "guided_choice",
        "guided_choice must hold at least one string",
    );
    check(
        json!({"guided_json": "{"}),
        "guided_json",
        "guided_json must be JSON",
    );
}
