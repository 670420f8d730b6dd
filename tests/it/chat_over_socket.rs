//! Chat jobs over the worker socket: what public peers and ours are sent, what their clients hear, and that nothing is
//! lost, doubled or paid twice when something breaks.

use std::time::Duration;

use muster::coordinator::dispatch::{Outcome, Settings};
use muster::coordinator::switchboard::Delivery;
use muster::coordinator::workers::WorkersSettings;
use muster::protocol::job::{
    AccountId, Body, Event, Failure, FailureKind, FinishReason, Job, KeepAlive,
};
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::support::rig::{Board, PATIENCE, job, ours, read_all, read_tokens};

const MOMENT: Duration = Duration::from_millis(150);

fn delivered(outcome: &Outcome) -> &FinishReason {
    match outcome {
        Outcome::Delivered { finish, .. } => finish,
        other => panic!("a delivery was wanted, found {other:?}"),
    }
}

fn failed(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("a failure was wanted, found {other:?}"),
    }
}

#[tokio::test]
async fn a_public_worker_gets_the_clients_request_with_the_public_defaults() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let stream = board.submit("Name two colours.").await;
    let frame = rig.job().await;
    assert_eq!(frame["id"], stream.job().to_string());
    assert_eq!(frame["model"], "tiny");
    for absent in ["att", "seq", "job_type", "upload", "deadline_ms", "prefill"] {
        assert!(frame.get(absent).is_none(), "{absent}: {frame}");
    }
    let payload = &frame["payload"];
    assert_eq!(payload["api_format"], "openai-chat");
    assert_eq!(payload["prompt"], "User: Name two colours.\nAssistant:");
    assert_eq!(payload["max_length"], 64);
    assert_eq!(
        (&payload["temperature"], &payload["top_p"]),
        (&json!(0.7), &json!(0.9))
    );
    let request = &payload["request"];
    assert_eq!(request["model"], "tiny");
    assert_eq!(request["messages"][0]["content"], "Name two colours.");
    assert_eq!(
        (&request["n"], &request["stream"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(
        (&request["temperature"], &request["top_p"]),
        (&json!(0.7), &json!(0.9))
    );
    assert_eq!(request["max_tokens"], 64);
    assert!(request["seed"].is_u64(), "{request}");
}

#[tokio::test]
async fn our_workers_are_told_a_cache_salt_of_the_jobs_owner_and_public_ones_none() {
    let board = Board::start();
    let mut first = board.our_rig("first", 16).await;
    let mut salts = Vec::new();
    let mut streams = Vec::new();
    for account in [1, 1, 2, 0, 0] {
        let job = Job {
            account: AccountId(account),
            ..job("Name two colours.")
        };
        streams.push(board.try_submit(job).await.unwrap());
        let frame = first.job().await;
        salts.push(frame["cache_salt"].as_str().unwrap().to_owned());
    }
    assert_eq!(salts[0], salts[1], "one account's jobs share");
    let strangers = [&salts[1], &salts[2], &salts[3], &salts[4]];
    let different: std::collections::BTreeSet<_> = strangers.into_iter().collect();
    assert_eq!(different.len(), 4, "{salts:?}");

    drop(first);
    drop(streams);
    let mut second = board.our_rig("second", 16).await;
    let _stream = board.submit("Name two colours.").await;
    let frame = second.job().await;
    assert_ne!(
        frame["cache_salt"], salts[0],
        "workers cannot compare salts"
    );

    let board = Board::start();
    let mut public = board.public_rig("public").await;
    let _stream = board.submit("Name two colours.").await;
    let frame = public.job().await;
    assert!(frame.get("cache_salt").is_none(), "{frame}");
}

/// Whether a model stays in memory is decided by the owner of its machine.
#[tokio::test]
async fn a_keep_alive_time_is_for_workers_of_the_same_account() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 16).await;
    let ten_minutes = Some(KeepAlive::For(Duration::from_secs(600)));
    let mut streams = Vec::new();
    for (account, keep_alive, expected) in [
        (1, ten_minutes, json!(600_000)),
        (1, Some(KeepAlive::Always), json!(-1)),
        (1, None, Value::Null),
        (2, ten_minutes, Value::Null),
    ] {
        let mut job = Job {
            account: AccountId(account),
            ..job("Name two colours.")
        };
        job.limits.keep_alive = keep_alive;
        streams.push(board.try_submit(job).await.unwrap());
        let frame = rig.job().await;
        assert_eq!(frame["keep_alive_ms"], expected, "{frame}");
    }
}

