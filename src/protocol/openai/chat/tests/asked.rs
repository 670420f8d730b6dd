//! Requests that are taken, and the jobs they become.

use serde_json::{Value, json};

use super::{chat, check, read, with};
use crate::job::{Capabilities, OutputFormat};
use crate::openai::IgnoredFields;
use crate::openai::chat::ChatRequest;

#[test]
fn a_plain_request_leaves_everything_to_the_model() {
    let request = read(with(json!({})));
    assert_eq!(&*request.model, "tiny");
    assert_eq!(request.choices, 1);
    assert_eq!(request.stream, None);
    assert_eq!(request.requires(), Capabilities::default());
    insta::assert_json_snapshot!(request.text);
}

#[test]
fn every_field_reaches_the_job() {
    let request = read(with(json!({
        "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false},
        "n": 3, "max_completion_tokens": 64, "stop": ["\n\n", "END"], "temperature": 0.5,
        "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "presence_penalty": -0.5,
        "frequency_penalty": 0.25, "logit_bias": {"42": -100, "7": 1.5}, "seed": -1, "logprobs": true,
        "top_logprobs": 5, "reasoning_effort": "none", "chat_template_kwargs": {"style": "brief"},
        "prompt_cache_key": "abc", "metadata": {"run": "1"}, "service_tier": "auto",
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
        "tool_choice": "auto", "parallel_tool_calls": false,
    })));
    assert_eq!(request.choices, 3);
    assert_eq!(request.stream.unwrap().usage, Some(true));
    assert_eq!(
        request.requires(),
        Capabilities::TOOLS.with(Capabilities::LOGPROBS)
    );
    assert_eq!(request.choice(2).choice, 2);
    insta::assert_json_snapshot!(request.text);
}

#[test]
fn values_that_change_nothing_pass() {
    let request = read(with(json!({
        "store": false, "service_tier": "default", "tools": [], "tool_choice": "auto",
        "parallel_tool_calls": true, "modalities": ["text"], "response_format": {"type": "text"},
        "user": "me", "safety_identifier": "x", "verbosity": "medium", "stop": [], "logit_bias": {},
        "prompt_cache_retention": "in_memory", "prompt_cache_options": {"mode": "implicit"},
        "audio": null, "prediction": null, "moderation": null, "web_search_options": null, "n": 1,
        "functions": [], "logprobs": false, "top_logprobs": null, "seed": null, "stream": false,
    })));
    assert_eq!(request.requires(), Capabilities::default());
    assert_eq!(request.text.format, None);
    assert_eq!(request.text.tool_choice, None);
}

#[test]
fn a_model_has_a_name_that_can_be_repeated() {
    check(
        json!({"model": "m".repeat(300)}),
        "model",
        "model must have at most 256 characters, found 300",
    );
}

#[test]
fn what_some_workers_can_do_becomes_a_demand_that_names_its_field() {
    let look = json!([{"type": "function", "function": {"name": "look"}}]);
    let picture = json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]);
    let cases = [
        (
            json!({"tools": look, "tool_choice": "required"}),
            Capabilities::GRAMMAR,
            "tool_choice",
        ),
        (
            json!({"tools": look, "tool_choice": {"type": "function", "function": {"name": "look"}}}),
            Capabilities::GRAMMAR,
            "tool_choice",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
            Capabilities::GRAMMAR,
            "response_format",
        ),
        (
            json!({"response_format": {"type": "json_object"}}),
            Capabilities::GRAMMAR,
            "response_format",
        ),
        (
            json!({"messages": [{"role": "user", "content": picture}]}),
            Capabilities::IMAGE_INPUT,
            "messages[0].content[0]",
        ),
        (
            json!({"logprobs": true}),
            Capabilities::LOGPROBS,
            "logprobs",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f", "strict": true}}]}),
            Capabilities::GRAMMAR,
            "tools[0].function.strict",
        ),
    ];
    for (fields, capability, param) in cases {
        let request = read(with(fields));
        assert!(request.requires().contains(capability), "{param}");
        assert_eq!(request.param_of(capability), Some(param));
    }
}

