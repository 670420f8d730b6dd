//! Request fees: charged when a request is accepted, in any number together.

use std::collections::HashMap;

use futures_util::future::join_all;

use super::on_both_engines;
use super::scratch::{SOUND, Scratch};
use crate::kudos::{Cause, Posting};
use crate::storage::{Dues, RequestRow, Store, Wanted};
use crate::values::styles::Use;
use crate::values::{NewSharedKey, Roles};
use muster_protocol::job::{AccountId, Kind, Kudos, RequestId, SharedKeyId, UnixMillis};
use muster_protocol::legacy::shared_key::JobLimits;

on_both_engines! {
    requests_that_are_accepted_together_are_charged_for_each,
    a_body_is_read_as_it_was_written,
    a_fee_below_the_floor_is_forgiven,
    owners_of_styles_share_what_was_paid_and_not_what_was_forgiven,
    a_fee_is_taken_from_the_key_that_it_was_asked_with,
}

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

fn request(account: AccountId, fee: i64) -> RequestRow {
    RequestRow {
        id: RequestId::random(),
        account,
        kind: Kind::Image,
        body: String::new(),
        accepted_at: NOW,
        expires_at: NOW.after(std::time::Duration::from_secs(600)),
        wanted: Wanted::Everything,
        fee: Kudos(fee),
    }
}

async fn person(store: &Store, name: &str) -> (AccountId, i64) {
    let account = store.create_account(name, Roles::USER, NOW).await.unwrap();
    (account, store.balance(account).await.unwrap().0)
}

async fn lift(store: &Store, account: AccountId, kudos: i64) {
    let gift = Posting::from_house(Cause::Award, account, Kudos(kudos), NOW);
    store.post(gift).await.unwrap();
}

async fn requests_that_are_accepted_together_are_charged_for_each(scratch: Scratch) {
    let store = scratch.open().await;
    let people = [person(&store, "alice").await, person(&store, "bob").await];
    for (account, _) in people {
        lift(&store, account, 1_000_000).await;
    }
    let rows: Vec<_> = (0..300)
        .map(|nth| request(people[nth % 2].0, 1000 + 5000 * (nth as i64 % 3)))
        .collect();
    let accepted = rows.iter();
    let accepted = accepted.map(|row| store.accept(row.clone(), Dues::default()));
    for accepted in join_all(accepted).await {
        assert_eq!(accepted, Ok(()));
    }
    for (account, before) in people {
        let fees: i64 = rows
            .iter()
            .filter(|row| row.account == account)
            .map(|row| row.fee.0)
            .sum();
        let left = store.balance(account).await.unwrap().0;
        assert_eq!(left, before + 1_000_000 - fees);
    }
    // Another process reads the same fees.
    let open = store.open_requests(NOW).await.unwrap();
    let fees: i64 = open.iter().map(|one| one.request.fee.0).sum();
    assert_eq!(fees, rows.iter().map(|row| row.fee.0).sum::<i64>());
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn a_body_is_read_as_it_was_written(scratch: Scratch) {
    let store = scratch.open().await;
    let bodies = [
        "[{\"a\": \"\\u0041\\n\"}]",
        "back\\slash, \"quotes\", tab\t, line\n\r\u{2028}\u{7f}\u{1}",
        "𝄞 ö \u{fffe} \u{10ffff}",
        "$1 ?1 :a --; DROP TABLE requests",
        "123",
        "",
        &"long ".repeat(200_000),
    ];
    let requests = bodies.map(|body| RequestRow {
        body: body.to_owned(),
        ..request(AccountId(1), 0)
    });
    let accepted = requests.iter();
    let accepted = accepted.map(|row| store.accept(row.clone(), Dues::default()));
    for accepted in join_all(accepted).await {
        assert_eq!(accepted, Ok(()));
    }
    let open = store.open_requests(NOW).await.unwrap();
    let found: HashMap<_, _> = open
        .into_iter()
        .map(|it| (it.request.id, it.request))
        .collect();
    for request in &requests {
        assert_eq!(found.get(&request.id), Some(request));
    }
}

async fn a_fee_below_the_floor_is_forgiven(scratch: Scratch) {
    let store = scratch.open().await;
    let (alice, floor) = person(&store, "alice").await;
    lift(&store, alice, 1500).await;
    let rows = (0..5).map(|_| store.accept(request(alice, 1000), Dues::default()));
    join_all(rows).await;
    assert_eq!(store.balance(alice).await, Ok(Kudos(floor)));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn owners_of_styles_share_what_was_paid_and_not_what_was_forgiven(scratch: Scratch) {
    let store = scratch.open().await;
    let (alice, hers) = person(&store, "alice").await;
    let (bob, floor) = person(&store, "bob").await;
    lift(&store, bob, 5000).await;
    let dues = Dues {
        style: Some(Use {
            style: uuid::Uuid::new_v4(),
            collection: None,
            owner: alice,
            shared_key: None,
        }),
        ..Dues::default()
    };
    // Even with many of them in one commit.
    let rows = (0..20).map(|_| store.accept(request(bob, 3000), dues));
    assert!(join_all(rows).await.iter().all(Result::is_ok));
    assert_eq!(store.balance(bob).await, Ok(Kudos(floor)));
    let earned = store.balance(alice).await.unwrap().0 - hers;
    assert!((3000..=5000).contains(&earned), "{earned}");
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn a_fee_is_taken_from_the_key_that_it_was_asked_with(scratch: Scratch) {
    let store = scratch.open().await;
    let (alice, _) = person(&store, "alice").await;
    lift(&store, alice, 10_000).await;
    let key = NewSharedKey {
        id: SharedKeyId(uuid::Uuid::new_v4()),
        sealed: "v1.sealed".to_owned(),
        owner: alice,
        name: None,
        budget: Some(Kudos(5000)),
        expires_at: None,
        limits: JobLimits {
            image_pixels: -1,
            image_steps: -1,
            text_tokens: -1,
        },
        most: 3,
        now: NOW,
    };
    let id = key.id;
    assert_eq!(store.create_shared_key(key).await, Ok(true));
    let dues = Dues {
        shared_key: Some(id),
        ..Dues::default()
    };
    store.accept(request(alice, 1000), dues).await.unwrap();
    let key = store.shared_key(id).await.unwrap().unwrap();
    assert_eq!((key.budget, key.utilized), (Some(Kudos(4000)), Kudos(1000)));
}