#[tokio::test]
async fn an_ack_is_the_next_frame_after_every_settled_done() {
    let settings = WorkersSettings {
        ping_every: Duration::from_millis(20),
        ..WorkersSettings::default()
    };
    let board = Board::with(Settings::default(), settings);
    let mut rig = board.public_rig("rig").await;
    let mut first = board.submit("one").await;
    let mut second = board.submit("two").await;
    board.store.forget_permits(100_000);
    let job = rig.job().await;
    rig.token(&job, "hi").await;
    rig.done(&job).await;
    // The store takes its time, another job waits, pings are due: nothing of that comes first.
    let early = timeout(MOMENT, rig.next()).await;
    assert!(early.is_err(), "{early:?}");
    board.store.add_permits(10);
    let ack = rig.next().await;
    assert_eq!(ack, json!({"type": "ack", "id": job["id"], "den": 1.5}));
    let job = rig.job().await;
    rig.token(&job, "ho").await;
    rig.done(&job).await;
    assert_eq!(rig.next().await["type"], "ack");
    assert_eq!(read_all(&mut first).await.0, "hi");
    assert_eq!(read_all(&mut second).await.0, "ho");
}

#[tokio::test]
async fn the_store_has_it_before_the_client_hears_the_end() {
    let mut board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    board.store.forget_permits(100_000);
    let job = rig.job().await;
    rig.token(&job, "hi").await;
    rig.done(&job).await;
    read_tokens(&mut stream, 1).await;
    let early = timeout(MOMENT, stream.next()).await;
    assert!(early.is_err(), "{early:?}");
    assert!(board.settled.try_recv().is_err());
    board.store.add_permits(1);
    let (_, outcome) = read_all(&mut stream).await;
    assert_eq!(delivered(&outcome), &FinishReason::Stop);
    assert!(board.settled.try_recv().is_ok());
}

#[tokio::test]
async fn reasoning_refusals_and_pieces_of_calls_are_told_apart() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    let deltas = [
        json!({"reasoning_content": "hmm"}),
        json!({"content": "yes"}),
        json!({"refusal": "no"}),
        json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}]}),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
    ];
    for delta in deltas {
        rig.send(json!({"type": "token", "id": job["id"], "delta": delta}))
            .await;
    }
    rig.send(json!({"type": "token", "id": job["id"], "text": "old", "reasoning": true}))
        .await;
    rig.send(json!({"type": "done", "id": job["id"]})).await;
    let mut heard = Vec::new();
    let outcome = loop {
        match timeout(PATIENCE, stream.next()).await.unwrap().unwrap() {
            Delivery::Event(Event::Token(token)) => {
                heard.push(format!("{:?} {}", token.channel, token.text));
            }
            Delivery::Event(Event::ToolCall(call)) => {
                heard.push(format!("{} {:?} {}", call.index, call.name, call.arguments));
            }
            Delivery::Event(other) => panic!("{other:?}"),
            Delivery::End { outcome, .. } => break outcome,
        }
    };
    let wanted = [
        "Reasoning hmm",
        "Content yes",
        "Refusal no",
        "0 Some(\"f\") ",
        "0 None {}",
        "Reasoning old",
    ];
    assert_eq!(heard, wanted);
    assert_eq!(delivered(&outcome), &FinishReason::ToolCalls);
}