#[test]
fn messages_become_what_a_chat_template_takes() {
    let request = read(json!({"model": "tiny", "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
        {"role": "user", "content": "weather?", "name": "ann"},
        {"role": "assistant", "content": null, "refusal": null, "audio": null, "annotations": [],
         "tool_calls": [{"id": "c1", "type": "function", "index": 0,
                         "function": {"name": "look", "arguments": "{\"at\":\"sea\"}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "assistant", "function_call": {"name": "old", "arguments": "not json"}},
        {"role": "function", "name": "old", "content": null},
        {"role": "assistant", "content": null, "refusal": "I would rather not."},
    ]}));
    insta::assert_json_snapshot!(chat(&request));
}

#[test]
fn a_tool_that_must_not_be_called_is_not_shown() {
    let tools = json!([
        {"type": "function", "function": {"name": "look"}},
        {"type": "function", "function": {"name": "listen"}},
    ]);
    let request = read(with(json!({"tools": tools, "tool_choice": "none"})));
    assert_eq!(chat(&request)["tools"], Value::Null);
    assert_eq!(request.requires(), Capabilities::default());

    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto",
        "tools": [{"type": "function", "function": {"name": "listen"}}]}});
    let request = read(with(json!({"tools": tools, "tool_choice": allowed})));
    assert_eq!(chat(&request)["tools"], json!([tools[1]]));
    assert_eq!(request.requires(), Capabilities::TOOLS);
}

#[test]
fn every_field_that_gives_a_form_becomes_the_same_wish() {
    let schema = json!({"type": "object"});
    let choices = || OutputFormat::Choice(vec!["a".to_owned(), "b".to_owned()]);
    let pattern = || OutputFormat::Regex("a+".to_owned());
    let lark = || OutputFormat::Lark("start: \"a\"".to_owned());
    let cases = [
        (
            json!({"guided_json": schema}),
            OutputFormat::JsonSchema(schema.clone()),
        ),
        (
            json!({"guided_json": schema.to_string()}),
            OutputFormat::JsonSchema(schema.clone()),
        ),
        (json!({"guided_regex": "a+"}), pattern()),
        (json!({"guided_choice": ["a", "b"]}), choices()),
        (json!({"guided_grammar": "start: \"a\""}), lark()),
        (
            json!({"structured_outputs": {"json": schema}}),
            OutputFormat::JsonSchema(schema.clone()),
        ),
        (
            json!({"structured_outputs": {"json_object": true, "regex": null}}),
            OutputFormat::JsonObject,
        ),
        (json!({"structured_outputs": {"regex": "a+"}}), pattern()),
        (
            json!({"structured_outputs": {"choice": ["a", "b"]}}),
            choices(),
        ),
        (
            json!({"structured_outputs": {"grammar": "start: \"a\""}}),
            lark(),
        ),
    ];
    for (fields, format) in cases {
        let name = fields.as_object().unwrap().keys().next().unwrap().clone();
        let request = read(with(fields));
        assert_eq!(request.text.format, Some(format));
        assert_eq!(request.param_of(Capabilities::GRAMMAR), Some(name.as_str()));
    }
}

#[test]
fn openrouters_reasoning_is_that_of_the_template() {
    let variables = |fields: Value| chat(&read(with(fields)))["variables"].clone();
    assert_eq!(
        variables(json!({"reasoning": {"effort": "high"}})),
        json!({"reasoning_effort": "high"})
    );
    assert_eq!(
        variables(json!({"reasoning": {"max_tokens": 5000, "enabled": true}})),
        json!({"reasoning_effort": "medium", "enable_thinking": true})
    );
    assert_eq!(
        variables(json!({"reasoning": {"enabled": false}})),
        json!({"enable_thinking": false})
    );
    assert!(read(with(json!({"reasoning": {"exclude": true}}))).hides_reasoning);
    check(
        json!({"reasoning": {"efort": "low"}}),
        "reasoning.efort",
        "unknown field reasoning.efort; did you mean reasoning.effort?",
    );
}

#[test]
fn values_without_an_effect_are_named_and_others_are_not() {
    let ignored = |fields: Value| {
        let lenient = ChatRequest::read_leniently(with(fields), &IgnoredFields::None);
        lenient.unwrap().ignored
    };
    let asks = json!({"store": true, "skip_special_tokens": false, "cache_prompt": false, "add_bos_token": true});
    let mut names = ignored(asks);
    names.sort();
    assert_eq!(
        names,
        [
            "add_bos_token",
            "cache_prompt",
            "skip_special_tokens",
            "store"
        ]
    );
    let usual = json!({"store": false, "skip_special_tokens": true, "cache_prompt": true, "echo": false,
        "add_generation_prompt": true, "spaces_between_special_tokens": true});
    assert_eq!(ignored(usual), [""; 0]);
}
