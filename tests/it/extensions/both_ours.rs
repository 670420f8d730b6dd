//! A worker of ours and a coordinator of ours use all of them.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster::coordinator::dispatch::Outcome;
use muster::daemon::Worker;
use muster::protocol::job::UnixMillis;
use muster::runtime::Runtime;
use muster::tasks::Tasks;
use muster_testing::eventually;
use serde_json::json;

use crate::support::boss::{Office, engine, post, story, worker, worker_on};
use crate::support::rig::{Board, PATIENCE, read_all, read_tokens};
use crate::support::tap::{Speaker, Tap};

struct Pair {
    board: Board,
    worker: Worker,
    runtime: Runtime,
    tap: Tap,
}

async fn pair() -> Pair {
    let board = Board::start();
    let (tap, dial) = Tap::on(&board);
    let (runtime, info) = engine().await;
    let worker = worker_on(runtime.clone(), info, post("rig", dial), &board.tasks);
    assert!(worker.connected().await);
    Pair {
        board,
        worker,
        runtime,
        tap,
    }
}

#[tokio::test]
async fn all_are_agreed_on() {
    let Pair {
        board: _board,
        tap,
        worker: _worker,
        ..
    } = pair().await;
    let ready = tap.until(Speaker::Coordinator, "ready", |_| true).await;
    let wanted = json!([
        "multi", "resume", "cancel2", "state", "drain", "coalesce", "lease", "notices"
    ]);
    assert_eq!(ready["ext"]["use"], wanted);
    let registration = tap.until(Speaker::Worker, "", |_| true).await;
    assert_eq!(registration["ext"]["max_frame"], ready["ext"]["max_frame"]);
}

#[tokio::test]
async fn with_multi_several_jobs_share_a_socket_and_say_which_attempt_they_are() {
    let Pair {
        board,
        tap,
        worker: _worker,
        ..
    } = pair().await;
    let mut one = board.try_submit(story("One", 60)).await.unwrap();
    let mut two = board.try_submit(story("Two", 60)).await.unwrap();
    let (one, two) = tokio::join!(read_all(&mut one), read_all(&mut two));
    assert_ne!(one.0, two.0);
    let jobs = tap.heard(Speaker::Coordinator, "job");
    assert_eq!((jobs.len(), tap.heard(Speaker::Worker, "").len()), (2, 1));
    for done in tap.heard(Speaker::Worker, "done") {
        assert_eq!(done["att"], 1);
    }
}

#[tokio::test]
async fn with_cancel2_the_worker_is_told_why_and_answers() {
    let Pair {
        board,
        tap,
        worker: _worker,
        ..
    } = pair().await;
    let mut stream = board.try_submit(story("Once", 1900)).await.unwrap();
    read_tokens(&mut stream, 2).await;
    drop(stream);
    let cancel = tap.until(Speaker::Coordinator, "cancel", |_| true).await;
    assert_eq!(
        (&cancel["why"], &cancel["att"]),
        (&json!("client"), &json!(1))
    );
    let done = tap.until(Speaker::Worker, "done", |_| true).await;
    assert_eq!(done["cancelled"], true);
}

#[tokio::test]
async fn with_state_a_pause_takes_the_workers_slots_from_the_listing_and_gives_them_back() {
    let Pair {
        board, tap, worker, ..
    } = pair().await;
    let slots = || {
        board
            .switchboard
            .overview()
            .model("tiny")
            .map(|it| it.slots)
    };
    tap.until(Speaker::Worker, "state", |_| true).await;
    worker.pause(None).await.unwrap();
    tap.until(Speaker::Worker, "state", |state| {
        state["models"][0]["status"] == "draining"
    })
    .await;
    eventually("no slots", async || slots() == Some(0)).await;
    worker.resume().await.unwrap();
    eventually("eight slots", async || slots() == Some(8)).await;
}

