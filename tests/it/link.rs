//! Real workers on their lines: with our coordinator, and with one that speaks the public protocol.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{FutureExt, SinkExt};
use muster::coordinator::dispatch::Outcome;
use muster::coordinator::switchboard::{Delivery, JobStream};
use muster::daemon::{Served, Way, Worker};
use muster::link::session::Peer;
use muster::link::{Dial, Fingerprint, Standing, native_tls, pinned_tls};
use muster::protocol::job::{
    AccountId, Body, Capabilities, Chat, Event, FinishReason, Job, Sampling, TextInput, TokenEvent,
};
use muster::runtime::{self, CacheScope, EngineLimits, ModelSource, Prompt, Runtime};
use muster::tasks::Tasks;
use muster_testing::{Lines, ended, eventually};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;
use url::Url;

use crate::support::boss::{
    Boss, Cable, ENDS, MODEL, Office, engine, engine_with, post, post_by, public_job, story,
    worker, worker_on, writing_and_drawing,
};
use crate::support::rig::{Board, PATIENCE, read_all, read_tokens};
use crate::support::tap::{Speaker, Tap};
use crate::support::worker as program;

const ID: &str = "71a3c9f0-58b1-4a2f-9d0e-3f6f1b0c2a11";
pub fn dial(board: &Board) -> Dial {
    cable(board).1
}

fn cable(board: &Board) -> (Cable, Dial) {
    let cable = Cable::default();
    let (workers, tasks) = (board.workers.clone(), board.tasks.clone());
    let far = move || {
        let (near, far) = tokio::io::duplex(1 << 12);
        let workers = workers.clone();
        tasks.start(async move { workers.serve(near, Vec::new()).await });
        far
    };
    let dial = cable.dial(far, &board.tasks);
    (cable, dial)
}

/// A worker that the coordinator has taken in, and its engine.
async fn at_work(board: &Board, name: &str) -> (Worker, Runtime) {
    let (runtime, info) = engine().await;
    let post = post(name, dial(board));
    let worker = worker_on(runtime.clone(), info, post, &board.tasks);
    assert!(worker.connected().await);
    (worker, runtime)
}

/// The engine's own text for such a job.
async fn undisturbed(runtime: &Runtime, prompt: &str, tokens: usize) -> String {
    let request = runtime::TextRequest {
        model: MODEL.to_owned(),
        prompt: Prompt::Text(prompt.to_owned()),
        generated: Vec::new(),
        sampling: runtime::Sampling {
            temperature: Some(1.0),
            seed: Some(7),
            repetition_penalty: Some(1.1),
            logit_bias: ENDS.to_vec(),
            ..runtime::Sampling::default()
        },
        max_tokens: Some(tokens),
        window: None,
        stop: Vec::new(),
        stop_rules: runtime::StopRules::default(),
        logprobs: None,
        prompt_logprobs: None,
        grammar: None,
        choice: 3,
        scope: CacheScope::default(),
    };
    let mut generation = runtime.generate(request).await.unwrap();
    let mut text = String::new();
    while let Some(event) = generation.next().await {
        if let runtime::Event::Text { text: more, .. } = event {
            text.push_str(&more);
        }
    }
    text
}

async fn submit(board: &Board, job: Job) -> JobStream {
    board.try_submit(job).await.unwrap()
}

