//! The poll API under load: whole cycles (asked, popped, brought, read), heartbeats, and many workers that come once a
//! second while much waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{interval, sleep};

use crate::Effort;
use crate::client::{Client, whole};
use crate::rig::MODEL;
use crate::service::Service;

const ASK: &str = "/api/v2/generate/text/async";
const POP: &str = "/api/v2/generate/text/pop";
const SUBMIT: &str = "/api/v2/generate/text/submit";
const STATUS: &str = "/api/v2/generate/text/status";
const HEARTBEAT: &str = "/api/v2/status/heartbeat";

/// A persistent connection with scripted requests.
struct Caller {
    stream: TcpStream,
    key: String,
    buffer: Vec<u8>,
}

impl Caller {
    async fn connect(service: &Service) -> Self {
        let stream = TcpStream::connect(service.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            key: service.key.clone(),
            buffer: vec![0; 1 << 16],
        }
    }

    async fn post(&mut self, path: &str, body: &Value) -> Value {
        self.call("POST", path, &body.to_string()).await
    }

    async fn get(&mut self, path: &str) -> Value {
        self.call("GET", path, "").await
    }

    async fn call(&mut self, method: &str, path: &str, body: &str) -> Value {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\napikey: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.key,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let mut filled = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[filled..]).await.unwrap();
            assert!(read > 0, "the service hung up");
            filled += read;
            let Some(end) = whole(&self.buffer[..filled]).filter(|end| filled >= *end) else {
                continue;
            };
            let seen = &self.buffer[..end];
            let text = String::from_utf8_lossy(seen);
            assert!(text.starts_with("HTTP/1.1 20"), "{path}: {text}");
            let body = text.split_once("\r\n\r\n").unwrap().1;
            return serde_json::from_str(body).unwrap();
        }
    }
}

fn asked() -> Value {
    json!({
        "prompt": "Say something about the weather, please.", "models": [MODEL],
        "params": {"max_length": 16, "max_context_length": 1024},
    })
}

fn comes(name: &str) -> Value {
    json!({
        "name": name, "models": [MODEL], "bridge_agent": "load:1:none", "max_length": 512,
        "max_context_length": 4096, "threads": 4,
    })
}

/// Asked, popped, brought and read: four calls, each over a kept connection.
pub async fn cycles(effort: Effort) {
    for clients in [8, 64] {
        println!("\ncycles of the poll API: {clients} clients, four calls a job");
        let echo = Service::peer("echo");
        let ceiling = echoes(&echo, clients, effort.seconds).await / 4.0;
        println!("{:>8}  {ceiling:>8.0} times four calls a second", echo.name);
        let service = Service::dev();
        let used = service.processor_seconds();
        let (times, elapsed) = rounds(&service, clients, effort.seconds).await;
        let cost = (service.processor_seconds() - used) / times.len() as f64 * 1e6;
        println!(
            "{:>8}  {:>8.0} jobs/s  p50 {:.2} ms, p99 {:.2} ms  {cost:.0} us of processor a job",
            service.name,
            times.len() as f64 / elapsed.as_secs_f64(),
            millis(&times, 0.5),
            millis(&times, 0.99),
        );
    }
}

async fn rounds(service: &Service, clients: usize, seconds: Duration) -> (Vec<Duration>, Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..clients {
        let mut caller = Caller::connect(service).await;
        let stop = Arc::clone(&stop);
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                times.push(round(&mut caller, number).await);
            }
            times
        }));
    }
    sleep(seconds).await;
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let elapsed = began.elapsed();
    times.sort();
    (times, elapsed)
}

/// A pop may return another client's job: the number of submissions equals that of requests.
async fn round(caller: &mut Caller, number: usize) -> Duration {
    let began = Instant::now();
    let id = caller.post(ASK, &asked()).await["id"].clone();
    let popped = loop {
        let popped = caller.post(POP, &comes(&format!("w{number}"))).await;
        if popped["id"].is_string() {
            break popped;
        }
    };
    let brought = json!({"id": popped["id"], "generation": " Sunny, they say.", "seed": 1});
    assert!(caller.post(SUBMIT, &brought).await["reward"].is_number());
    let path = format!("{STATUS}/{}", id.as_str().unwrap());
    let mut status = caller.get(&path).await;
    while status["done"] != true {
        status = caller.get(&path).await;
    }
    began.elapsed()
}

