//! Settlement in the store: jobs per second, waiting time of a job, and processor time.
//!
//! `cargo bench --bench settle` measures SQLite, and PostgreSQL when `MUSTER_TEST_POSTGRES` names a server. So many
//! jobs are outstanding at once; the processor time is this process's, the server's own not included.
//! `-- --rows 1000000` fills the store with so many settled jobs first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_coordinator::dispatch::Timing;
use muster_coordinator::kudos::{Entry, FEE, HOUSE, Reason, Settlement, State};
use muster_coordinator::storage::{Location, Store, lead};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, JobId, Kind, Kudos, RequestId, UnixMillis, Usage, WorkerId};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: muster_process::memory::Allocator = muster_process::memory::ALLOCATOR;

const OUTSTANDING: [usize; 4] = [1, 8, 64, 256];

fn main() {
    let once = std::env::args().any(|argument| argument == "--test");
    let length = match once {
        true => Duration::from_millis(50),
        false => Duration::from_secs(3),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a folder can be made");
        measure("sqlite", Location::in_folder(folder.path()), length).await;
        match std::env::var("MUSTER_TEST_POSTGRES") {
            Ok(server) => {
                let location = Location::parse(&server).expect("MUSTER_TEST_POSTGRES is a URL");
                measure("postgres", location, length).await;
            }
            Err(_) => print("postgres: MUSTER_TEST_POSTGRES names no server"),
        }
    });
}

async fn measure(engine: &str, location: Location, length: Duration) {
    let tasks = Tasks::default();
    let leadership = lead(&location, |_| {}, &tasks);
    let leadership = leadership.await.expect("the database answers");
    let store = Store::open_as(leadership, &location, &tasks)
        .await
        .expect("the store opens");
    fill(&store, rows()).await;
    for outstanding in OUTSTANDING {
        let (began, processor) = (Instant::now(), processor_time());
        let mut waits = load(&store, outstanding, length).await;
        let (wall, processor) = (began.elapsed(), processor_time() - processor);
        waits.sort_unstable();
        let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
        print(&format!(
            "{engine:8}  {outstanding:3} outstanding  {:7.0} settled/s  p50 {:6.2} ms  p99 {:6.2} ms  {:5.0} µs of processor each",
            waits.len() as f64 / wall.as_secs_f64(),
            at(0.5).as_secs_f64() * 1e3,
            at(0.99).as_secs_f64() * 1e3,
            processor.as_secs_f64() * 1e6 / waits.len() as f64,
        ));
    }
    drop(store);
    tasks.stop(Duration::from_secs(5)).await;
}

/// Settles as fast as so many clients can that each wait for their answer; how long each waited.
async fn load(store: &Store, clients: usize, length: Duration) -> Vec<Duration> {
    let until = Instant::now() + length;
    let clients: Vec<_> = (0..clients)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut waits = Vec::new();
                while Instant::now() < until {
                    let began = Instant::now();
                    store.settle(settlement()).await.expect("the store settles");
                    waits.push(began.elapsed());
                }
                waits
            })
        })
        .collect();
    let mut all = Vec::new();
    for client in clients {
        all.extend(client.await.expect("no client panics"));
    }
    all
}

async fn fill(store: &Store, rows: usize) {
    let began = Instant::now();
    let each = rows / 256;
    let clients: Vec<_> = (0..256)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    store.settle(settlement()).await.expect("the store settles");
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("no client panics");
    }
    if rows > 0 {
        print(&format!(
            "{} settled jobs in {:.0?}",
            each * 256,
            began.elapsed()
        ));
    }
}

fn rows() -> usize {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--rows");
    let rows = arguments.nth(1).and_then(|rows| rows.parse().ok());
    rows.unwrap_or(0)
}

fn settlement() -> Settlement {
    let entry = |account, worker, reason, amount| Entry {
        account: AccountId(account),
        worker,
        reason,
        amount: Kudos(amount),
    };
    let worker = WorkerId(7);
    Settlement {
        job: JobId::random(),
        request: RequestId::random(),
        account: AccountId(1),
        shared_key: None,
        worker: Some(worker),
        kind: Kind::Text,
        model: Arc::from("llama-3.2-1b-instruct"),
        state: State::Delivered,
        reason: "stop",
        attempts: 1,
        usage: Usage::default(),
        size: 128,
        paid_tokens: 100,
        reward: Kudos(970),
        charge: Kudos(970 + FEE.0),
        cost: None,
        timing: Timing {
            accepted_at: UnixMillis(1_800_000_000_000),
            queued: Some(Duration::from_millis(1)),
            first_output: Some(Duration::from_millis(20)),
            total: Duration::from_millis(900),
        },
        entries: vec![
            entry(1, None, Reason::Charge, -970 - FEE.0),
            entry(2, Some(worker), Reason::Reward, 970),
            entry(HOUSE.0, None, Reason::Fee, FEE.0),
        ],
        result: None,
    }
}

/// Of this process, user and system.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<u64> = after_name
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let ticks = fields.get(11).unwrap_or(&0) + fields.get(12).unwrap_or(&0);
    Duration::from_millis(ticks * 10)
}

#[expect(clippy::print_stdout, reason = "a bench prints what it measured")]
fn print(line: &str) {
    println!("{line}");
}
