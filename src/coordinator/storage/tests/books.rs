//! P2 for any sequence of settlements: the ledger sums to zero, and each job is paid at most once.

use std::collections::HashMap;

use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

use super::on_both_engines;
use super::scratch::{SOUND, Scratch, settlement};
use crate::kudos::{Settlement, State};
use crate::storage::Store;
use muster_protocol::job::{AccountId, JobId, Kudos};

on_both_engines! { any_sequence_of_settlements_sums_to_zero_and_pays_each_job_once }

const SEQUENCES: usize = 24;

/// A settlement: the job's index, its price, and whether the job failed.
#[derive(Debug, Clone)]
struct Call {
    job: usize,
    kudos: i64,
    failed: bool,
}

fn calls() -> impl Strategy<Value = Vec<Vec<Call>>> {
    let call = (0_usize..12, 1_i64..1000, proptest::bool::weighted(0.2));
    let call = call.prop_map(|(job, kudos, failed)| Call { job, kudos, failed });
    // Batches of concurrent calls.
    vec(vec(call, 0..20), 0..6)
}

async fn any_sequence_of_settlements_sums_to_zero_and_pays_each_job_once(scratch: Scratch) {
    let store = scratch.open().await;
    let mut runner = TestRunner::new(Config::default());
    let mut paid = 0;
    for _ in 0..SEQUENCES {
        let waves = calls().new_tree(&mut runner).unwrap().current();
        paid += play(&store, &waves).await;
        assert_eq!(store.ledger_sums().await.unwrap(), SOUND, "{waves:?}");
        assert_eq!(
            store.balance(AccountId(2)).await,
            Ok(Kudos(paid)),
            "{waves:?}"
        );
    }
}

/// Total reward of all jobs of the sequence.
async fn play(store: &Store, waves: &[Vec<Call>]) -> i64 {
    let jobs: Vec<JobId> = std::iter::repeat_with(JobId::random).take(12).collect();
    let mut told: HashMap<usize, Kudos> = HashMap::new();
    for wave in waves {
        let answers = wave
            .iter()
            .map(|call| store.settle(of(call, jobs[call.job])));
        for (call, answer) in wave.iter().zip(join_all(answers).await) {
            let reward = answer.unwrap();
            assert_eq!(*told.entry(call.job).or_insert(reward), reward, "{waves:?}");
        }
    }
    told.values().map(|reward| reward.0).sum()
}

fn of(call: &Call, job: JobId) -> Settlement {
    let paid = settlement(job, call.kudos);
    match call.failed {
        false => paid,
        true => Settlement {
            state: State::Failed,
            reason: "worker_lost",
            reward: Kudos(0),
            charge: Kudos(0),
            entries: Vec::new(),
            ..paid
        },
    }
}