#[tokio::test]
async fn half_an_emoji_reaches_the_client_as_a_replacement_character() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    for delta in [r#"{"content":"so \ud83d"}"#, r#"{"content":"\ude00!"}"#] {
        let id = &job["id"];
        rig.send_text(format!(r#"{{"type":"token","id":{id},"delta":{delta}}}"#))
            .await;
    }
    rig.done(&job).await;
    assert_eq!(read_all(&mut stream).await.0, "so \u{fffd}\u{fffd}!");
}

#[tokio::test]
async fn a_done_that_says_strange_things_is_acked_before_anything_else_comes() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("one").await;
    let _waits = board.submit("two").await;
    let job = rig.job().await;
    rig.token(&job, "hi").await;
    rig.send(json!({"type": "done", "id": job["id"], "usage": [], "finish_reason": {"a": 1}}))
        .await;
    assert_eq!(rig.next().await["type"], "ack");
    assert_eq!(read_all(&mut stream).await.0, "hi");
}

#[tokio::test]
async fn a_frame_that_cannot_be_read_spoils_the_job_it_names_and_no_other() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 4).await;
    let mut one = board.submit("one").await;
    let mut two = board.submit("two").await;
    let (first, second) = (rig.job().await, rig.job().await);
    rig.send(
        json!({"type": "token", "id": first["id"], "att": 1, "seq": 1, "delta": {"content": 7}}),
    )
    .await;
    let again = rig.job().await;
    assert_eq!((&again["id"], &again["att"]), (&first["id"], &json!(2)));
    rig.numbered(&again, 1, "1").await;
    rig.numbered_done(&again, 2, 1).await;
    rig.numbered(&second, 1, "2").await;
    rig.numbered_done(&second, 2, 1).await;
    assert_eq!(read_all(&mut one).await.0, "1");
    assert_eq!(read_all(&mut two).await.0, "2");
}

#[tokio::test]
async fn the_whole_text_counts_only_if_nothing_was_streamed() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.send(
        json!({"type": "done", "id": job["id"], "full_text": "whole", "finish_reason": "length"}),
    )
    .await;
    let (text, outcome) = read_all(&mut stream).await;
    assert_eq!(
        (text.as_str(), delivered(&outcome)),
        ("whole", &FinishReason::Length)
    );
    assert_eq!(rig.frame().await["type"], "ack");
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.token(&job, "part").await;
    rig.send(json!({"type": "done", "id": job["id"], "full_text": "part"}))
        .await;
    assert_eq!(read_all(&mut stream).await.0, "part");
}

#[tokio::test]
async fn an_empty_done_is_a_failure_and_another_worker_tries() {
    let board = Board::start();
    let mut one = board.public_rig("one").await;
    let mut two = board.public_rig("two").await;
    let mut stream = board.submit("hello").await;
    let (job, first_is_one) = tokio::select! {
        job = one.job() => (job, true),
        job = two.job() => (job, false),
    };
    let (bad, good) = if first_is_one {
        (&mut one, &mut two)
    } else {
        (&mut two, &mut one)
    };
    bad.send(json!({"type": "done", "id": job["id"]})).await;
    let again = good.job().await;
    assert_eq!(again["id"], job["id"]);
    good.token(&again, "hi").await;
    good.done(&again).await;
    assert_eq!(read_all(&mut stream).await.0, "hi");
}

#[tokio::test]
async fn an_error_of_the_request_is_a_400_and_of_the_worker_a_502() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.send(json!({"type": "error", "id": job["id"], "message": "bad tool schema", "client_error": true}))
        .await;
    let failure = failed(read_all(&mut stream).await.1);
    assert_eq!(
        (failure.status(), failure.message.as_ref()),
        (400, "bad tool schema")
    );
    let mut stream = board.submit("hello").await;
    for _ in 0..2 {
        let job = rig.job().await;
        rig.send(json!({"type": "error", "id": job["id"], "message": "backend answered 503"}))
            .await;
    }
    assert_eq!(failed(read_all(&mut stream).await.1).status(), 502);
    assert!(rig.hears_nothing(MOMENT).await, "no ack follows an error");
}

