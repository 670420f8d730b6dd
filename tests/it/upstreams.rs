//! Models that other programs serve: a program that a test plays, also badly, and `worker up` as a real one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use muster_testing::eventually_blocking;
use serde_json::{Value, json};

use crate::operator::{Running, Serve, ask, serve};
use crate::support::program::{Mode, Program};
use crate::support::worker::worker;
use crate::up::up;

/// A worker of this coordinator with these sections.
fn daemon(serve: &Serve, sections: &str) -> Running {
    let (address, key) = (&serve.address, &serve.key);
    let configuration =
        format!("{sections}\n[[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n");
    let mut daemon = Running::start(&["--offline"], &configuration);
    daemon.wait_for("SIGHUP reloads the configuration");
    daemon
}

/// A coordinator with a worker whose model `theirs` is that of the program.
fn served(program: &Program) -> (Serve, Running) {
    let serve = serve("");
    let section = format!(
        "[models]\ntheirs = {{ upstream = {{ url = \"{}\", silence = \"2s\" }} }}\n",
        program.url()
    );
    let daemon = daemon(&serve, &section);
    wait_for_model(&serve, "theirs");
    (serve, daemon)
}

fn wait_for_model(serve: &Serve, name: &str) {
    eventually_blocking("the model to be offered", || {
        let answer = serve.get(&format!("/v1/models/{name}"));
        match answer.starts_with("HTTP/1.1 200 ") {
            true => Ok(()),
            false => Err(answer),
        }
    });
}

fn body_of(answer: &str) -> Value {
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|_| panic!("not JSON: {answer}"))
}

fn chat_body(more: Value) -> String {
    let mut body = json!({"model": "theirs", "messages": [{"role": "user", "content": "hi"}]});
    let body_map = body.as_object_mut().unwrap();
    body_map.extend(more.as_object().unwrap().clone());
    body.to_string()
}

fn ask_chat(serve: &Serve, more: Value) -> String {
    serve.post("/v1/chat/completions", &chat_body(more))
}

