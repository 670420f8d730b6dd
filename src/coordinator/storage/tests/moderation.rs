//! Filters, blocks and marks, shared by all processes of a store.

use std::time::Duration;

use tokio::time::timeout;
use uuid::Uuid;

use super::on_both_engines;
use super::scratch::Scratch;
use crate::storage::{
    FilterChange, FilterChanged, FilterMade, Hit, MOST_FILTERS, NewFilter, TimeoutRow, Topic,
    WorkerAddress,
};
use crate::values::Roles;
use crate::values::suspicion::{Mark, Reason};
use muster_protocol::job::{AccountId, UnixMillis};

on_both_engines! {
    a_filter_is_written_read_changed_and_removed,
    there_are_only_so_many_filters,
    a_timeout_ends_and_what_is_over_goes,
    hits_add_up_within_a_day,
    addresses_of_old_hits_and_expired_blocks_are_deleted,
    changes_reach_another_process_within_a_second,
    a_worker_is_found_where_it_was_last,
    marks_count_once_or_every_time,
}

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

fn filter(pattern: &str) -> NewFilter {
    NewFilter {
        regex: pattern.to_owned(),
        kind: 10,
        description: Some("why '); DROP TABLE filters; --".to_owned()),
        replacement: String::new(),
        editor: AccountId(1),
        now: NOW,
    }
}

async fn a_filter_is_written_read_changed_and_removed(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = store
        .create_account("alice", Roles::USER, NOW)
        .await
        .unwrap();
    assert_eq!(alice, AccountId(1));
    let FilterMade::New(row) = store.make_filter(filter("a|b")).await.unwrap() else {
        panic!("there was one");
    };
    assert_eq!(row.editor_name, "alice");
    let again = store.make_filter(filter("a|b")).await;
    assert_eq!(again, Ok(FilterMade::Known(row.clone())));
    let change = FilterChange {
        id: row.id,
        regex: Some("c".to_owned()),
        kind: None,
        description: None,
        replacement: None,
        editor: AccountId(77),
        now: NOW,
    };
    let FilterChanged::Done(changed) = store.change_filter(change).await.unwrap() else {
        panic!("it is gone");
    };
    assert_eq!(
        (changed.regex.as_str(), changed.editor_name.as_str()),
        ("c", "")
    );
    assert_eq!(changed.description, row.description);
    assert_eq!(store.filters().await, Ok(vec![changed.clone()]));
    assert_eq!(store.filter(row.id).await, Ok(Some(changed)));
    assert_eq!(store.remove_filter(row.id).await, Ok(true));
    assert_eq!(store.remove_filter(row.id).await, Ok(false));
    assert_eq!(store.filter(row.id).await, Ok(None));
}

async fn there_are_only_so_many_filters(scratch: Scratch) {
    let store = scratch.open().await;
    let names: Vec<_> = (0..=MOST_FILTERS)
        .map(|number| format!("f{number}"))
        .collect();
    let made = names.iter().map(|name| store.make_filter(filter(name)));
    let made = futures_util::future::join_all(made).await;
    let full = made.iter().filter(|made| **made == Ok(FilterMade::Full));
    assert_eq!(full.count(), 1);
    assert_eq!(store.filters().await.unwrap().len() as i64, MOST_FILTERS);
}

async fn a_timeout_ends_and_what_is_over_goes(scratch: Scratch) {
    let store = scratch.open().await;
    let row = |network: &str, seconds| TimeoutRow {
        network: network.to_owned(),
        until: NOW.after(Duration::from_secs(seconds)),
    };
    store.keep_out(row("10.0.0.0/8", 60), NOW).await.unwrap();
    store.keep_out(row("192.0.2.7", 600), NOW).await.unwrap();
    // Later blocks replace earlier ones, even with a shorter time.
    store.keep_out(row("192.0.2.7", 300), NOW).await.unwrap();
    let all = [row("10.0.0.0/8", 60), row("192.0.2.7", 300)];
    assert_eq!(store.timeouts(NOW).await, Ok(all.to_vec()));
    let later = NOW.after(Duration::from_secs(60));
    assert_eq!(store.timeouts(later).await, Ok(all[1..].to_vec()));
    assert_eq!(store.let_in("192.0.2.7".to_owned()).await, Ok(true));
    assert_eq!(store.let_in("192.0.2.7".to_owned()).await, Ok(false));
    store.keep_out(row("10.0.0.1", 900), later).await.unwrap();
    assert_eq!(store.timeouts(NOW).await, Ok(vec![row("10.0.0.1", 900)]));
}

