//! `kill -9`: every answered write is on disk. A second process of this test program settles jobs, prints the answered
//! ones, and is killed in the middle.

use std::io::Write;
use std::process::{Command, Stdio};

use futures_util::future::join_all;

use super::on_both_engines;
use super::scratch::{SOUND, Scratch, settlement};
use crate::storage::{Location, Store};
use muster_process::tasks::Tasks;
use muster_protocol::job::{JobId, Kudos};
use muster_testing::{Lines, ended};

on_both_engines! { a_killed_process_loses_nothing_that_was_answered }

const WHERE: &str = "MUSTER_TEST_SETTLES_INTO";

async fn a_killed_process_loses_nothing_that_was_answered(scratch: Scratch) {
    let place = match &scratch.location {
        Location::Sqlite(path) => path.to_str().unwrap().to_owned(),
        Location::Postgres(url) => url.to_string(),
    };
    let name = concat!(module_path!(), "::settles_until_it_is_killed");
    let (_, name) = name.split_once("::").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(WHERE, place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = Lines::of(child.stdout.take().unwrap());
    let mut lines = std::iter::from_fn(|| Some(stdout.next_line()).filter(|line| !line.is_empty()));
    let mut answered: Vec<JobId> = lines.by_ref().filter_map(answered_job).take(700).collect();
    child.kill().unwrap();
    ended(&mut child);
    answered.extend(lines.filter_map(answered_job));
    assert!(
        answered.len() >= 700,
        "only {} jobs were settled",
        answered.len()
    );

    let store = scratch.open().await;
    for job in answered {
        assert_eq!(
            store.reward(job).await,
            Ok(Some(Kudos(2000))),
            "{job} is lost"
        );
    }
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

fn answered_job(line: String) -> Option<JobId> {
    line.strip_prefix("answered ")?
        .trim_end()
        .parse()
        .ok()
        .map(JobId)
}

/// Not a test itself, but the process that is killed.
#[tokio::test]
async fn settles_until_it_is_killed() {
    let Ok(place) = std::env::var(WHERE) else {
        return;
    };
    let location = Location::parse(&place).unwrap();
    let store = Store::open(&location, &Tasks::default()).await.unwrap();
    loop {
        let jobs: Vec<JobId> = std::iter::repeat_with(JobId::random).take(50).collect();
        join_all(jobs.iter().map(async |job| {
            store.settle(settlement(*job, 2)).await.unwrap();
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "answered {job}").unwrap();
        }))
        .await;
    }
}