#[tokio::test]
async fn a_client_that_leaves_frees_a_public_workers_slot_within_a_second() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let stream = board.submit("long").await;
    let job = rig.job().await;
    rig.token(&job, "a").await;
    let left = Instant::now();
    drop(stream);
    let cancel = rig.frame().await;
    assert_eq!(cancel, json!({"type": "cancel", "id": job["id"]}));
    rig.send(
        json!({"type": "done", "id": job["id"], "cancelled": true, "finish_reason": "cancelled"}),
    )
    .await;
    assert_eq!(rig.frame().await["type"], "ack");
    let mut next = board.submit("next").await;
    let job = rig.job().await;
    assert!(
        left.elapsed() < Duration::from_secs(1),
        "{:?}",
        left.elapsed()
    );
    rig.token(&job, "b").await;
    rig.done(&job).await;
    assert_eq!(read_all(&mut next).await.0, "b");
}

#[tokio::test]
async fn a_worker_of_ours_that_does_not_confirm_a_cancel_has_its_slot_free_within_a_second() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 1).await;
    let stream = board.submit("long").await;
    let job = rig.job().await;
    rig.numbered(&job, 1, "a").await;
    let left = Instant::now();
    drop(stream);
    let cancel = rig.frame().await;
    assert_eq!(cancel["why"], "client");
    assert_eq!(cancel["att"], job["att"]);
    let _next = board.submit("next").await;
    let next = rig.job().await;
    assert!(
        left.elapsed() < Duration::from_secs(2),
        "{:?}",
        left.elapsed()
    );
    assert_ne!(next["id"], job["id"]);
    rig.numbered(&job, 2, "late").await;
    assert_eq!(rig.frame().await["type"], "drop");
}

#[tokio::test]
async fn double_done_is_settled_once_and_acked_with_nothing_the_second_time() {
    let mut board = Board::start();
    let mut rig = board.our_rig("rig", 2).await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.numbered(&job, 1, "hi").await;
    rig.numbered_done(&job, 2, 1).await;
    assert_eq!(rig.frame().await["den"], 1.5);
    rig.numbered_done(&job, 2, 1).await;
    assert_eq!(rig.frame().await["den"], 0);
    assert_eq!(read_all(&mut stream).await.0, "hi");
    assert!(board.settled.try_recv().is_ok());
    assert!(board.settled.try_recv().is_err());
}

#[tokio::test]
async fn a_done_for_anothers_job_touches_neither() {
    let board = Board::start();
    let mut honest = board.public_rig("honest").await;
    let mut stream = board.submit("hello").await;
    let job = honest.job().await;
    let mut thief = board.public_rig("thief").await;
    thief.token(&job, "mine").await;
    thief.done(&job).await;
    let ack = thief.frame().await;
    assert_eq!((&ack["type"], &ack["den"]), (&json!("ack"), &json!(0)));
    honest.token(&job, "hi").await;
    honest.done(&job).await;
    assert_eq!(read_all(&mut stream).await.0, "hi");
    assert_eq!(honest.frame().await["den"], 1.5);
}

#[tokio::test]
async fn frames_after_a_cancel_reach_nobody() {
    let mut board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.token(&job, "a").await;
    drop(stream);
    rig.frame().await;
    for _ in 0..10 {
        rig.token(&job, "late").await;
    }
    rig.send(json!({"type": "done", "id": job["id"], "cancelled": true}))
        .await;
    assert_eq!(rig.frame().await["type"], "ack");
    rig.token(&job, "later").await;
    rig.done(&job).await;
    assert_eq!(rig.frame().await["den"], 0);
    let (facts, _) = timeout(PATIENCE, board.settled.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(facts.outcome, Outcome::Cancelled);
    assert_eq!(facts.parts[0].events, 1);
    assert!(board.settled.try_recv().is_err());
}

#[tokio::test]
async fn one_stalled_client_among_64_on_one_socket_holds_up_nobody() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 64).await;
    let mut clients = Vec::new();
    for _ in 0..64 {
        let mut job = job("hello");
        if let Body::Text(text) = &mut job.body {
            text.max_tokens = Some(100_000);
        }
        let stream = board.try_submit(job).await.unwrap();
        clients.push((stream, rig.job().await));
    }
    let (mut stalled, its_job) = clients.remove(0);
    let piece = "word ".repeat(20_000);
    for seq in 1..=20 {
        rig.numbered(&its_job, seq, &piece).await;
        for (stream, job) in &mut clients {
            rig.numbered(job, seq, "a").await;
            assert_eq!(read_tokens(stream, 1).await, "a");
        }
    }
    let cancel = rig.frame().await;
    assert_eq!(
        (&cancel["type"], &cancel["id"]),
        (&json!("cancel"), &its_job["id"])
    );
    for (stream, job) in &mut clients {
        rig.numbered_done(job, 21, 20).await;
        delivered(&read_all(stream).await.1);
    }
    let failure = failed(read_all(&mut stalled).await.1);
    assert_eq!(failure.kind, FailureKind::SlowClient);
}