#[test]
fn a_model_of_another_program_is_served_and_marked() {
    let program = Program::start();
    let (serve, daemon) = served(&program);
    let listed = body_of(&serve.get("/v1/models/theirs"));
    assert_eq!(
        (&listed["upstream"], &listed["max_context_length"]),
        (&json!("vllm"), &json!(2048))
    );

    let reply = body_of(&ask_chat(
        &serve,
        json!({"max_tokens": 9, "temperature": 0.25}),
    ));
    let message = &reply["choices"][0]["message"];
    assert_eq!(
        (&message["content"], &message["reasoning_content"]),
        (&json!("Hello there"), &json!("hm")),
        "{reply}"
    );
    assert_eq!(reply["usage"]["completion_tokens"], 5, "{reply}");
    assert_eq!(reply["grid"]["upstream"], "vllm", "{reply}");
    let asked = program.last_body();
    assert_eq!(
        (&asked["model"], &asked["max_tokens"]),
        (&json!("theirs"), &json!(9))
    );
    assert_eq!(
        (&asked["temperature"], &asked["stream"]),
        (&json!(0.25), &json!(true))
    );

    let stream = ask_chat(&serve, json!({"stream": true}));
    assert!(
        stream.contains("\"content\":\"Hello\"") && stream.contains("[DONE]"),
        "{stream}"
    );

    program.is(Mode::Calls);
    let tool = json!({"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}});
    let reply = body_of(&ask_chat(&serve, json!({"tools": [tool]})));
    let call = &reply["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(
        call,
        &json!({"name": "look_up", "arguments": "{\"city\":\"Bern\"}"}),
        "{reply}"
    );
    assert_eq!(reply["choices"][0]["finish_reason"], "tool_calls");

    let data = daemon.folder.path().join("data");
    let said = worker(&["status", "--data-dir", data.to_str().unwrap()])
        .run()
        .ok();
    assert!(said.contains("vllm at http://127.0.0.1"), "{said}");
}

#[test]
fn a_program_that_misbehaves_is_blamed_and_asked_again() {
    let program = Program::start();
    let (serve, _daemon) = served(&program);
    let check = |mode: Mode, status: &str, words: &str| {
        program.is(mode);
        let answer = ask_chat(&serve, json!({}));
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(words),
            "{mode:?}: {answer}"
        );
        program.is(Mode::Good);
        wait_for_model(&serve, "theirs");
        let answer = ask_chat(&serve, json!({}));
        assert!(
            answer.starts_with("HTTP/1.1 200 "),
            "after {mode:?}: {answer}"
        );
    };
    check(Mode::Html, "502", "instead of JSON");
    check(Mode::Status(500), "502", "status 500");
    check(Mode::Status(400), "400", "the temperature is odd");
    check(Mode::Half, "502", "ended in the middle");
    check(Mode::Silent, "502", "has sent nothing for 2 s");

    program.is(Mode::Half);
    let stream = ask_chat(&serve, json!({"stream": true}));
    assert!(
        stream.contains("\"content\":\"Hello\"") && stream.contains("\"error\""),
        "{stream}"
    );

    program.is(Mode::Lies);
    let reply = body_of(&ask_chat(&serve, json!({})));
    let count = |name: &str| reply["usage"][name].as_u64().unwrap();
    assert!(
        count("completion_tokens") <= 13 && count("prompt_tokens") < 300,
        "{reply}"
    );
}

/// A streamed chat, read up to a line with this word.
fn begun_stream(serve: &Serve, word: &str) -> BufReader<TcpStream> {
    begun_stream_of(serve, &chat_body(json!({"stream": true})), word).1
}

/// The same, and the part that was read.
fn begun_stream_of(serve: &Serve, body: &str, word: &str) -> (String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(&serve.address).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\napikey: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        serve.key,
        body.len()
    )
    .unwrap();
    let mut reader = BufReader::new(stream);
    let (mut begun, mut read) = (String::new(), 0);
    while !begun[read..].contains(word) {
        read = begun.len();
        assert!(reader.read_line(&mut begun).unwrap() > 0, "{begun}");
    }
    (begun, reader)
}

#[test]
fn a_text_that_has_begun_ends_while_its_owner_pauses_as_long_as_the_owner_says() {
    for (finish_within, ends_well) in [("1h", true), ("0s", false)] {
        let program = Program::start();
        let serve = serve("");
        let section = format!(
            "[models]\ntheirs = {{ upstream = {{ url = \"{}\", finish_within = \"{finish_within}\" }} }}\n",
            program.url()
        );
        let mut daemon = daemon(&serve, &section);
        wait_for_model(&serve, "theirs");
        program.is(Mode::Held);
        let mut stream = begun_stream(&serve, "Hello");
        daemon.signal("-USR1");
        daemon.wait_for("paused by command");
        let mut rest = String::new();
        if ends_well {
            program.is(Mode::Good);
        }
        stream.read_to_string(&mut rest).unwrap();
        let found = (
            rest.contains("\"content\":\" there\""),
            rest.contains("\"error\""),
        );
        assert_eq!(found, (ends_well, !ends_well), "{rest}");
        program.is(Mode::Good);
    }
}

/// The text, the finish reason and the usage of a stream.
fn streamed(stream: &str) -> (String, Value, Value) {
    let chunks = stream.lines().filter_map(|line| {
        let data = line.strip_prefix("data: ")?;
        serde_json::from_str::<Value>(data).ok()
    });
    let (mut text, mut finish, mut usage) = (String::new(), Value::Null, Value::Null);
    for chunk in chunks {
        assert!(chunk["error"].is_null(), "{stream}");
        let choice = &chunk["choices"][0];
        text += choice["delta"]["content"].as_str().unwrap_or_default();
        for (found, kept) in [
            (&choice["finish_reason"], &mut finish),
            (&chunk["usage"], &mut usage),
        ] {
            if !found.is_null() {
                *kept = found.clone();
            }
        }
    }
    (text, finish, usage)
}