pub async fn heartbeat(effort: Effort) {
    println!("\nheartbeats: 64 clients");
    let echo = Service::peer("echo");
    let most = echoes(&echo, 64, effort.seconds).await;
    println!("{:>8}  {most:>8.0} requests/s", echo.name);
    let service = Service::dev();
    let (stop, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let began = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..64 {
        let mut caller = Caller::connect(&service).await;
        let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(caller.get(HEARTBEAT).await["message"], "OK");
                count.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    sleep(effort.seconds).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let each = count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    println!("{:>8}  {each:>8.0} requests/s", service.name);
}

/// A thousand workers that come once a second while a hundred thousand jobs wait.
pub async fn pops(effort: Effort) {
    let (jobs, workers) = (effort.requests * 5 / 3, effort.sockets / 5);
    println!("\npops: {workers} workers once a second, {jobs} jobs waiting");
    let service = Service::dev();
    let began = Instant::now();
    fill(&service, jobs).await;
    println!(
        "{:>8}  {jobs} jobs accepted in {:.1} s",
        service.name,
        began.elapsed().as_secs_f64()
    );
    let mut tasks = Vec::new();
    for number in 0..workers {
        let mut caller = Caller::connect(&service).await;
        let seconds = effort.seconds;
        tasks.push(tokio::spawn(async move {
            // Spread over the second, as they would be.
            sleep(Duration::from_micros((number * 1_000_000 / workers) as u64)).await;
            let (ends, mut ticks) = (Instant::now() + seconds, interval(Duration::from_secs(1)));
            let mut times = Vec::new();
            while Instant::now() < ends {
                ticks.tick().await;
                let began = Instant::now();
                let popped = caller.post(POP, &comes(&format!("w{number}"))).await;
                times.push(began.elapsed());
                assert!(popped["id"].is_string(), "{popped}");
            }
            times
        }));
    }
    // The first makes the worker known, which is on disk before it is answered.
    let (mut firsts, mut later) = (Vec::new(), Vec::new());
    for task in tasks {
        let mut times = task.await.unwrap().into_iter();
        firsts.extend(times.next());
        later.extend(times);
    }
    let mut all: Vec<Duration> = firsts.iter().chain(&later).copied().collect();
    for (times, which) in [
        (&mut all, "pops"),
        (&mut firsts, "of them new workers'"),
        (&mut later, "of them others"),
    ] {
        times.sort();
        println!(
            "{:>8}  {} {which}: p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms",
            service.name,
            times.len(),
            millis(times, 0.5),
            millis(times, 0.99),
            millis(times, 1.0),
        );
    }
}

async fn fill(service: &Service, jobs: usize) {
    const CLIENTS: usize = 32;
    /// The most outputs of one request.
    const OUTPUTS: usize = 20;
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let mut caller = Caller::connect(service).await;
        let requests = jobs.div_ceil(CLIENTS * OUTPUTS);
        tasks.push(tokio::spawn(async move {
            let mut body = asked();
            body["params"]["n"] = json!(OUTPUTS);
            for _ in 0..requests {
                caller.post(ASK, &body).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// Calls a second of the peer that does nothing.
async fn echoes(echo: &Service, clients: usize, seconds: Duration) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let mut client = Client::connect(echo, false).await;
        let stop = Arc::clone(&stop);
        tasks.push(tokio::spawn(async move {
            let mut count = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                client.ask().await;
                count += 1;
            }
            count
        }));
    }
    sleep(seconds).await;
    stop.store(true, Ordering::Relaxed);
    let mut count = 0;
    for task in tasks {
        count += task.await.unwrap();
    }
    count as f64 / began.elapsed().as_secs_f64()
}

fn millis(times: &[Duration], share: f64) -> f64 {
    let index = (times.len().saturating_sub(1) as f64 * share).round() as usize;
    times
        .get(index)
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
}