#[tokio::test]
async fn losing_a_public_worker_before_output_is_invisible() {
    let mut board = Board::start();
    let mut first = board.public_rig("first").await;
    let mut stream = board.submit("hello").await;
    let job = first.job().await;
    drop(first);
    let mut second = board.public_rig("second").await;
    let again = second.job().await;
    assert_eq!(again, job);
    second.token(&again, "hi").await;
    second.done(&again).await;
    let (text, outcome) = read_all(&mut stream).await;
    assert_eq!(
        (text.as_str(), delivered(&outcome)),
        ("hi", &FinishReason::Stop)
    );
    let (facts, _) = board.settled.recv().await.unwrap();
    assert_eq!((facts.attempts, facts.parts.len()), (2, 1));
}

#[tokio::test]
async fn losing_a_public_worker_after_output_is_a_typed_error() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.token(&job, "hi").await;
    read_tokens(&mut stream, 1).await;
    drop(rig);
    let failure = failed(read_all(&mut stream).await.1);
    assert_eq!(
        (failure.status(), failure.kind),
        (502, FailureKind::WorkerLost)
    );
}

fn hasty() -> Settings {
    Settings {
        grace: Duration::from_millis(400),
        short_grace: Duration::from_millis(50),
        ..Settings::default()
    }
}

#[tokio::test]
async fn after_output_another_worker_goes_on_from_the_delivered_tokens() {
    let board = Board::with(hasty(), WorkersSettings::default());
    let mut first = board.our_rig("first", 4).await;
    let mut stream = board.submit("hello").await;
    let job = first.job().await;
    for seq in 1..=3 {
        first.numbered(&job, seq, &format!("{seq} ")).await;
    }
    assert_eq!(read_tokens(&mut stream, 3).await, "1 2 3 ");
    let mut second = board.our_rig("second", 4).await;
    drop(first);
    let again = second.job().await;
    assert_eq!(again["id"], job["id"]);
    assert_eq!((&job["att"], &again["att"]), (&json!(1), &json!(2)));
    let seed = |frame: &Value| frame["payload"]["request"]["sampling"]["seed"].as_u64();
    assert!(seed(&job).is_some(), "the client named none");
    assert_eq!(seed(&job), seed(&again), "both draw the same");
    assert_eq!(
        again["prefill"],
        json!({"text": "1 2 3 ", "tokens": [101, 102, 103], "written": 3})
    );
    second.numbered(&again, 1, "4 ").await;
    second.numbered_done(&again, 2, 4).await;
    let (text, outcome) = read_all(&mut stream).await;
    assert_eq!(text, "4 ");
    delivered(&outcome);
}

#[tokio::test]
async fn a_worker_that_comes_back_goes_on_without_gap_or_repetition() {
    let board = Board::start();
    let (mut rig, ready) = board.rig(ours("rig", 4)).await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.numbered(&job, 1, "1 ").await;
    rig.numbered(&job, 2, "2 ").await;
    assert_eq!(read_tokens(&mut stream, 2).await, "1 2 ");
    drop(rig);
    let mut registration = ours("rig", 4);
    let unknown = uuid::Uuid::new_v4();
    registration["resume"] = json!({"session": ready["ext"]["session"], "jobs": [
        {"id": job["id"], "att": job["att"], "last": 4},
        {"id": unknown, "att": 1, "last": 1},
    ]});
    let (mut rig, ready) = board.rig(registration).await;
    assert_eq!(
        ready["resume"],
        json!([
            {"id": job["id"], "att": 1, "have": 2, "verdict": "continue"},
            {"id": unknown, "att": 1, "verdict": "drop"},
        ])
    );
    for seq in 2..=4 {
        rig.numbered(&job, seq, &format!("{seq} ")).await;
    }
    rig.numbered_done(&job, 5, 4).await;
    assert_eq!(read_all(&mut stream).await.0, "3 4 ");
    assert_eq!(rig.frame().await["type"], "ack");
}