fn count_to(last: usize) -> String {
    let words: Vec<String> = (1..=last).map(|word| format!("w{word}")).collect();
    words.join(" ")
}

/// A worker of this name whose model is that of the program.
fn named_daemon(serve: &Serve, name: &str, program: &Program) -> Running {
    let section = format!(
        "[worker]\nname = \"{name}\"\n[models]\ntheirs = {{ upstream = {{ url = \"{}\" }} }}\n",
        program.url()
    );
    daemon(serve, &section)
}

/// A stream that stands still after three words, as a text, and its reader.
fn held_count(serve: &Serve, more: Value) -> (String, BufReader<TcpStream>) {
    let mut body = json!({"stream": true, "stream_options": {"include_usage": true}});
    let body_map = body.as_object_mut().unwrap();
    body_map.extend(more.as_object().unwrap().clone());
    begun_stream_of(serve, &chat_body(body), "w3")
}

#[test]
fn a_text_of_a_program_goes_on_at_another_one_when_its_owner_pauses() {
    let serve = serve("");
    let programs = [Program::start(), Program::start()];
    let mut daemons = ["first", "second"].map(|name| {
        let at = usize::from(name == "second");
        named_daemon(&serve, name, &programs[at])
    });
    wait_for_model(&serve, "theirs");
    for (more, words, finish) in [
        (json!({}), 12, "stop"),
        (json!({"max_tokens": 8}), 8, "length"),
    ] {
        let before = programs.each_ref().map(Program::asked);
        programs
            .iter()
            .for_each(|program| program.is(Mode::CountsHeld));
        let (begun, mut stream) = held_count(&serve, more);
        let at = usize::from(programs[0].asked() == before[0]);
        let other = 1 - at;
        programs[other].is(Mode::Counts);
        daemons[at].signal("-USR1");
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        let (text, end, usage) = streamed(&(begun + &rest));
        assert_eq!((text, end), (count_to(words), json!(finish)), "{rest}");
        assert_eq!(
            (&usage["prompt_tokens"], &usage["completion_tokens"]),
            (&json!(1), &json!(words)),
            "{usage}"
        );
        let asked = programs[other].last_body();
        let last = json!({"role": "assistant", "content": "w1 w2 w3"});
        assert_eq!(
            (&asked["messages"][1], &asked["add_generation_prompt"]),
            (&last, &json!(false))
        );
        eventually_blocking("the paused program to be left", || {
            let report = daemons[at].report();
            match report["jobs"]["running"] == 0 && report["pause"]["state"] == "paused" {
                true => Ok(()),
                false => Err(report),
            }
        });
        daemons[at].signal("-USR2");
        daemons[at].wait_for("resumed");
    }
}

#[test]
fn a_text_of_a_program_waits_for_the_end_of_the_pause_where_no_other_worker_goes_on() {
    let (serve, program) = (serve(""), Program::start());
    let mut daemon = named_daemon(&serve, "only", &program);
    wait_for_model(&serve, "theirs");
    program.is(Mode::CountsHeld);
    let (begun, mut stream) = held_count(&serve, json!({}));
    daemon.signal("-USR1");
    daemon.wait_for("paused by command");
    program.is(Mode::Counts);
    daemon.signal("-USR2");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    let (text, finish, usage) = streamed(&(begun + &rest));
    assert_eq!((text, finish), (count_to(12), json!("stop")), "{rest}");
    assert_eq!(usage["completion_tokens"], 12, "{usage}");
}