fn completion_tokens(outcome: &Outcome) -> u32 {
    match outcome {
        Outcome::Delivered { usage, .. } => usage.completion_tokens,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn text_over_the_line_is_the_engines_own() {
    let board = Board::start();
    let (worker, runtime) = at_work(&board, "rig").await;
    assert_eq!(worker.standings(), [Standing::Connected(Peer::Ours)]);
    let mut streams = Vec::new();
    for index in 0..6 {
        streams.push(submit(&board, story(&format!("Story {index}"), 50)).await);
    }
    for (index, mut stream) in streams.into_iter().enumerate() {
        let (text, outcome) = read_all(&mut stream).await;
        let wanted = undisturbed(&runtime, &format!("Story {index}"), 50).await;
        assert_eq!((text, completion_tokens(&outcome)), (wanted, 50));
    }
    let activity = worker.activity();
    assert_eq!((activity.done, activity.tokens), (6, 300), "{activity:?}");
}

#[tokio::test]
async fn the_prompt_cache_tells_no_account_what_another_has_asked() {
    let board = Board::start();
    let (_worker, _) = at_work(&board, "rig").await;
    let prompt = "It was a dark and stormy night, and nobody was to know. ".repeat(4);
    let mut cached = Vec::new();
    for account in [1, 1, 2, 2, 0, 0] {
        let job = Job {
            account: AccountId(account),
            ..story(&prompt, 4)
        };
        let mut stream = submit(&board, job).await;
        let mut found = 0;
        loop {
            match stream.next().await.unwrap() {
                Delivery::Event(Event::Started { cached_tokens, .. }) => found = cached_tokens,
                Delivery::Event(_) => {}
                Delivery::End { .. } => break,
            }
        }
        cached.push(found > 0);
    }
    assert_eq!(cached, [false, true, false, true, false, false]);
}

#[tokio::test]
async fn a_socket_cut_in_mid_stream_loses_nothing_and_says_nothing_twice() {
    let board = Board::start();
    let (runtime, info) = engine().await;
    let (cable, dial) = cable(&board);
    let worker = worker_on(runtime.clone(), info, post("rig", dial), &board.tasks);
    assert!(worker.connected().await);
    let mut stream = submit(&board, story("Once upon a time", 800)).await;
    let mut text = read_tokens(&mut stream, 3).await;
    cable.cut();
    let (rest, outcome) = read_all(&mut stream).await;
    text.push_str(&rest);
    assert_eq!(text, undisturbed(&runtime, "Once upon a time", 800).await);
    assert_eq!(completion_tokens(&outcome), 800);
}

#[tokio::test]
async fn a_paused_worker_hands_its_jobs_back_and_another_goes_on_with_the_same_text() {
    let board = Board::start();
    let (first, _) = at_work(&board, "first").await;
    let mut stream = submit(&board, story("Once upon a time", 1200)).await;
    let mut text = read_tokens(&mut stream, 3).await;
    let (second, runtime) = at_work(&board, "second").await;
    first.pause(None).await.unwrap();
    let (rest, outcome) = read_all(&mut stream).await;
    text.push_str(&rest);
    assert_eq!(text, undisturbed(&runtime, "Once upon a time", 1200).await);
    assert_eq!(completion_tokens(&outcome), 1200);

    second.pause(None).await.unwrap();
    first.resume().await.unwrap();
    // The coordinator hears of it a moment later.
    let mut stream = eventually("a worker", async || {
        board
            .try_submit(story("Again", 5))
            .await
            .map_err(|refused| format!("{refused:?}"))
    })
    .await;
    let (_, outcome) = read_all(&mut stream).await;
    assert_eq!(completion_tokens(&outcome), 5);
}

#[tokio::test]
async fn a_worker_that_drains_finishes_its_jobs_and_one_out_of_time_hands_them_on() {
    let board = Board::start();
    let (first, runtime) = at_work(&board, "first").await;
    let mut stream = submit(&board, story("Once", 60)).await;
    read_tokens(&mut stream, 1).await;
    assert!(first.drain(PATIENCE).await);
    let (_, outcome) = read_all(&mut stream).await;
    assert_eq!(completion_tokens(&outcome), 60);

    let (hasty, _) = at_work(&board, "hasty").await;
    let mut stream = submit(&board, story("Once upon a time", 1200)).await;
    let mut text = read_tokens(&mut stream, 3).await;
    let (_second, _) = at_work(&board, "second").await;
    hasty.drain(Duration::ZERO).await;
    text.push_str(&read_all(&mut stream).await.0);
    assert_eq!(text, undisturbed(&runtime, "Once upon a time", 1200).await);
}

#[tokio::test]
async fn hanging_up_frees_the_workers_slot_within_a_second() {
    let board = Board::start();
    let (_worker, runtime) = at_work(&board, "rig").await;
    let mut stream = submit(&board, story("Once", 1900)).await;
    read_tokens(&mut stream, 2).await;
    let hung_up = Instant::now();
    drop(stream);
    eventually("a free engine", async || runtime.status().running == 0).await;
    assert!(hung_up.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn log_probabilities_and_counts_cross_the_line() {
    let board = Board::start();
    let (_worker, _) = at_work(&board, "rig").await;
    let mut asked = story("hello", 10);
    let Body::Text(request) = &mut asked.body else {
        panic!("a text was asked for");
    };
    request.logprobs = Some(2);
    asked.limits.requires = Capabilities::LOGPROBS;
    let mut stream = submit(&board, asked).await;
    let (mut tokens, mut ids) = (0, 0);
    loop {
        match timeout(PATIENCE, stream.next()).await.unwrap().unwrap() {
            Delivery::Event(Event::Token(TokenEvent {
                logprobs,
                ids: drawn,
                ..
            })) => {
                ids += drawn.len();
                tokens += logprobs.len();
                assert!(
                    logprobs
                        .iter()
                        .all(|token| token.top.len() == 2 && token.logprob <= 0.0)
                );
            }
            Delivery::Event(Event::Started { prompt_tokens, .. }) => assert!(prompt_tokens > 0),
            Delivery::Event(_) => {}
            Delivery::End { outcome, .. } => {
                assert_eq!((tokens, ids, completion_tokens(&outcome)), (10, 10, 10));
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_the_clients_fault() {
    let board = Board::start();
    let (_worker, _) = at_work(&board, "rig").await;
    let (_, outcome) = read_all(&mut submit(&board, story(&"long ".repeat(3000), 5)).await).await;
    let failure = outcome.failure().unwrap();
    assert_eq!(failure.code(), "context_length_exceeded");
    assert!(
        failure
            .message
            .contains("maximum context length is 2048 tokens"),
        "{failure}"
    );
}

/// A body nests this deeply as it comes through the door, and a frame around it is deeper than any parser reads.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

#[tokio::test]
async fn a_request_nested_too_deeply_is_refused_and_the_socket_it_came_over_lives() {
    let board = Board::start();
    let (tap, dial) = Tap::on(&board);
    let worker = worker("rig", dial, &board.tasks).await;
    assert!(worker.connected().await);
    let mut other = submit(&board, story("Once", 800)).await;
    read_tokens(&mut other, 1).await;
    let mut deep = story("", 5);
    let Body::Text(request) = &mut deep.body else {
        panic!("a text was asked for");
    };
    request.input = TextInput::Chat(Chat {
        messages: vec![json!({"role": "user", "content": nested(124)})],
        ..Chat::default()
    });
    let (_, outcome) = read_all(&mut submit(&board, deep).await).await;
    let failure = outcome.failure().unwrap();
    assert_eq!(failure.status(), 400, "{failure}");
    assert_eq!(completion_tokens(&read_all(&mut other).await.1), 800);
    assert_eq!(
        tap.heard(Speaker::Worker, "").len(),
        1,
        "it did not come again"
    );
}

#[tokio::test]
async fn the_demo_models_calls_come_as_tool_calls() {
    let board = Board::start();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/models/demo-text");
    let (runtime, info) = engine_with(ModelSource::new(demo), EngineLimits::default()).await;
    let worker = worker_on(runtime, info, post("rig", dial(&board)), &board.tasks);
    assert!(worker.connected().await);
    let tool = json!({"type": "function", "function": {
        "name": "get_weather", "description": "Tells the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }});
    let mut asked = story("", 60);
    let Body::Text(request) = &mut asked.body else {
        panic!("a text was asked for");
    };
    request.sampling = Sampling {
        temperature: Some(0.0),
        ..Sampling::default()
    };
    request.input = TextInput::Chat(Chat {
        messages: vec![json!({"role": "user", "content": "What's the weather in Oslo?"})],
        tools: vec![tool],
        ..Chat::default()
    });
    let mut stream = submit(&board, asked).await;
    let (mut name, mut id, mut arguments, mut text) = (None, None, String::new(), String::new());
    let outcome = loop {
        match timeout(PATIENCE, stream.next()).await.unwrap().unwrap() {
            Delivery::Event(Event::ToolCall(call)) => {
                name = name.or(call.name);
                id = id.or(call.id);
                arguments.push_str(&call.arguments);
            }
            Delivery::Event(Event::Token(token)) => text.push_str(&token.text),
            Delivery::Event(_) => {}
            Delivery::End { outcome, .. } => break outcome,
        }
    };
    assert_eq!(name.as_deref(), Some("get_weather"), "{text}");
    assert!(id.unwrap().starts_with("call_"));
    let arguments: Value = serde_json::from_str(&arguments).unwrap();
    assert_eq!((arguments, text.as_str()), (json!({"city": "Oslo"}), ""));
    assert!(
        matches!(
            outcome,
            Outcome::Delivered {
                finish: FinishReason::ToolCalls,
                ..
            }
        ),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_public_coordinator_gets_the_public_protocol() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let worker = worker("rig-7", dial, &tasks).await;
    let (mut boss, registration) = office.hire().await;
    assert!(worker.connected().await);
    assert_eq!(worker.standings(), [Standing::Connected(Peer::Public)]);
    assert_eq!(
        (
            &registration["name"],
            &registration["apikey"],
            &registration["models"]
        ),
        (&json!("rig-7"), &json!("key-1"), &json!([MODEL]))
    );
    assert_eq!(registration["max_context_length"], 2048);
    assert!(registration.get("type").is_none() && registration.get("job_types").is_none());

    boss.send(json!({"type": "ping"})).await;
    assert_eq!(boss.next().await, json!({"type": "pong"}));
    boss.send(public_job(ID, json!({}))).await;
    let (text, done) = boss.read_job().await;
    assert_eq!(done["id"], ID);
    assert_eq!(done["full_text"], text);
    assert_eq!(done["finish_reason"], "length");
    assert_eq!(done["usage"]["completion_tokens"], 40);
    for ours in ["att", "seq", "ids", "d"] {
        assert!(done.get(ours).is_none(), "{done}");
    }
    boss.send(json!({"type": "ack", "id": ID, "den": 0.1}))
        .await;
    // A public coordinator has agreed on no notices.
    boss.send(json!({"type": "maintenance", "on": true})).await;
    boss.send(json!({"type": "ping"})).await;
    assert_eq!(boss.next().await, json!({"type": "pong"}));
    assert_eq!(worker.activity().kudos, 100);
    assert_eq!(worker.maintenances(), [None]);

    // The default of the public network is more than this model has.
    boss.send(public_job(
        ID,
        json!({"max_tokens": 32768, "max_length": 32768}),
    ))
    .await;
    let (_, done) = boss.read_job().await;
    assert_eq!(done["finish_reason"], "length", "{done}");
    assert!(done["usage"]["total_tokens"].as_u64().unwrap() <= 2048);
}

#[tokio::test]
async fn a_public_cancel_is_answered_within_a_second() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let _worker = worker("rig", dial, &tasks).await;
    let (mut boss, _) = office.hire().await;
    boss.send(public_job(ID, json!({"max_tokens": 1900}))).await;
    let first = boss.next().await;
    assert_eq!(first["type"], "token");
    assert_eq!(first["finish_reason"], Value::Null);
    let asked = Instant::now();
    boss.send(json!({"type": "cancel", "id": ID})).await;
    let (_, done) = boss.read_job().await;
    assert!(asked.elapsed() < Duration::from_secs(1));
    assert_eq!(
        (&done["cancelled"], &done["finish_reason"]),
        (&json!(true), &json!("cancelled"))
    );
    assert!(done["usage"]["completion_tokens"].as_u64().unwrap() >= 1);
}

#[tokio::test]
async fn several_jobs_of_a_public_coordinator_take_several_named_sockets() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let (runtime, info) = engine().await;
    let wanted = post_by("rig", Way::Socket { dial, sockets: 3 });
    let worker = worker_on(runtime, info, wanted, &tasks);
    let (mut first, registration) = office.hire().await;
    let mut names = vec![registration["name"].clone()];
    let (mut second, registration) = office.hire().await;
    names.push(registration["name"].clone());
    assert!(
        registration.get("ext").is_none(),
        "they are public to the end"
    );
    let (_third, registration) = office.hire().await;
    names.push(registration["name"].clone());
    names.sort_by_key(Value::to_string);
    assert_eq!(names, ["rig", "rig#2", "rig#3"]);
    first.send(public_job(ID, json!({}))).await;
    second
        .send(public_job(
            "c0a8b2d4-0000-4f00-8a00-1234567890ab",
            json!({}),
        ))
        .await;
    let (one, two) = tokio::join!(first.read_job(), second.read_job());
    assert_eq!(one.0, two.0, "the same seed");
    let leaving = tokio::spawn(worker.drain(PATIENCE));
    for (boss, id) in [
        (&mut first, ID),
        (&mut second, "c0a8b2d4-0000-4f00-8a00-1234567890ab"),
    ] {
        boss.send(json!({"type": "ack", "id": id, "den": 0})).await;
        assert_eq!(boss.next_if_any().await, None);
    }
    assert!(leaving.await.unwrap());
}

#[tokio::test]
async fn a_public_coordinator_has_a_socket_for_each_job_type() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let worker = writing_and_drawing(post("rig", dial), &tasks).await;
    let (mut whole, registration) = office.hire().await;
    assert_eq!(registration["models"], json!([MODEL, "draws"]));
    assert_eq!(whole.next_if_any().await, None);
    let mut hired = [office.hire().await, office.hire().await];
    hired.sort_by_key(|(_, registration)| registration["name"].to_string());
    let [(mut writes, texts), (mut draws, images)] = hired;
    let facts = |registration: &Value| {
        ["name", "models", "job_types"].map(|name| registration[name].clone())
    };
    assert_eq!(facts(&texts), [json!("rig"), json!([MODEL]), Value::Null]);
    let wanted = [json!("rig#image"), json!(["draws"]), json!(["image"])];
    assert_eq!(facts(&images), wanted);
    assert!(office.nobody_comes(Duration::from_millis(300)).await);
    writes.send(public_job(ID, json!({}))).await;
    draws
        .send(json!({
            "type": "job", "id": "c0a8b2d4-0000-4f00-8a00-1234567890ab", "job_type": "image",
            "model": "draws", "upload": [],
            "payload": {"prompt": "a cat", "n": 1, "width": 64, "height": 64, "steps": 2, "ext": "png"},
        }))
        .await;
    let ((text, done), (_, drawn)) = tokio::join!(writes.read_job(), draws.read_job());
    assert_eq!(
        (&done["full_text"], &done["id"]),
        (&json!(text), &json!(ID))
    );
    assert_ne!(text, "");
    // Without a place for the image there is none.
    assert_eq!(drawn["type"], "error", "{drawn}");
    drop((writes, draws, whole));
    drop(worker);
}

#[tokio::test]
async fn a_coordinator_with_extensions_has_one_socket_for_all_job_types() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let worker = writing_and_drawing(post("rig", dial), &tasks).await;
    let mut boss = office.next().await;
    let registration = boss.next().await;
    assert_eq!(registration["models"], json!([MODEL, "draws"]));
    assert_eq!(registration["job_types"], json!(["text", "image"]));
    boss.send(json!({
        "type": "ready", "worker_id": "2d0f4a52-6b0d-4c55-9c7e-0f5a4a3b9d10",
        "ext": {"v": 1, "use": ["multi"]},
    }))
    .await;
    assert!(worker.connected().await);
    assert_eq!(worker.standings(), [Standing::Connected(Peer::Ours)]);
    assert!(office.nobody_comes(Duration::from_millis(300)).await);
}

#[tokio::test]
async fn a_wrong_key_stops_the_worker_and_other_refusals_are_waited_out() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let refused = worker("rig", dial, &tasks).await;
    let mut boss = office.next().await;
    boss.next().await;
    boss.send(json!({"type": "error", "message": "unknown key"}))
        .await;
    boss.close(4001).await;
    assert!(!refused.connected().await);
    assert_eq!(
        refused.standings(),
        [Standing::Refused("unknown key".to_owned())]
    );
    let refusals = timeout(PATIENCE, refused.refused()).await.unwrap();
    assert_eq!(refusals, ["test: unknown key"]);

    let (mut office, dial) = Office::open();
    let _barred = worker("rig", dial, &tasks).await;
    let mut boss = office.next().await;
    boss.next().await;
    boss.send(json!({"type": "error", "message": "cool-down"}))
        .await;
    boss.close(4003).await;
    assert!(
        office.nobody_comes(Duration::from_secs(4)).await,
        "at least 30 s"
    );
}

#[tokio::test]
async fn a_worker_goes_on_while_one_of_its_coordinators_takes_it() {
    let tasks = Tasks::default();
    let (runtime, info) = engine().await;
    let (mut strict, to_strict) = Office::open();
    let (mut kind, to_kind) = Office::open();
    let posts = vec![post("rig", to_strict), post("rig", to_kind)];
    let served = Served {
        models: vec![info],
        slots: 4,
        ..Served::default()
    };
    let worker = Worker::start(runtime, served, posts, &tasks);
    let mut boss = strict.next().await;
    boss.next().await;
    boss.close(4001).await;
    let (mut boss, _) = kind.hire().await;
    assert!(worker.connected().await);
    boss.send(public_job(ID, json!({}))).await;
    let (_, done) = boss.read_job().await;
    assert_eq!(done["usage"]["completion_tokens"], 40);
    eventually("a refusal", async || {
        matches!(worker.standings()[0], Standing::Refused(_))
    })
    .await;
    assert_eq!(worker.refused().now_or_never(), None);
}

#[tokio::test]
async fn a_lost_public_socket_is_dialled_again() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let _worker = worker("rig", dial, &tasks).await;
    let (mut boss, _) = office.hire().await;
    boss.send(public_job(ID, json!({"max_tokens": 1900}))).await;
    boss.next().await;
    drop(boss);
    let (mut boss, registration) = office.hire().await;
    assert!(registration.get("resume").is_none());
    boss.send(public_job(ID, json!({}))).await;
    let (_, done) = boss.read_job().await;
    assert_eq!(done["usage"]["completion_tokens"], 40);
}

#[tokio::test]
async fn a_request_that_cannot_be_served_is_the_clients_fault_and_the_next_one_is_served() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let _worker = worker("rig", dial, &tasks).await;
    let (mut boss, _) = office.hire().await;
    for request in [
        json!({"messages": "nothing"}),
        json!({"messages": [{"role": "user", "content": "long ".repeat(4000)}]}),
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}}),
    ] {
        boss.send(public_job(ID, request)).await;
        let (_, error) = boss.read_job().await;
        assert_eq!(
            (&error["type"], &error["client_error"]),
            (&json!("error"), &json!(true))
        );
        assert!(error.get("code").is_none(), "{error}");
    }
    boss.send(public_job(ID, json!({}))).await;
    assert_eq!(boss.read_job().await.1["type"], "done");
}

#[tokio::test]
async fn what_python_writes_and_json_does_not_know_costs_a_public_coordinator_nothing() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let _worker = worker("rig", dial, &tasks).await;
    let (mut boss, _) = office.hire().await;
    let content =
        json!({"messages": [{"role": "user", "content": "half an emoji: CUT"}], "x": "NONE"});
    let job = public_job(ID, content).to_string();
    let job = job
        .replace("CUT", r"\ud83d")
        .replace(r#""NONE""#, "-Infinity");
    boss.socket.send(Message::text(job)).await.unwrap();
    assert_eq!(boss.read_job().await.1["finish_reason"], "length");
    boss.send(json!({"type": "ack", "id": ID, "den": 0})).await;

    boss.send(public_job(ID, json!({"tools": nested(200)})))
        .await;
    let (_, error) = boss.read_job().await;
    assert_eq!(
        (&error["type"], &error["client_error"]),
        (&json!("error"), &json!(true))
    );
    boss.send(public_job(ID, json!({}))).await;
    assert_eq!(boss.read_job().await.1["finish_reason"], "length");
}

#[tokio::test]
async fn text_without_its_tokens_is_gone_on_with_elsewhere() {
    let board = Board::start();
    let (tap, dial) = Tap::on(&board);
    let worker = worker("rig", dial, &board.tasks).await;
    assert!(worker.connected().await);
    let (mut office, dial) = Office::open();
    let worker = self::worker("rig", dial, &board.tasks).await;
    let mut boss = office.next().await;
    boss.next().await;
    let ready = tap.until(Speaker::Coordinator, "ready", |_| true).await;
    boss.send(ready).await;
    assert!(worker.connected().await);
    let mut job = public_job(ID, json!({}));
    job["att"] = json!(2);
    job["prefill"] = json!({"text": "Once upon"});
    boss.send(job).await;
    loop {
        let frame = boss.next().await;
        if frame["type"] != "state" {
            assert_eq!((&frame["type"], &frame["att"]), (&json!("busy"), &json!(2)));
            return;
        }
    }
}

#[tokio::test]
async fn a_worker_dials_a_coordinator_over_tcp() {
    let tasks = Tasks::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = Url::parse(&format!("ws://{address}/v1/workers/ws")).unwrap();
    let tls = native_tls().unwrap();
    let _worker = worker("rig", Dial::Url { url, tls }, &tasks).await;
    let (stream, _) = listener.accept().await.unwrap();
    let mut boss = Boss {
        socket: accept_async(stream).await.unwrap(),
    };
    assert_eq!(boss.next().await["name"], "rig");
    boss.send(json!({"type": "ready", "worker_id": ID})).await;
    boss.send(public_job(ID, json!({}))).await;
    let (text, done) = boss.read_job().await;
    assert!(!text.is_empty());
    assert_eq!(done["full_text"], text);
}

#[tokio::test]
async fn a_worker_dials_over_tls_and_trusts_no_stranger() {
    const CERTIFICATE: &str = "tests/fixtures/tls/certificate.pem";
    let certificates = CertificateDer::pem_file_iter(CERTIFICATE).unwrap();
    let certificates: Vec<_> = certificates.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file("tests/fixtures/tls/key.pem").unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates.clone(), key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificates[0].clone()).unwrap();
    let trusting = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();

    let tasks = Tasks::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = Url::parse(&format!("wss://localhost:{port}/v1/workers/ws")).unwrap();
    let dial = |tls| Dial::Url {
        url: url.clone(),
        tls,
    };
    let stranger = worker("rig", dial(native_tls().unwrap()), &tasks).await;
    let (stream, _) = listener.accept().await.unwrap();
    assert!(
        acceptor.accept(stream).await.is_err(),
        "nobody vouches for it"
    );
    assert_eq!(stranger.standings(), [Standing::Away]);
    stranger.drain(Duration::ZERO).await;

    // A pin of another certificate refuses the connection; the right one accepts any names.
    let wrong = pinned_tls(Fingerprint([7; 32])).unwrap();
    let misled = worker("rig", dial(wrong), &tasks).await;
    let (stream, _) = listener.accept().await.unwrap();
    assert!(acceptor.accept(stream).await.is_err());
    misled.drain(Duration::ZERO).await;
    let pinned = pinned_tls(Fingerprint::of(&certificates[0])).unwrap();

    for tls in [Arc::new(trusting), pinned] {
        let worker = worker("rig", dial(tls), &tasks).await;
        let (stream, _) = listener.accept().await.unwrap();
        let mut boss = Boss {
            socket: accept_async(acceptor.accept(stream).await.unwrap())
                .await
                .unwrap(),
        };
        assert_eq!(boss.next().await["name"], "rig");
        worker.drain(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn frames_nobody_understands_cost_a_reconnect_and_no_more() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let worker = worker("rig", dial, &tasks).await;
    let (mut boss, _) = office.hire().await;
    boss.send(json!({"type": "no_job", "x": [[[]]]})).await;
    boss.send(json!(["not", "an", "object"])).await;
    assert_eq!(boss.next_if_any().await, None);
    let (mut boss, _) = office.hire().await;
    boss.send(public_job(ID, json!({}))).await;
    assert_eq!(boss.read_job().await.1["type"], "done");
    assert!(worker.connected().await);
}

#[tokio::test]
async fn a_worker_works_for_several_coordinators_at_once() {
    let board = Board::start();
    let (mut office, public) = Office::open();
    let (runtime, info) = engine().await;
    let served = Served {
        models: vec![info],
        slots: 8,
        ..Served::default()
    };
    let posts = vec![post("rig", dial(&board)), post("rig", public)];
    let _worker = Worker::start(runtime.clone(), served, posts, &board.tasks);
    let (mut boss, _) = office.hire().await;
    let overview = || board.switchboard.overview();
    eventually("a worker", async || !overview().workers.is_empty()).await;
    let mut stream = submit(&board, story("Once", 60)).await;
    boss.send(public_job(ID, json!({}))).await;
    let (ours, theirs) = tokio::join!(read_all(&mut stream), boss.read_job());
    assert_eq!(ours.0, undisturbed(&runtime, "Once", 60).await);
    assert_eq!(theirs.1["usage"]["completion_tokens"], 40);
}

#[tokio::test]
async fn many_jobs_on_one_socket_do_not_mix() {
    let board = Board::start();
    let (_worker, runtime) = at_work(&board, "rig").await;
    let board = Arc::new(board);
    let mut readers = Vec::new();
    for index in 0..24 {
        let board = board.clone();
        readers.push(tokio::spawn(async move {
            let prompt = format!("Tale {index}");
            let mut stream = submit(&board, story(&prompt, 20 + index)).await;
            (prompt, index, read_all(&mut stream).await)
        }));
    }
    for reader in readers {
        let (prompt, index, (text, outcome)) = reader.await.unwrap();
        let tokens = 20 + index;
        assert_eq!(completion_tokens(&outcome), tokens);
        assert_eq!(text, undisturbed(&runtime, &prompt, tokens as usize).await);
    }
}

/// Ends with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn started(command: Command) -> Process {
    let mut command = command;
    let streams = command.stdin(Stdio::null());
    let streams = streams.stdout(Stdio::piped()).stderr(Stdio::piped());
    Process(streams.spawn().unwrap())
}

/// Starts a coordinator with this folder; returns its ready message.
fn served(folder: &Path) -> (Process, Value) {
    let data = folder.join("data");
    let serve = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let mut coordinator = started(program::worker(&serve).command());
    let mut stdout = Lines::of(coordinator.0.stdout.take().unwrap());
    let ready = serde_json::from_str(&stdout.next_line()).unwrap();
    (coordinator, ready)
}

#[test]
fn the_program_works_for_a_coordinator_and_drains_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let (mut coordinator, ready) = served(folder.path());
    let (url, key) = (
        ready["url"].as_str().unwrap(),
        ready["api_key"].as_str().unwrap(),
    );

    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-llama");
    let settings = format!(
        "[models]\nserve = [{model:?}]\n[[coordinator]]\nurl = {url:?}\nkey = {key:?}\nname = \"rig\"\n"
    );
    fs::write(folder.path().join("worker.toml"), settings).unwrap();
    let command = program::worker(&["--config", "worker.toml"]).inside(folder.path());
    let mut rig = started(command.command());
    let mut log = Lines::of(rig.0.stderr.take().unwrap());
    log.until("connected to 127.0.0.1");
    let body = json!({
        "model": "tiny-llama", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5,
        "logit_bias": {"507": -100, "510": -100},
    });
    let answered = Command::new("curl")
        .args([
            "-sS",
            &format!("{url}/v1/chat/completions"),
            "-H",
            &format!("Authorization: Bearer {key}"),
        ])
        .args([
            "-H",
            "Content-Type: application/json",
            "-d",
            &body.to_string(),
        ])
        .output()
        .unwrap();
    let reply: Value = serde_json::from_slice(&answered.stdout).unwrap();
    assert_eq!(reply["usage"]["completion_tokens"], 5, "{reply}");
    assert_eq!(reply["choices"][0]["finish_reason"], "length", "{reply}");

    let told = Command::new("kill")
        .args(["-TERM", &rig.0.id().to_string()])
        .status();
    assert!(told.unwrap().success());
    assert_eq!(ended(&mut rig.0).code(), Some(0));
    let said = log.rest();
    assert!(
        said.contains("disconnected from 127.0.0.1") && !said.contains(key),
        "{said}"
    );
    Lines::of(coordinator.0.stderr.take().unwrap())
        .until("worker rig disconnected: closed by the worker with code 1000");
}

#[test]
fn the_program_ends_when_its_only_coordinator_refuses_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let (_coordinator, ready) = served(folder.path());
    let (url, key) = (ready["url"].as_str().unwrap(), "B".repeat(22));

    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-llama");
    let settings = format!(
        "[models]\nserve = [{model:?}]\n[[coordinator]]\nurl = {url:?}\nkey = {key:?}\nname = \"rig\"\n"
    );
    fs::write(folder.path().join("worker.toml"), settings).unwrap();
    let rig = program::worker(&["--config", "worker.toml"]).inside(folder.path());
    let ended = rig.run();
    assert_eq!(ended.code, 78, "{}", ended.stderr);
    let error = ended
        .stderr
        .lines()
        .find(|line| line.starts_with("error: "));
    assert!(
        error
            .unwrap()
            .starts_with("error: every coordinator refuses this worker: 127.0.0.1:"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains(&key), "{}", ended.stderr);
}