#[tokio::test]
async fn a_session_is_resumed_by_its_own_worker_only() {
    let board = Board::start();
    let (mut rig, ready) = board.rig(ours("rig", 4)).await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.numbered(&job, 1, "1 ").await;
    read_tokens(&mut stream, 1).await;
    drop(rig);
    for session in [ready["ext"]["session"].clone(), json!("not a session")] {
        let mut registration = ours("thief", 4);
        let claim = json!({"id": job["id"], "att": 1, "last": 1});
        registration["resume"] = json!({"session": session, "jobs": [claim]});
        let (_, ready) = board.rig(registration).await;
        assert_eq!(ready["resume"][0]["verdict"], "drop");
    }
}

#[tokio::test]
async fn confirmations_come_at_intervals() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 4).await;
    let _stream = board.submit("hello").await;
    let job = rig.job().await;
    for seq in 1..=64 {
        rig.numbered(&job, seq, "a").await;
    }
    for seq in [32, 64] {
        let got = rig.frame().await;
        assert_eq!(
            got,
            json!({"type": "got", "id": job["id"], "att": 1, "seq": seq})
        );
    }
}

#[tokio::test]
async fn deltas_in_one_frame_are_relayed_one_by_one() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 4).await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.send(json!({
        "type": "tokens", "id": job["id"], "att": 1, "seq": 1,
        "d": [{"content": "a", "ids": [1]}, {"content": "b", "ids": [2]}, {"content": "c", "ids": [3]}],
    }))
    .await;
    assert_eq!(read_tokens(&mut stream, 3).await, "abc");
    rig.numbered(&job, 4, "d").await;
    rig.numbered_done(&job, 5, 4).await;
    assert_eq!(read_all(&mut stream).await.0, "d");
}

#[tokio::test]
async fn several_jobs_share_a_socket_and_a_full_worker_hands_one_back() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 8).await;
    let mut one = board.submit("one").await;
    let mut two = board.submit("two").await;
    let first = rig.job().await;
    let second = rig.job().await;
    assert!(first["deadline_ms"].as_u64().is_some(), "{first}");
    assert_eq!(first["payload"]["api_format"], "neutral");
    rig.send(json!({"type": "busy", "id": second["id"], "att": 1, "retry_ms": 60}))
        .await;
    let again = rig.job().await;
    assert_eq!((&again["id"], &again["att"]), (&second["id"], &json!(2)));
    rig.numbered(&again, 1, "2").await;
    rig.numbered(&first, 1, "1").await;
    rig.numbered_done(&first, 2, 1).await;
    rig.numbered_done(&again, 2, 1).await;
    assert_eq!(read_all(&mut one).await.0, "1");
    assert_eq!(read_all(&mut two).await.0, "2");
}

#[tokio::test]
async fn a_worker_that_drains_finishes_and_gets_nothing_more() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 8).await;
    let mut stream = board.submit("one").await;
    let job = rig.job().await;
    rig.send(json!({"type": "drain", "deadline_s": 120, "why": "update"}))
        .await;
    let overview = || board.switchboard.overview();
    eventually("no worker", async || overview().workers.is_empty()).await;
    assert!(
        board
            .try_submit(crate::support::rig::job("two"))
            .await
            .is_err()
    );
    rig.numbered(&job, 1, "1").await;
    rig.numbered_done(&job, 2, 1).await;
    assert_eq!(read_all(&mut stream).await.0, "1");
    assert_eq!(rig.frame().await["type"], "ack");
    assert!(rig.hears_nothing(MOMENT).await);
}

