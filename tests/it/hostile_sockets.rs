//! Sockets of peers that send as much as they can, and what that costs the process: measured from outside.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use muster::coordinator::dispatch::{Outcome, Settings};
use muster::coordinator::workers::WorkersSettings;
use muster::protocol::job::JobId;
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::killed::{Service, serve};
use crate::support::rig::{Board, Closed, PATIENCE, public, read_all};

type Socket = WebSocketStream<TcpStream>;

const MIB: usize = 1 << 20;

async fn dial(service: &Service) -> Socket {
    let address = service.url.strip_prefix("http://").unwrap();
    let tcp = TcpStream::connect(address).await.unwrap();
    let url = format!("ws://{address}/v1/workers/ws");
    client_async(url, tcp).await.unwrap().0
}

async fn next(socket: &mut Socket) -> Value {
    loop {
        let message = timeout(PATIENCE, socket.next()).await.unwrap();
        if let Message::Text(text) = message.unwrap().unwrap() {
            let frame: Value = serde_json::from_str(&text).unwrap();
            if frame["type"] != "ping" {
                return frame;
            }
        }
    }
}

async fn ended(socket: &mut Socket) {
    let reading = async { while let Some(Ok(_)) = socket.next().await {} };
    timeout(PATIENCE, reading).await.unwrap();
}

/// A client that waits for `tiny`.
fn chat(service: &Service) -> Child {
    let body = json!({
        "model": "tiny", "stream": true, "max_tokens": 64,
        "messages": [{ "role": "user", "content": "hello" }],
    });
    let mut command = Command::new("curl");
    command
        .args(["-sN", "-o", "/dev/null", "-d", &body.to_string()])
        .args(["-H", &format!("apikey: {}", service.key)])
        .arg(format!("{}/v1/chat/completions", service.url));
    command.spawn().unwrap()
}

/// A line of the process's status, in bytes.
fn memory(process: &Child, line: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let found = status.lines().find_map(|it| it.strip_prefix(line)).unwrap();
    let kib: usize = found
        .trim_start_matches(':')
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_16_million_zeros_take_little_memory_and_it_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let mut sockets = Vec::new();
    let mut chats = Vec::new();
    for number in 0..4 {
        let mut socket = dial(&service).await;
        let mut registration = public(&format!("rig-{number}"));
        registration["apikey"] = json!(service.key);
        let text = registration.to_string();
        socket.send(Message::text(text)).await.unwrap();
        assert_eq!(next(&mut socket).await["type"], "ready");
        // Large frames are for workers with jobs.
        chats.push(chat(&service));
        assert_eq!(next(&mut socket).await["type"], "job");
        sockets.push(socket);
    }
    let before = memory(&service.process.0, "VmHWM");
    let head = json!({"type": "token", "id": JobId::random(), "delta": {}}).to_string();
    let zeros = "0,".repeat((31 * MIB - 1024) / 2);
    let frame = format!("{},\"logprobs\":[{zeros}0]}}", &head[..head.len() - 1]);
    drop(zeros);
    let sending = sockets.iter_mut().map(async |socket| {
        // The socket may be closed before the frames are written.
        let _ = socket.send(Message::text(frame.clone())).await;
        let _ = socket.send(Message::Ping("over".into())).await;
        let _ = timeout(PATIENCE, socket.next()).await;
    });
    futures_util::future::join_all(sending).await;
    let peak = memory(&service.process.0, "VmHWM") - before;
    assert!(peak < 300 * MIB, "{} MiB at most", peak / MIB);
    drop(sockets);
    eventually("memory to be given back", async || {
        let kept = memory(&service.process.0, "VmRSS").saturating_sub(before);
        match kept < 64 * MIB {
            true => Ok(()),
            false => Err(format!("{} MiB are kept", kept / MIB)),
        }
    })
    .await;
    for mut chat in chats {
        let _ = chat.kill();
        let _ = chat.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_take_little_memory_and_are_closed_within_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let before = memory(&service.process.0, "VmHWM");
    let began = Instant::now();
    let mut sockets = Vec::new();
    for number in 0..200 {
        let mut socket = dial(&service).await;
        let length = match number % 2 {
            0 => 40 << 10,
            _ => 32 << 20,
        };
        // A message that is begun and never finished.
        let frame = Frame::message(vec![b' '; 30 << 10], OpCode::Data(Data::Text), false);
        let _ = socket.send(Message::Frame(frame)).await;
        if length > 64 << 10 {
            let frame = Frame::message(vec![b' '; 1 << 20], OpCode::Data(Data::Continue), false);
            let _ = socket.send(Message::Frame(frame)).await;
        }
        sockets.push(socket);
    }
    futures_util::future::join_all(sockets.iter_mut().map(ended)).await;
    assert!(began.elapsed() < Duration::from_secs(15));
    let peak = memory(&service.process.0, "VmHWM") - before;
    assert!(peak < 64 * MIB, "{} MiB at most", peak / MIB);
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_begun_and_not_finished_closes_its_socket_whatever_pings_come() {
    let board = Board::with(Settings::default(), WorkersSettings::default());
    let mut rig = board.public_rig("rig").await;
    let begun = Frame::message(vec![b'{'; 100], OpCode::Data(Data::Text), false);
    rig.socket.send(Message::Frame(begun)).await.unwrap();
    let pinging = async {
        for _ in 0..60 {
            sleep(Duration::from_secs(1)).await;
            let _ = rig.socket.send(Message::Ping("x".into())).await;
            let heard = timeout(Duration::ZERO, rig.socket.next()).await;
            if let Ok(Some(Ok(Message::Close(Some(frame))))) = heard {
                return Closed::Code(frame.code.into());
            }
        }
        panic!("it was held for a minute");
    };
    assert_eq!(pinging.await, Closed::Code(1008));
}

#[tokio::test]
async fn idle_workers_have_no_large_frames() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let large = Message::text(" ".repeat(2 * MIB));
    let _ = rig.socket.send(large).await;
    let closed = rig.closed().await;
    assert!(matches!(closed, Closed::Code(1009) | Closed::Abruptly));
}

#[tokio::test]
async fn an_answer_much_longer_than_asked_is_its_workers_failure() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.send(json!({
        "type": "done", "id": job["id"], "full_text": "x".repeat(8 * MIB), "finish_reason": "stop",
        "usage": {"prompt_tokens": 9, "completion_tokens": 5},
    }))
    .await;
    let again = rig.frame().await;
    let again = match again["type"] == "job" {
        true => again,
        false => rig.job().await,
    };
    rig.send(json!({
        "type": "done", "id": again["id"], "full_text": "ok", "finish_reason": "stop",
        "usage": {"prompt_tokens": 9, "completion_tokens": 1},
    }))
    .await;
    let (text, outcome) = read_all(&mut stream).await;
    assert_eq!(text, "ok");
    assert!(matches!(outcome, Outcome::Delivered { .. }), "{outcome:?}");
}
