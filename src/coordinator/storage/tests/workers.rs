//! Workers: names, owners and ids.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::on_both_engines;
use super::scratch::Scratch;
use crate::storage::{RigNews, Said, Tally, WorkerError, WorkerRow};
use crate::values::Roles;
use muster_protocol::job::{AccountId, UnixMillis, WorkerId};

on_both_engines! {
    a_worker_is_the_same_across_connections,
    a_name_belongs_to_whoever_used_it_first,
    the_number_of_a_worker_that_is_gone_is_no_others,
    a_crew_is_counted_by_owner_and_address,
    an_account_has_no_more_workers_than_it_may_however_many_come_at_once,
    those_that_come_together_are_each_themselves,
    workers_of_an_account_are_found_some_at_a_time_by_what_they_make,
}

const NOW: UnixMillis = UnixMillis(1);

async fn a_worker_is_the_same_across_connections(scratch: Scratch) {
    let store = scratch.open().await;
    let first = store.worker("rig", AccountId(1), NOW).await.unwrap();
    let again = store.worker("rig", AccountId(1), NOW).await.unwrap();
    assert_eq!(first, again);
    let other = store.worker("rig#2", AccountId(1), NOW).await.unwrap();
    assert!(other.id != first.id && other.public_id != first.public_id);
    assert!(!first.trusted);
    assert_eq!(store.trust_worker("rig", true).await, Ok(true));
    assert!(
        store
            .worker("rig", AccountId(1), NOW)
            .await
            .unwrap()
            .trusted
    );
    assert_eq!(store.trust_worker("nobody", true).await, Ok(false));
}

async fn a_name_belongs_to_whoever_used_it_first(scratch: Scratch) {
    let store = scratch.open().await;
    store.worker("rig", AccountId(1), NOW).await.unwrap();
    let taken = store.worker("rig", AccountId(2), NOW).await;
    assert_eq!(taken, Err(WorkerError::NameTaken));
    // Two concurrent registrations: one of them wins.
    let (one, two) = tokio::join!(
        store.worker("new", AccountId(1), NOW),
        store.worker("new", AccountId(2), NOW)
    );
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    for name in ["", "a\nb", "a\0b", &"x".repeat(500)] {
        let refused = store.worker(name, AccountId(1), NOW).await;
        assert_eq!(refused, Err(WorkerError::BadName));
    }
}

async fn an_account_has_no_more_workers_than_it_may_however_many_come_at_once(scratch: Scratch) {
    let store = scratch.open().await;
    store.worker("other", AccountId(2), NOW).await.unwrap();
    let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let coming = names
        .iter()
        .map(|name| store.worker_among(5, name, AccountId(1), NOW));
    let came = join_all(coming).await;
    assert_eq!(came.iter().filter(|worker| worker.is_ok()).count(), 5);
    let refused = came.into_iter().filter_map(Result::err);
    assert!(refused.into_iter().all(|why| why == WorkerError::TooMany));
    let known = store.worker_among(1, "0", AccountId(1), NOW).await;
    let known = known.unwrap();
    assert_eq!((&*known.row.name, known.is_new), ("0", false));
}

async fn those_that_come_together_are_each_themselves(scratch: Scratch) {
    let store = scratch.open().await;
    let owner = store.create_account("alice", Roles::USER, NOW).await;
    let owner = owner.unwrap();
    let known = store.worker("7", owner, NOW).await.unwrap();
    // Every name twice, and more names than one batch holds.
    let names: Vec<String> = (0..600).map(|number| (number / 2).to_string()).collect();
    let join = || join_all(names.iter().map(|name| store.worker(name, owner, NOW)));
    let came: Vec<WorkerRow> = join().await.into_iter().map(Result::unwrap).collect();
    assert!(came.iter().zip(&names).all(|(row, name)| row.name == *name));
    assert!(came.chunks(2).all(|two| two[0] == two[1]));
    assert!(came.contains(&known));
    let ids: BTreeSet<WorkerId> = came.iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), 300);
    let again: Vec<WorkerRow> = join().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(again, came);
    for row in came {
        let rig = store.rig_of_row(row.id).await.unwrap().unwrap();
        assert_eq!(rig.worker(), row);
    }
}

async fn the_number_of_a_worker_that_is_gone_is_no_others(scratch: Scratch) {
    let store = scratch.open().await;
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let row = store.worker("rig", AccountId(1), NOW).await.unwrap();
        store.delete_rig(row.id).await.unwrap();
        numbers.push(row.id);
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

async fn a_crew_is_counted_by_owner_and_address(scratch: Scratch) {
    let store = scratch.open().await;
    let said = |address: &str| Said {
        address: address.to_owned(),
        ..Said::default()
    };
    for (name, owner, address) in [("one", 1, "home"), ("two", 1, "away"), ("three", 2, "home")] {
        let row = store.worker(name, AccountId(owner), NOW).await.unwrap();
        let news = RigNews {
            worker: row.id,
            seen_at: NOW,
            said: Some(("text".to_owned(), said(address))),
            done: Tally::default(),
            speed: 0,
            team: None,
        };
        store.save_rigs(vec![news]).await.unwrap();
    }
    let crew = store.crew(AccountId(1), "home").await.unwrap();
    assert_eq!((crew.all, crew.here), (2, 1));
    let nobody = store.crew(AccountId(3), "home").await.unwrap();
    assert_eq!((nobody.all, nobody.here), (0, 0));
}

async fn workers_of_an_account_are_found_some_at_a_time_by_what_they_make(scratch: Scratch) {
    let store = scratch.open().await;
    let owner = AccountId(1);
    let trades = ["image", "text", ""].into_iter().cycle();
    for (number, trade) in trades.take(300).enumerate() {
        let row = store.worker(&number.to_string(), owner, NOW).await.unwrap();
        let said = (!trade.is_empty()).then(|| (trade.to_owned(), Said::default()));
        let news = RigNews {
            worker: row.id,
            seen_at: NOW,
            said,
            done: Tally::default(),
            speed: 0,
            team: None,
        };
        store.save_rigs(vec![news]).await.unwrap();
    }
    store.worker("another's", AccountId(2), NOW).await.unwrap();
    let (mut found, mut before) = (Vec::new(), WorkerId(i64::MAX));
    loop {
        let rows = store.workers_before(before, owner, "image").await.unwrap();
        let Some(last) = rows.last() else { break };
        before = last.id;
        found.extend(
            rows.into_iter()
                .map(|row| row.name.parse::<usize>().unwrap()),
        );
    }
    let expected = (0..300).rev().filter(|number| number % 3 != 1);
    assert_eq!(found, expected.collect::<Vec<_>>());
}