#[tokio::test]
async fn a_model_that_is_loading_gets_nothing_until_it_is_ready() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 8).await;
    let state = |status: &str| json!({"type": "state", "models": [{"name": "tiny", "status": status, "max": 8}]});
    rig.send(state("loading")).await;
    let slots = || board.switchboard.overview().model("tiny").unwrap().slots;
    eventually("no slots", async || slots() == 0).await;
    let _stream = board.submit("one").await;
    assert!(rig.hears_nothing(MOMENT).await);
    rig.send(state("ready")).await;
    rig.job().await;
}

#[tokio::test]
async fn a_worker_that_beats_is_waited_for_and_a_silent_one_is_not() {
    let settings = Settings {
        beat_window: Duration::from_millis(300),
        ..hasty()
    };
    let board = Board::with(settings, WorkersSettings::default());
    let mut rig = board.our_rig("rig", 2).await;
    let _stream = board.submit("one").await;
    let job = rig.job().await;
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        rig.send(json!({"type": "alive", "id": job["id"], "att": 1, "phase": "prefill"}))
            .await;
    }
    let closed = timeout(Duration::from_secs(5), rig.closed()).await;
    assert!(closed.is_ok(), "three missed beats end the socket");
}

#[tokio::test]
async fn what_extensions_add_is_not_asked_of_a_public_worker() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("one").await;
    let _waits = board.submit("two").await;
    let job = rig.job().await;
    assert!(rig.hears_nothing(MOMENT).await, "one job at a time");
    // Frames and numbers without an agreement are ignored.
    let id = &job["id"];
    let frames = [
        json!({"type": "busy", "id": id, "att": 1, "retry_ms": 60}),
        json!({"type": "drain", "deadline_s": 1}),
        json!({"type": "state", "models": [{"name": "tiny", "status": "loading"}]}),
        json!({"type": "alive", "id": id, "phase": "decode"}),
    ];
    for frame in frames {
        rig.send(frame).await;
    }
    for text in ["a", "b"] {
        rig.send(json!({
            "type": "token", "id": job["id"], "att": 9, "seq": 77, "delta": {"content": text},
        }))
        .await;
    }
    rig.done(&job).await;
    assert_eq!(read_all(&mut stream).await.0, "ab");
}

fn large() -> muster::protocol::job::Job {
    job(&"word ".repeat(300_000))
}

#[tokio::test]
async fn a_request_above_a_megabyte_never_reaches_a_public_worker() {
    let board = Board::start();
    let mut public = board.public_rig("public").await;
    let refusal = board.try_submit(large()).await.unwrap_err();
    assert_eq!(Failure::from(refusal).status(), 413);
    let mut rig = board.our_rig("ours", 2).await;
    let _stream = board.try_submit(large()).await.unwrap();
    rig.job().await;
    assert!(public.hears_nothing(MOMENT).await);
}

#[tokio::test]
async fn tokens_that_come_faster_than_they_are_read_arrive_in_order() {
    let board = Board::start();
    let mut rig = board.our_rig("rig", 2).await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    let writer = async {
        for seq in 1..=2000 {
            rig.numbered(&job, seq, &format!("{seq},")).await;
        }
        rig.numbered_done(&job, 2001, 2000).await;
    };
    let ((), (text, outcome)) = tokio::join!(writer, read_all(&mut stream));
    let wanted: String = (1..=2000).map(|seq| format!("{seq},")).collect();
    assert_eq!(text, wanted);
    delivered(&outcome);
}

#[tokio::test]
async fn a_frame_that_is_no_output_of_a_public_job_fails_it_and_not_the_socket() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    for _ in 0..2 {
        let job = rig.job().await;
        let broken: Value = json!({"type": "token", "id": job["id"], "delta": {"content": [1]}});
        rig.send(broken).await;
    }
    let failure = failed(read_all(&mut stream).await.1);
    assert_eq!(failure.kind, FailureKind::WorkerFailed);
    assert_eq!(board.switchboard.overview().workers.len(), 1);
}