#[test]
fn a_text_of_a_program_goes_on_in_an_engine() {
    let (serve, program) = (serve(""), Program::start());
    let section = format!(
        "[worker]\nname = \"program\"\n[models]\ndemo-text = {{ upstream = {{ url = \"{}\", model = \"theirs\" }} }}\n",
        program.url()
    );
    let first = daemon(&serve, &section);
    wait_for_model(&serve, "demo-text");
    program.is(Mode::CountsHeld);
    let (begun, mut stream) = held_count(
        &serve,
        json!({"model": "demo-text", "max_tokens": 20, "temperature": 0}),
    );
    let sections = "[worker]\nname = \"engine\"\n[models]\nserve = [\"demo-text\"]\n";
    let _second = daemon(&serve, sections);
    eventually_blocking("both workers to offer the model", || {
        let models = body_of(&serve.get("/v1/status/models"));
        let count = models.as_array().into_iter().flatten();
        let count = count.filter(|model| model["name"] == "demo-text" && model["count"] == 2);
        match count.count() {
            0 => Err(models),
            _ => Ok(()),
        }
    });
    first.signal("-USR1");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    let (text, _, usage) = streamed(&(begun + &rest));
    assert!(text.starts_with("w1 w2 w3") && text.len() > 8, "{text:?}");
    let written = usage["completion_tokens"].as_u64().unwrap();
    assert!((4..=20).contains(&written), "{usage}");
}

#[test]
fn a_client_that_leaves_ends_the_work_of_the_program() {
    let program = Program::start();
    let (serve, _daemon) = served(&program);
    program.is(Mode::Endless);
    drop(begun_stream(&serve, "word"));
    eventually_blocking("the program to be left", || match program.left() {
        0 => Err(()),
        _ => Ok(()),
    });
    // More than was asked for is not listened to.
    let reply = body_of(&ask_chat(&serve, json!({"max_tokens": 40})));
    assert_eq!(reply["choices"][0]["finish_reason"], "length", "{reply}");
    assert_eq!(reply["usage"]["completion_tokens"], 40, "{reply}");
}

#[test]
fn a_program_that_goes_is_offered_no_more_until_it_is_back() {
    let program = Program::start();
    let (serve, mut daemon) = served(&program);
    let address = program.stop();
    daemon.wait_for("not serving theirs from http://127.0.0.1");
    eventually_blocking("the model to be withdrawn", || {
        let answer = ask_chat(&serve, json!({}));
        match answer.starts_with("HTTP/1.1 503 ") || answer.starts_with("HTTP/1.1 404 ") {
            true => Ok(()),
            false => Err(answer),
        }
    });
    let program = Program::at(address);
    wait_for_model(&serve, "theirs");
    let answer = ask_chat(&serve, json!({}));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    // The configuration names another program, and is read again.
    let file = std::fs::read_to_string(daemon.file()).unwrap();
    std::fs::write(daemon.file(), file.replace("theirs = ", "renamed = ")).unwrap();
    daemon.signal("-HUP");
    wait_for_model(&serve, "renamed");
    drop(program);
}

