//! A coordinator of the public network answers no offer to negotiate: the worker keeps to the public protocol.

use std::time::Duration;

use muster::daemon::{Way, Worker};
use muster::tasks::Tasks;
use serde_json::{Value, json};

use crate::support::boss::{Boss, Office, engine, post_by, public_job, worker, worker_on};
use crate::support::rig::PATIENCE;

const ID: &str = "71a3c9f0-58b1-4a2f-9d0e-3f6f1b0c2a11";

struct Hired {
    office: Office,
    boss: Boss,
    worker: Worker,
    _tasks: Tasks,
}

async fn hired() -> Hired {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let worker = worker("rig", dial, &tasks).await;
    let (boss, registration) = office.hire().await;
    assert!(registration["ext"]["want"].is_array(), "{registration}");
    assert!(worker.connected().await);
    Hired {
        office,
        boss,
        worker,
        _tasks: tasks,
    }
}

impl Hired {
    /// Every frame of one job.
    async fn frames(&mut self) -> Vec<Value> {
        self.boss
            .send(public_job(ID, json!({"max_tokens": 200})))
            .await;
        let mut frames = Vec::new();
        loop {
            let frame = self.boss.next().await;
            let is_last = frame["type"] == "done";
            frames.push(frame);
            if is_last {
                return frames;
            }
        }
    }
}

fn is_none_of(frames: &[Value], keys: &[&str]) {
    for frame in frames {
        let found = keys.iter().find(|key| frame.get(**key).is_some());
        assert_eq!(found, None, "{frame}");
    }
}

#[tokio::test]
async fn without_multi_frames_name_the_job_and_no_attempt() {
    let frames = hired().await.frames().await;
    is_none_of(&frames, &["att"]);
    assert!(frames.iter().all(|frame| frame["id"] == ID));
}

#[tokio::test]
async fn without_cancel2_a_cancel_is_honoured_all_the_same() {
    let mut hired = hired().await;
    hired
        .boss
        .send(public_job(ID, json!({"max_tokens": 1900})))
        .await;
    hired.boss.next().await;
    hired.boss.send(json!({"type": "cancel", "id": ID})).await;
    assert_eq!(hired.boss.read_job().await.1["cancelled"], true);
}

#[tokio::test]
async fn without_state_nothing_is_reported() {
    let mut hired = hired().await;
    // More than a report's pause, with a load that changes.
    for _ in 0..3 {
        let frames = hired.frames().await;
        assert!(frames.iter().all(|frame| frame["type"] != "state"));
        hired
            .boss
            .send(json!({"type": "ack", "id": ID, "den": 0}))
            .await;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    hired.boss.send(json!({"type": "ping"})).await;
    assert_eq!(hired.boss.next().await["type"], "pong");
}

#[tokio::test]
async fn without_resume_nothing_is_numbered_or_claimed_and_a_lost_job_is_given_up() {
    let mut hired = hired().await;
    is_none_of(&hired.frames().await, &["seq", "ids"]);
    hired
        .boss
        .send(json!({"type": "ack", "id": ID, "den": 0}))
        .await;
    hired
        .boss
        .send(public_job(ID, json!({"max_tokens": 1900})))
        .await;
    hired.boss.next().await;
    drop(hired.boss);
    let (mut boss, registration) = hired.office.hire().await;
    assert!(registration.get("resume").is_none(), "{registration}");
    boss.send(json!({"type": "ping"})).await;
    assert_eq!(
        boss.next().await["type"],
        "pong",
        "the job is not gone on with"
    );
}

#[tokio::test]
async fn without_drain_a_worker_leaves_by_closing_when_its_job_is_done() {
    let mut hired = hired().await;
    hired.boss.send(public_job(ID, json!({}))).await;
    hired.boss.next().await;
    let leaving = tokio::spawn(hired.worker.drain(PATIENCE));
    let (_, done) = hired.boss.read_job().await;
    assert_eq!(done["finish_reason"], "length");
    hired
        .boss
        .send(json!({"type": "ack", "id": ID, "den": 0}))
        .await;
    assert_eq!(
        hired.boss.next_if_any().await,
        None,
        "no frame announces it"
    );
    assert!(leaving.await.unwrap());
}

#[tokio::test]
async fn a_worker_that_leaves_waits_for_the_jobs_of_all_its_sockets() {
    let tasks = Tasks::default();
    let (mut office, dial) = Office::open();
    let (runtime, info) = engine().await;
    let wanted = post_by("rig", Way::Socket { dial, sockets: 2 });
    let worker = worker_on(runtime, info, wanted, &tasks);
    let (mut first, _) = office.hire().await;
    let (mut second, _) = office.hire().await;
    second
        .send(public_job(ID, json!({"max_tokens": 600})))
        .await;
    second.next().await;
    let leaving = tokio::spawn(worker.drain(PATIENCE));
    assert_eq!(first.next_if_any().await, None, "it has nothing to do");
    assert!(!leaving.is_finished());
    let (_, done) = second.read_job().await;
    assert_eq!(done["usage"]["completion_tokens"], 600);
    second
        .send(json!({"type": "ack", "id": ID, "den": 0}))
        .await;
    assert!(leaving.await.unwrap());
}

#[tokio::test]
async fn without_coalesce_every_delta_has_a_frame() {
    let frames = hired().await.frames().await;
    is_none_of(&frames, &["d"]);
    let kinds = frames.iter().map(|frame| frame["type"].as_str().unwrap());
    assert!(kinds.clone().all(|kind| kind == "token" || kind == "done"));
    assert!(kinds.count() > 100);
}

#[tokio::test]
async fn without_lease_there_are_no_beats_and_a_deadline_means_nothing() {
    let mut hired = hired().await;
    let mut job = public_job(ID, json!({"max_tokens": 200}));
    job["deadline_ms"] = json!(1);
    hired.boss.send(job).await;
    let (_, done) = hired.boss.read_job().await;
    assert_eq!(done["finish_reason"], "length");
}
