//! A coordinator that is killed again and again, with images and texts in flight.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use muster::coordinator::storage::{Location, Store};
use muster::protocol::job::Kudos;
use muster::tasks::Tasks;
use serde_json::{Value, json};

use crate::killed::{Service, legacy, serve};

const KILLS: usize = 10;
const KINDS: [&str; 2] = ["generate", "generate/text"];
/// Jobs of each request.
const JOBS: u64 = 2;

/// A job that a worker has, until its reward is known.
struct Job {
    kind: &'static str,
    id: Value,
}

fn accept(service: &Service, kind: &str) -> Option<String> {
    let asked = json!({"prompt": "Once", "models": ["any"], "r2": false, "params": {"n": JOBS, "seed": "7"}});
    let accepted = legacy(
        service,
        &service.key,
        "POST",
        &format!("{kind}/async"),
        &asked,
    );
    accepted["id"].as_str().map(str::to_owned)
}

fn pop(service: &Service, kind: &'static str) -> Option<Job> {
    let worker = json!({
        "name": format!("worker of {kind}"), "models": ["any"], "bridge_agent": "test:1:url",
        "max_pixels": 1_048_576, "allow_img2img": true,
    });
    let popped = legacy(
        service,
        &service.key,
        "POST",
        &format!("{kind}/pop"),
        &worker,
    );
    let id = popped["id"].clone();
    id.is_string().then_some(Job { kind, id })
}

fn submission(job: &Job, image: &str) -> Value {
    let made = if job.kind == "generate" {
        image
    } else {
        "a text"
    };
    json!({"id": job.id, "generation": made, "seed": 7})
}

/// Whether the job is settled: paid now, or by an earlier process whose answer was lost.
fn submit(service: &Service, job: &Job, image: &str) -> bool {
    let path = format!("{}/submit", job.kind);
    let told = legacy(
        service,
        &service.key,
        "POST",
        &path,
        &submission(job, image),
    );
    told["reward"].is_number() || told["rc"] == "DuplicateGen"
}

/// A submission whose answer is not waited for.
fn submitting(service: &Service, job: &Job, image: &str, folder: &Path) -> Child {
    let body = folder.join("body");
    std::fs::write(&body, submission(job, image).to_string()).unwrap();
    let mut curl = Command::new("curl");
    curl.args([
        "-s",
        "-X",
        "POST",
        "-H",
        &format!("apikey: {}", service.key),
    ]);
    curl.arg("-d").arg(format!("@{}", body.display()));
    curl.arg(format!("{}/api/v2/{}/submit", service.url, job.kind));
    curl.stdout(Stdio::piped()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_with_images_and_texts_in_flight_lose_nothing_and_pay_each_job_once() {
    let folder = tempfile::tempdir().unwrap();
    let image = super::legacy::images::drawn();
    let first = serve(folder.path());
    let key = first.key.clone();
    drop(first);
    let start = || Service {
        key: key.clone(),
        ..serve(folder.path())
    };
    let (mut requests, mut out) = (Vec::new(), Vec::<Job>::new());
    for kill in 0..KILLS {
        let service = start();
        // Workers bring the jobs that an earlier process gave them, every other time before they ask for more.
        if kill % 2 == 0 {
            out.retain(|job| !submit(&service, job, &image));
        }
        for kind in KINDS {
            requests.extend(accept(&service, kind).map(|id| (kind, id)));
            out.extend(pop(&service, kind));
        }
        let Some(flying) = out.last() else {
            panic!("workers are given jobs");
        };
        let flying = submitting(&service, flying, &image, folder.path());
        drop(service);
        flying.wait_with_output().unwrap();
    }
    let service = start();
    out.retain(|job| !submit(&service, job, &image));
    while let Some(job) = KINDS.into_iter().find_map(|kind| pop(&service, kind)) {
        assert!(submit(&service, &job, &image), "{} {}", job.kind, job.id);
    }
    assert_eq!(out.len(), 0);
    assert_eq!(requests.len(), KILLS * KINDS.len());
    for (kind, id) in &requests {
        let found = legacy(
            &service,
            &key,
            "GET",
            &format!("{kind}/status/{id}"),
            &json!({}),
        );
        assert_eq!(
            (&found["done"], &found["finished"]),
            (&json!(true), &json!(JOBS)),
            "{found}"
        );
    }
    drop(service);
    let location = Location::in_folder(&folder.path().join("coordinator"));
    let store = Store::open(&location, &Tasks::default()).await.unwrap();
    let sums = store.ledger_sums().await.unwrap();
    assert_eq!((sums.entries, sums.balances), (Kudos(0), Kudos(0)));
    assert_eq!((sums.wrong_jobs, sums.wrong_balances), (0, 0));
    assert!(store.holding().await.unwrap().is_empty());
}