#[tokio::test]
async fn with_resume_frames_are_numbered_without_gap_and_carry_their_tokens() {
    let Pair {
        board,
        tap,
        worker: _worker,
        ..
    } = pair().await;
    let mut stream = board.try_submit(story("Once", 100)).await.unwrap();
    read_all(&mut stream).await;
    let mut numbers = BTreeSet::new();
    let mut tokens = 0;
    for kind in ["started", "token", "tokens", "done"] {
        for frame in tap.heard(Speaker::Worker, kind) {
            let first = frame["seq"].as_u64().unwrap();
            let deltas = frame["d"].as_array().map_or(1, Vec::len) as u64;
            numbers.extend(first..first + deltas);
            let ids = frame["d"].as_array().cloned().unwrap_or_default();
            let ids = ids
                .iter()
                .chain([&frame])
                .filter_map(|it| it["ids"].as_array());
            tokens += ids.map(Vec::len).sum::<usize>();
        }
    }
    let last = *numbers.last().unwrap();
    assert_eq!(numbers, (1..=last).collect());
    assert_eq!(tokens, 100);
    assert!(!tap.heard(Speaker::Coordinator, "got").is_empty());
}

#[tokio::test]
async fn with_drain_a_worker_that_leaves_says_so_and_then_closes() {
    let Pair {
        board, tap, worker, ..
    } = pair().await;
    assert!(worker.drain(Duration::from_secs(5)).await);
    assert_eq!(tap.heard(Speaker::Worker, "drain")[0]["deadline_s"], 5);
    let overview = || board.switchboard.overview();
    eventually("no worker", async || overview().workers.is_empty()).await;
}

#[tokio::test]
async fn with_drain_a_coordinator_that_stops_says_so_and_is_dialled_again_at_once() {
    let board = Board::start();
    let (mut office, dial) = Office::open();
    let tasks = Tasks::default();
    let worker = worker("rig", dial, &tasks).await;
    let (stream, workers) = (office.knock(PATIENCE).await, board.workers.clone());
    board
        .tasks
        .start(async move { workers.serve(stream.unwrap(), Vec::new()).await });
    assert!(worker.connected().await);
    assert!(board.tasks.stop(Duration::from_secs(5)).await);
    // Without a word it would look like a replacement, which is waited out for ten seconds.
    let again = office.knock(Duration::from_secs(6)).await;
    assert!(again.is_some());
}

#[tokio::test]
async fn with_coalesce_deltas_travel_together() {
    let Pair {
        board,
        tap,
        worker: _worker,
        ..
    } = pair().await;
    let mut stream = board.try_submit(story("Once", 300)).await.unwrap();
    read_all(&mut stream).await;
    let together = tap.heard(Speaker::Worker, "tokens");
    let deltas = together
        .iter()
        .map(|frame| frame["d"].as_array().unwrap().len());
    assert!(deltas.clone().all(|count| count > 1), "{together:?}");
    assert!(
        deltas.sum::<usize>() > 10,
        "300 tokens come faster than frames leave"
    );
}

#[tokio::test]
async fn with_lease_a_job_that_has_had_its_time_ends_on_both_sides() {
    let Pair {
        board,
        tap,
        runtime,
        worker: _worker,
    } = pair().await;
    let mut job = story("Once", 1900);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    job.deadline = UnixMillis(i64::try_from(now.as_millis()).unwrap() + 2000);
    let mut stream = board.try_submit(job).await.unwrap();
    // However fast the engine is, it does not get to the end.
    eventually("a running job", async || runtime.status().running == 1).await;
    runtime.pause().await.unwrap();
    assert_eq!(read_all(&mut stream).await.1, Outcome::Expired);
    let job = tap.until(Speaker::Coordinator, "job", |_| true).await;
    assert!(
        (1..=2000).contains(&job["deadline_ms"].as_u64().unwrap()),
        "{job}"
    );
    runtime.resume().await.unwrap();
    eventually("a free engine", async || runtime.status().running == 0).await;
}