#[test]
fn vectors_scores_and_images_of_other_programs_are_delivered() {
    let program = Program::start();
    let serve = serve("");
    let url = program.url();
    let sections = format!(
        "[models.theirs.upstream]\nurl = \"{url}/v1/\"\nkind = \"embedding\"\n\
         [models.ranks.upstream]\nurl = \"{url}\"\nmodel = \"theirs\"\nkind = \"ranking\"\n\
         [models.paint.upstream]\nurl = \"{url}\"\napi = \"a1111\"\n"
    );
    let _daemon = daemon(&serve, &sections);
    wait_for_model(&serve, "theirs");
    wait_for_model(&serve, "ranks");
    let body = r#"{"model": "ranks", "query": "sea", "documents": ["hill", "boat"]}"#;
    let reply = body_of(&serve.post("/v1/rerank", body));
    let first = &reply["results"][0];
    assert_eq!(
        (&first["index"], &first["relevance_score"]),
        (&json!(1), &json!(0.75)),
        "{reply}"
    );
    wait_for_model(&serve, "paint");
    let reply = serve.post("/v1/embeddings", r#"{"model": "theirs", "input": "hello"}"#);
    let reply = body_of(&reply);
    assert_eq!(
        reply["data"][0]["embedding"][1].as_f64().unwrap() as f32,
        0.8,
        "{reply}"
    );

    let body = json!({"model": "paint", "prompt": "a hill", "size": "256x256", "response_format": "b64_json",
        "negative_prompt": "rain", "steps": 7});
    let reply = serve.post("/v1/images/generations", &body.to_string());
    let reply = body_of(&reply);
    assert!(
        reply["data"][0]["b64_json"]
            .as_str()
            .is_some_and(|text| text.len() > 100),
        "{reply}"
    );
    let asked = program.last_body();
    assert_eq!(
        (&asked["prompt"], &asked["negative_prompt"]),
        (&json!("a hill"), &json!("rain"))
    );
    assert_eq!(
        (
            &asked["steps"],
            &asked["override_settings"]["sd_model_checkpoint"]
        ),
        (&json!(7), &json!("paint.safetensors"))
    );
}

#[test]
fn an_upstream_elsewhere_is_refused_unless_it_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker.toml");
    let check = |section: &str| {
        std::fs::write(&file, section).unwrap();
        worker(&["config", "check", "--config", file.to_str().unwrap()]).run()
    };
    check("[models.a.upstream]\nurl = \"http://example.com/v1\"\n")
        .fails(78, "leads to example.com, another machine");
    check("[models.a.upstream]\nurl = \"http://example.com/v1\"\nremote = true\n").ok();
    check("[models.a.upstream]\nurl = \"ftp://127.0.0.1\"\n").fails(78, "must begin with http://");
    check("[models.a.upstream]\nurl = \"http://127.0.0.1\"\napi = \"a1111\"\nkind = \"text\"\n")
        .fails(78, "needs another api");
    check("[models.a.upstream]\nuri = \"http://127.0.0.1\"\n").fails(78, "did you mean url?");
    check("[models.a]\nupstreem = { url = \"http://127.0.0.1\" }\n").fails(78, "unknown setting");
}

/// The texts of a real program, by both of its APIs, are those that it gives itself.
#[test]
fn a_real_program_serves_through_a_worker_what_it_serves_itself() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    let serve = serve("");
    let sections: String = ["openai", "ollama"]
        .map(|api| {
            format!(
                "[models.by-{api}.upstream]\nurl = \"{}\"\napi = \"{api}\"\nmodel = \"demo-text\"\nkey = \"{}\"\n",
                up.url, up.key
            )
        })
        .concat();
    let _daemon = daemon(&serve, &sections);
    let asked = |model: &str| {
        json!({"model": model, "temperature": 0, "max_tokens": 40,
            "messages": [{"role": "user", "content": "Tell me about the sea."}]})
        .to_string()
    };
    let address = up
        .url
        .strip_prefix("http://")
        .unwrap()
        .trim_end_matches('/');
    let headers = format!("apikey: {}\r\ncontent-type: application/json\r\n", up.key);
    let direct = ask(
        address,
        "POST",
        "/v1/chat/completions",
        &headers,
        &asked("demo-text"),
    );
    let direct = body_of(&direct);
    let wanted = &direct["choices"][0]["message"]["content"];
    assert!(
        wanted.as_str().is_some_and(|text| text.len() > 5),
        "{direct}"
    );
    for api in ["openai", "ollama"] {
        let model = format!("by-{api}");
        wait_for_model(&serve, &model);
        let reply = body_of(&serve.post("/v1/chat/completions", &asked(&model)));
        assert_eq!(
            &reply["choices"][0]["message"]["content"], wanted,
            "{api}: {reply}"
        );
        assert_eq!(
            reply["usage"]["completion_tokens"], direct["usage"]["completion_tokens"],
            "{api}: {reply}"
        );
        assert_eq!(
            reply["usage"]["prompt_tokens"], direct["usage"]["prompt_tokens"],
            "{api}: {reply}"
        );
    }
}