async fn hits_add_up_within_a_day(scratch: Scratch) {
    let store = scratch.open().await;
    let day = Duration::from_secs(24 * 60 * 60);
    let hit = |network: &str, now: UnixMillis| Hit {
        network: network.to_owned(),
        now,
        since: now.before(day),
        penalty: |earlier| i64::from(earlier) + 1,
    };
    let until = async |network, now: UnixMillis| {
        let until = store.note_hit(hit(network, now)).await.unwrap();
        until.0 - now.0
    };
    assert_eq!(until("a", NOW).await, 1);
    assert_eq!(until("a", NOW).await, 2);
    assert_eq!(until("b", NOW).await, 1);
    let later = NOW.after(day + Duration::from_secs(1));
    assert_eq!(until("a", later).await, 1);
}

async fn addresses_of_old_hits_and_expired_blocks_are_deleted(scratch: Scratch) {
    let store = scratch.open().await;
    let hit = Hit {
        network: "192.0.2.7".to_owned(),
        now: NOW,
        since: UnixMillis(0),
        penalty: |earlier| i64::from(earlier) + 1,
    };
    let until = async || store.note_hit(hit.clone()).await.unwrap().0 - NOW.0;
    assert_eq!((until().await, until().await), (1, 2));
    store.expire_addresses(NOW, NOW).await.unwrap();
    assert_eq!(until().await, 3, "a hit of this moment stays");
    let later = NOW.after(Duration::from_secs(60));
    store.expire_addresses(later, later).await.unwrap();
    assert_eq!(store.timeouts(UnixMillis(0)).await, Ok(Vec::new()));
    assert_eq!(until().await, 1);
}

async fn changes_reach_another_process_within_a_second(scratch: Scratch) {
    let (here, there) = (scratch.open().await, scratch.open().await);
    let mut filters = there.revision(Topic::Filters);
    let mut timeouts = there.revision(Topic::Timeouts);
    here.make_filter(filter("x")).await.unwrap();
    let row = TimeoutRow {
        network: "10.0.0.1".to_owned(),
        until: NOW,
    };
    here.keep_out(row, NOW).await.unwrap();
    let told = async {
        filters.changed().await.unwrap();
        timeouts.changed().await.unwrap();
    };
    timeout(Duration::from_secs(1), told).await.unwrap();
    assert!(!there.revision(Topic::Keys).has_changed().unwrap());
}

async fn a_worker_is_found_where_it_was_last(scratch: Scratch) {
    let store = scratch.open().await;
    let worker = store.worker("w1", AccountId(1), NOW).await.unwrap();
    let find = async || store.worker_address(worker.public_id).await.unwrap();
    assert_eq!(find().await, WorkerAddress::Unknown);
    for address in ["192.0.2.7", "2001:db8::1"] {
        let here = ["nobody", "w1"].map(|name| (name.into(), address.to_owned()));
        store.note_worker_addresses(here.to_vec()).await.unwrap();
        assert_eq!(find().await, WorkerAddress::Known(address.to_owned()));
    }
    let nobody = store.worker_address(Uuid::new_v4()).await;
    assert_eq!(nobody, Ok(WorkerAddress::NoWorker));
}

async fn marks_count_once_or_every_time(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = store
        .create_account("alice", Roles::USER, NOW)
        .await
        .unwrap();
    let trusted = store
        .create_account("bob", Roles::TRUSTED, NOW)
        .await
        .unwrap();
    let mark = async |account, reason| {
        let mark = Mark {
            account,
            worker: None,
            reason,
        };
        store.mark(mark, NOW).await.unwrap()
    };
    assert!(mark(alice, Reason::CorruptPrompt).await);
    assert!(!mark(alice, Reason::CorruptPrompt).await);
    assert!(mark(alice, Reason::TooFast).await);
    assert!(mark(alice, Reason::TooFast).await);
    assert!(!mark(trusted, Reason::TooFast).await);
    assert!(!mark(AccountId(0), Reason::TooFast).await);
    let mut marks = store.marks(alice).await.unwrap();
    marks.sort();
    assert_eq!(marks, [(Reason::TooFast, 2), (Reason::CorruptPrompt, 1)]);
    let suspicion = async || store.person(alice).await.unwrap().unwrap().suspicion;
    assert_eq!(suspicion().await, 3);
    store.forgive(alice).await.unwrap();
    assert_eq!(store.marks(alice).await, Ok(Vec::new()));
    assert_eq!(suspicion().await, 0);
}
