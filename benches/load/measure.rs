//! The measurements. Each prints one line a server, the peers first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::Effort;
use crate::client::Client;
use crate::rig::{self, Answer, MODEL};
use crate::service::Service;

/// What many clients saw together.
struct Seen {
    requests: usize,
    events: usize,
    elapsed: Duration,
    first: Vec<Duration>,
    processor_seconds: f64,
}

impl Seen {
    fn per_second(&self, what: usize) -> f64 {
        what as f64 / self.elapsed.as_secs_f64()
    }

    fn median(&self) -> f64 {
        self.at(0.5)
    }

    fn at(&self, share: f64) -> f64 {
        let last = self.first.len().saturating_sub(1);
        let index = (last as f64 * share).round() as usize;
        self.first
            .get(index)
            .map_or(f64::NAN, |first| first.as_secs_f64() * 1000.0)
    }
}

/// So many requests a second, each answered with one token and settled.
pub async fn requests(effort: Effort) {
    println!("\nrequests: 64 clients, one token each, not streaming");
    let echo = Service::peer("echo");
    line(&echo, &load(&echo, 64, false, effort.seconds).await);
    for mut service in [Service::peer("relay"), Service::coordinator()] {
        let rig = worker(&service, Answer::of(1, 1)).await;
        let seen = load(&service, 64, false, effort.seconds).await;
        line(&service, &seen);
        check_settled(&mut service, seen.requests).await;
        rig.abort();
    }
}

/// The same with few and many workers online: the cost must not depend on them.
pub async fn idle(effort: Effort) {
    println!("\nidle workers: memory of a socket, and the cost of a request beside them");
    let service = Service::coordinator();
    let rig = worker(&service, Answer::of(1, 1)).await;
    let alone = load(&service, 16, false, effort.seconds).await;
    let before = service.memory();
    let mut sockets = Vec::with_capacity(effort.sockets);
    let began = Instant::now();
    for number in 0..effort.sockets {
        sockets.push(
            rig::register(
                &service,
                &format!("idle-{number}"),
                &format!("idle-model-{}", number % 50),
            )
            .await,
        );
    }
    let joined = began.elapsed();
    let each = service.memory().saturating_sub(before) / effort.sockets as u64;
    println!(
        "{:>8}  {} sockets in {:.1} s, {:.1} KB each",
        service.name,
        effort.sockets,
        joined.as_secs_f64(),
        each as f64 / 1000.0
    );
    let beside = load(&service, 16, false, effort.seconds).await;
    let cost = |seen: &Seen| seen.processor_seconds / seen.requests as f64 * 1e6;
    println!(
        "{:>8}  {:.0} us of processor a request alone, {:.0} us beside them",
        service.name,
        cost(&alone),
        cost(&beside)
    );
    rig.abort();
}

/// How long until a stream's first token.
pub async fn first_token(effort: Effort) {
    for streams in [1, 128] {
        println!("\nfirst token: {streams} streams at once, one token each");
        for service in [Service::peer("relay"), Service::coordinator()] {
            let rig = worker(&service, Answer::of(1, 1)).await;
            line(
                &service,
                &load(&service, streams, true, effort.seconds).await,
            );
            rig.abort();
        }
    }
}

/// Tokens a second over 128 streams, alone and 16 in a frame.
pub async fn relay(effort: Effort) {
    for coalesced in [1, 16] {
        println!("\nrelay: 128 streams of 1000 tokens, {coalesced} in a frame");
        for service in [Service::peer("relay"), Service::coordinator()] {
            if service.name == "relay" && coalesced > 1 {
                // The relay would have to unpack them.
                continue;
            }
            let rig = worker(&service, Answer::of(1000, coalesced)).await;
            line(&service, &load(&service, 128, true, effort.seconds).await);
            rig.abort();
        }
    }
}

/// Whether memory grows with requests that are over.
pub async fn memory(effort: Effort) {
    println!("\nmemory: resident after so many requests");
    let service = Service::coordinator();
    let rig = worker(&service, Answer::of(4, 1)).await;
    let clients = 32;
    for round in 1..=5 {
        let each = effort.requests / clients;
        let tasks: Vec<_> = (0..clients).map(|_| asking(&service, each)).collect();
        let mut done = Vec::new();
        for task in tasks {
            done.push(task.await);
        }
        let running: Vec<JoinHandle<()>> = done;
        for task in running {
            task.await.unwrap();
        }
        println!(
            "{:>8}  {} requests: {:.1} MB",
            service.name,
            round * effort.requests,
            service.memory() as f64 / 1e6
        );
    }
    rig.abort();
}

async fn asking(service: &Service, times: usize) -> JoinHandle<()> {
    let mut client = Client::connect(service, false).await;
    tokio::spawn(async move {
        for _ in 0..times {
            client.ask().await;
        }
    })
}

async fn worker(service: &Service, answer: Arc<Answer>) -> JoinHandle<()> {
    let socket = rig::register(service, "rig", MODEL).await;
    tokio::spawn(rig::serve(socket, answer))
}

/// Clients that ask again as soon as they are answered.
async fn load(service: &Service, clients: usize, streaming: bool, seconds: Duration) -> Seen {
    let stop = Arc::new(AtomicBool::new(false));
    let events = Arc::new(AtomicUsize::new(0));
    let used = service.processor_seconds();
    let began = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let mut client = Client::connect(service, streaming).await;
        let (stop, events) = (Arc::clone(&stop), Arc::clone(&events));
        tasks.push(tokio::spawn(async move {
            let mut first = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let reply = client.ask().await;
                events.fetch_add(reply.events, Ordering::Relaxed);
                first.push(reply.first);
            }
            first
        }));
    }
    tokio::time::sleep(seconds).await;
    stop.store(true, Ordering::Relaxed);
    let mut first = Vec::new();
    for task in tasks {
        first.extend(task.await.unwrap());
    }
    let elapsed = began.elapsed();
    first.sort();
    Seen {
        requests: first.len(),
        events: events.load(Ordering::Relaxed),
        elapsed,
        first,
        processor_seconds: service.processor_seconds() - used,
    }
}

fn line(service: &Service, seen: &Seen) {
    println!(
        "{:>8}  {:>8.0} requests/s  {:>9.0} tokens/s  first token p50 {:.2} ms, p99 {:.2} ms  {:.0} us of processor a request",
        service.name,
        seen.per_second(seen.requests),
        seen.per_second(seen.events),
        seen.median(),
        seen.at(0.99),
        seen.processor_seconds / seen.requests.max(1) as f64 * 1e6,
    );
}

/// Every answered job has its row: by the service's own count of settlements on disk.
async fn check_settled(service: &mut Service, wanted: usize) {
    if service.name != "muster" {
        return;
    }
    let page = metrics(service).await;
    let settled = page
        .lines()
        .find_map(|line| line.strip_prefix("muster_settlement_seconds_count "))
        .map_or(0.0, |number| number.trim().parse().unwrap());
    assert!(
        settled as usize >= wanted,
        "{wanted} requests were answered and {settled} are settled"
    );
    println!("{:>8}  {settled} jobs settled in the store", service.name);
}

async fn metrics(service: &Service) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(service.address)
        .await
        .unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page
}
