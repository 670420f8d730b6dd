//! Structured output through the whole service: coordinator, our worker, the model that is part of the program.

use serde_json::{Value, json};

use crate::killed::{Service, Stream, serve};

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "likes": {"type": "array", "items": {"enum": ["tea", "coffee"]}, "maxItems": 2},
        },
        "required": ["name", "age", "likes"],
        "additionalProperties": false,
    })
}

fn is_person(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let name = value["name"]
        .as_str()
        .map_or(0, |name| name.chars().count());
    let likes = value["likes"].as_array().map_or(9, Vec::len);
    (1..=20).contains(&name) && value["age"].as_u64().is_some_and(|age| age <= 150) && likes <= 2
}

fn body(fields: Value) -> Value {
    let mut body = json!({
        "model": "demo-text", "max_tokens": 300,
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn answer(service: &Service, fields: Value) -> String {
    let reply = service.reply(service.chat(&body(fields)));
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "stop", "{reply}");
    choice["message"]["content"].as_str().unwrap().to_owned()
}

fn refusal(service: &Service, fields: Value) -> Value {
    let reply = service.reply(service.chat(&body(fields)));
    assert!(reply["error"].is_object(), "{reply}");
    reply["error"].clone()
}

fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}},
                "required": ["city"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "introduce", "parameters": person()}},
    ])
}

#[test]
fn answers_and_calls_keep_to_their_form() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let _worker = service.worker(folder.path(), "first");
    let schema = json!({"type": "json_schema", "json_schema":
        {"name": "person", "strict": true, "schema": person()}});

    for seed in 0..3 {
        let hot = json!({"response_format": schema, "temperature": 1.3, "seed": seed});
        let text = answer(&service, hot);
        assert!(is_person(&text), "{text}");
    }
    let stream = body(json!({"response_format": schema, "stream": true}));
    let (text, _) = Stream::open(service.chat(&stream)).read_all();
    assert!(is_person(&text), "{text}");
    assert_eq!(text, answer(&service, json!({"response_format": schema})));

    let text = answer(&service, json!({"guided_choice": ["rainy", "sunny"]}));
    assert!(["rainy", "sunny"].contains(&text.as_str()), "{text}");
    let text = answer(&service, json!({"guided_regex": "[0-9]{2,4} degrees"}));
    assert!(text.ends_with(" degrees") && text.len() <= 12, "{text}");
    let text = answer(
        &service,
        json!({"structured_outputs": {"grammar": "start: \"a\" | \"b\""}}),
    );
    assert!(["a", "b"].contains(&text.as_str()), "{text}");

    for choice in [
        json!("required"),
        json!({"type": "function", "function": {"name": "introduce"}}),
    ] {
        let asked =
            body(json!({"tools": tools(), "tool_choice": choice, "parallel_tool_calls": false}));
        let reply = service.reply(service.chat(&asked));
        let message = &reply["choices"][0]["message"];
        assert_eq!(
            reply["choices"][0]["finish_reason"], "tool_calls",
            "{reply}"
        );
        assert_eq!(
            message["tool_calls"].as_array().unwrap().len(),
            1,
            "{reply}"
        );
        let call = &message["tool_calls"][0]["function"];
        let arguments = call["arguments"].as_str().unwrap();
        if choice.is_object() {
            assert_eq!(call["name"], "introduce");
        }
        match call["name"].as_str().unwrap() {
            "introduce" => assert!(is_person(arguments), "{arguments}"),
            _ => {
                let value: Value = serde_json::from_str(arguments).unwrap();
                assert!(value["city"].is_string(), "{arguments}");
            }
        }
    }

    let keyword = json!({"type": "object", "properties": {"a": {"not": {}}}});
    let refused = refusal(
        &service,
        json!({"response_format": {"type": "json_schema",
        "json_schema": {"name": "x", "schema": keyword}}}),
    );
    assert_eq!(
        refused["param"],
        "response_format.json_schema.schema.properties.a.not"
    );
    let lark = "start: missing";
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}});
    for (fields, param) in [
        (json!({"guided_regex": "("}), "guided_regex"),
        (json!({"guided_grammar": lark}), "guided_grammar"),
        (
            json!({"structured_outputs": {"grammar": lark}}),
            "structured_outputs",
        ),
        (
            json!({"guided_json": schema}),
            "guided_json.properties.a.pattern",
        ),
    ] {
        let refused = refusal(&service, fields);
        assert_eq!(refused["type"], "invalid_request_error", "{refused}");
        assert_eq!(refused["param"], param, "{refused}");
    }
}

#[test]
fn a_worker_killed_under_a_schema_is_replaced_and_the_answer_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let first = service.worker(folder.path(), "first");
    let schema = json!({"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 9},
        "minItems": 90, "maxItems": 90});
    let asked = |seed: u64, streaming: bool| {
        let wrapped = json!({"type": "object", "properties": {"words": schema}, "required": ["words"],
            "additionalProperties": false});
        service.chat(&body(json!({"stream": streaming, "seed": seed, "temperature": 1.2, "max_tokens": 900,
            "response_format": {"type": "json_schema", "json_schema": {"name": "words", "schema": wrapped}}})))
    };
    let told: Vec<Value> = (0..3)
        .map(|seed| service.reply(asked(seed, false))["choices"][0]["message"]["content"].clone())
        .collect();
    let mut streams: Vec<Stream> = (0..3).map(|seed| Stream::open(asked(seed, true))).collect();
    streams.iter_mut().for_each(Stream::read_some);
    drop(first);
    let _second = service.worker(folder.path(), "second");
    for (stream, told) in streams.into_iter().zip(told) {
        let (text, _) = stream.read_all();
        assert_eq!(text, told.as_str().unwrap());
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["words"].as_array().unwrap().len(), 90);
    }
}
