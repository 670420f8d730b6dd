//! Floors, escrow, trust, monthly kudos and records.

use std::time::Duration;

use uuid::Uuid;

use super::on_both_engines;
use super::scratch::{SOUND, Scratch, settlement};
use crate::kudos::{MOST_CREATED, Settlement, escrow_of};
use crate::storage::{
    Attended, Decided, Leaving, Left, NewLogin, NewMessage, PersonChange, Promotion, RigChange,
    Store, WorkerAddress,
};
use crate::values::{NewSharedKey, Roles};
use muster_protocol::job::{AccountId, JobId, Kind, Kudos, SharedKeyId, UnixMillis, WorkerId};
use muster_protocol::legacy::shared_key::JobLimits;

on_both_engines! {
    a_charge_below_the_floor_is_forgiven_and_the_books_stay_sound,
    what_is_kept_back_is_paid_when_its_owner_is_trusted,
    only_old_accounts_that_nobody_suspects_are_promoted,
    who_becomes_trusted_has_no_paused_workers_from_then_on,
    months_are_paid_once_each_and_moderators_more,
    months_in_which_nobody_was_to_be_given_any_are_not_caught_up_with,
    no_month_is_worth_more_than_can_be_given_at_once,
    nothing_waits_where_nobody_is_doubted,
    what_was_asked_for_and_made_is_counted_for_ever,
    an_account_is_wiped_a_month_after_it_was_marked,
}

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

/// Accounts 1 and 2: a client and a worker owner.
async fn two(store: &Store) -> (AccountId, AccountId) {
    let make = |name| store.create_account(name, Roles::USER, NOW);
    let (asks, works) = (make("asks").await.unwrap(), make("works").await.unwrap());
    assert_eq!((asks, works), (AccountId(1), AccountId(2)));
    (asks, works)
}

/// A job with a stored result.
fn with_result(kudos: i64) -> Settlement {
    Settlement {
        result: Some("{}".into()),
        ..settlement(JobId::random(), kudos)
    }
}

async fn sound(store: &Store) {
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn a_charge_below_the_floor_is_forgiven_and_the_books_stay_sound(scratch: Scratch) {
    let store = scratch.open().await;
    let (asks, works) = two(&store).await;
    let balance = async |account| store.balance(account).await.unwrap();
    assert_eq!(balance(asks).await, Kudos(14_000));
    let jobs = (0..20).map(|_| store.settle(settlement(JobId::random(), 5)));
    for settled in futures_util::future::join_all(jobs).await {
        assert_eq!(settled, Ok(Kudos(5000)));
    }
    assert_eq!(balance(asks).await, Kudos(14_000));
    assert_eq!(balance(works).await, Kudos(114_000));
    sound(&store).await;
    let poor = with_result(5);
    let request = poor.request;
    store.settle(poor).await.unwrap();
    let cost = (store.charged(request).await, store.paid(request).await);
    assert_eq!(cost, (Ok(Kudos(6_000)), Ok(Kudos(0))));
    let rich = PersonChange {
        kudos: Some(Kudos(8_000)),
        ..PersonChange::default()
    };
    store.change_person(asks, rich, NOW).await.unwrap();
    store.settle(settlement(JobId::random(), 5)).await.unwrap();
    assert_eq!(balance(asks).await, Kudos(16_000));
    let job = with_result(5);
    let (last, request) = (job.job, job.request);
    store.settle(job).await.unwrap();
    assert_eq!(balance(asks).await, Kudos(14_000));
    assert_eq!(store.paid(request).await, Ok(Kudos(2_000)));
    let its: i64 = store
        .entries(last)
        .await
        .unwrap()
        .iter()
        .map(|(_, amount)| amount.0)
        .sum();
    assert_eq!(its, 0);
    sound(&store).await;
}

async fn what_is_kept_back_is_paid_when_its_owner_is_trusted(scratch: Scratch) {
    let store = scratch.open().await;
    let (_, works) = two(&store).await;
    let job = settlement(JobId::random(), 5).keeping_back(|_| false);
    assert_eq!(store.settle(job).await, Ok(Kudos(5000)));
    let person = store.person(works).await.unwrap().unwrap();
    assert_eq!((person.kudos, person.escrow), (Kudos(16_500), Kudos(2_500)));
    let change = PersonChange {
        gains: Roles::TRUSTED,
        ..PersonChange::default()
    };
    store.change_person(works, change, NOW).await.unwrap();
    let person = store.person(works).await.unwrap().unwrap();
    assert_eq!((person.kudos, person.escrow), (Kudos(19_000), Kudos(0)));
    assert!(person.roles.contains(Roles::TRUSTED));
    let job = settlement(JobId::random(), 5).keeping_back(|_| true);
    store.settle(job).await.unwrap();
    assert_eq!(store.balance(escrow_of(works)).await, Ok(Kudos(0)));
    sound(&store).await;
}

async fn only_old_accounts_that_nobody_suspects_are_promoted(scratch: Scratch) {
    let store = scratch.open().await;
    let (_, works) = two(&store).await;
    let worker = store.worker("w", works, NOW).await.unwrap();
    let attended = |at_once| Attended {
        worker: worker.public_id,
        worth: Kudos(30_000),
        at_once,
        now: NOW,
    };
    assert_eq!(store.pay_attendance(attended(false)).await, Ok(true));
    assert_eq!(store.pay_attendance(attended(true)).await, Ok(true));
    let rig = store.rig(worker.public_id).await.unwrap().unwrap();
    assert_eq!(rig.done.rewarded, Kudos(60_000));
    let person = store.person(works).await.unwrap().unwrap();
    assert_eq!(
        (person.kudos, person.escrow),
        (Kudos(44_000), Kudos(30_000))
    );
    let nobody = Attended {
        worker: Uuid::nil(),
        ..attended(true)
    };
    assert_eq!(store.pay_attendance(nobody).await, Ok(false));
    let promote = async |earned, born_before| {
        let promotion = Promotion {
            earned: Kudos(earned),
            born_before,
            suspicion: 5,
            now: NOW,
        };
        store.promote(promotion).await.unwrap()
    };
    assert_eq!(promote(30_001, NOW.after(DAY)).await, []);
    assert_eq!(promote(30_000, NOW).await, []);
    assert_eq!(promote(30_000, NOW.after(DAY)).await, [works]);
    let person = store.person(works).await.unwrap().unwrap();
    assert_eq!((person.kudos, person.escrow), (Kudos(74_000), Kudos(0)));
    assert_eq!(promote(0, NOW.after(DAY)).await, []);
    sound(&store).await;
}

async fn who_becomes_trusted_has_no_paused_workers_from_then_on(scratch: Scratch) {
    let store = scratch.open().await;
    let (asks, works) = two(&store).await;
    let paused = async |owner, name| {
        let worker = store.worker(name, owner, NOW).await.unwrap();
        let change = RigChange {
            paused: Some(true),
            ..RigChange::default()
        };
        store.decide(worker.id, change).await.unwrap();
        worker.public_id
    };
    let (first, second) = (paused(works, "w").await, paused(asks, "v").await);
    let are_paused = async || {
        let rigs = [store.rig(first).await, store.rig(second).await];
        rigs.map(|rig| rig.unwrap().unwrap().decided.paused)
    };
    let attended = Attended {
        worker: first,
        worth: Kudos(30_000),
        at_once: false,
        now: NOW,
    };
    store.pay_attendance(attended).await.unwrap();
    let promotion = Promotion {
        earned: Kudos(30_000),
        born_before: NOW.after(DAY),
        suspicion: 5,
        now: NOW,
    };
    assert_eq!(store.promote(promotion).await.unwrap(), [works]);
    assert_eq!(are_paused().await, [false, true]);
    let change = PersonChange {
        gains: Roles::TRUSTED,
        ..PersonChange::default()
    };
    store.change_person(asks, change, NOW).await.unwrap();
    assert_eq!(are_paused().await, [false, false]);
}

async fn months_are_paid_once_each_and_moderators_more(scratch: Scratch) {
    let store = scratch.open().await;
    let (asks, works) = two(&store).await;
    let given = PersonChange {
        monthly_kudos: Some(Kudos(10_000)),
        ..PersonChange::default()
    };
    store.change_person(asks, given, NOW).await.unwrap();
    let office = PersonChange {
        gains: Roles::MODERATOR,
        ..PersonChange::default()
    };
    store.change_person(works, office, NOW).await.unwrap();
    let balance = async |account| store.balance(account).await.unwrap();
    assert_eq!(balance(asks).await, Kudos(24_000), "at once");
    assert_eq!(store.pay_months(NOW).await, Ok(1), "the moderator's first");
    assert_eq!(store.pay_months(NOW.after(29 * DAY)).await, Ok(0));
    let all = tokio::join!(
        store.pay_months(NOW.after(30 * DAY)),
        store.pay_months(NOW.after(30 * DAY))
    );
    assert_eq!(all.0.unwrap() + all.1.unwrap(), 2);
    assert_eq!(balance(asks).await, Kudos(34_000));
    assert_eq!(balance(works).await, Kudos(600_014_000));
    sound(&store).await;
}

async fn months_in_which_nobody_was_to_be_given_any_are_not_caught_up_with(scratch: Scratch) {
    let store = scratch.open().await;
    let (demoted, deleted) = two(&store).await;
    let office = |gains, loses| PersonChange {
        gains,
        loses,
        returns: true,
        ..PersonChange::default()
    };
    let change = async |account, change, now| {
        store.change_person(account, change, now).await.unwrap();
    };
    let none = Roles::default();
    for account in [demoted, deleted] {
        change(account, office(Roles::MODERATOR, none), NOW).await;
    }
    assert_eq!(store.pay_months(NOW).await, Ok(2));
    change(demoted, office(none, Roles::MODERATOR), NOW).await;
    let leaving = Leaving {
        account: deleted,
        grace: 1000 * DAY,
        now: NOW,
    };
    assert_eq!(store.leave(leaving).await, Ok(Left::Marked));
    for days in [20, 40, 200] {
        assert_eq!(store.pay_months(NOW.after(days * DAY)).await, Ok(0));
    }
    let later = NOW.after(365 * DAY);
    change(demoted, office(Roles::MODERATOR, none), later).await;
    change(deleted, office(none, Roles::DELETED), later).await;
    let mut paid = 0;
    for _ in 0..12 {
        paid += store.pay_months(later).await.unwrap();
    }
    assert_eq!(paid, 2, "one month each");
    assert_eq!(store.balance(demoted).await, Ok(Kudos(600_014_000)));
    assert_eq!(store.pay_months(later.after(32 * DAY)).await, Ok(2));
    sound(&store).await;
}

async fn no_month_is_worth_more_than_can_be_given_at_once(scratch: Scratch) {
    let store = scratch.open().await;
    let (rich, other) = two(&store).await;
    let more = |kudos| PersonChange {
        monthly_kudos: Some(kudos),
        gains: Roles::MODERATOR,
        ..PersonChange::default()
    };
    let most = Kudos(MOST_CREATED.0 / 2);
    for _ in 0..2 {
        store.change_person(rich, more(most), NOW).await.unwrap();
    }
    let changed = store.change_person(rich, more(most), NOW).await.unwrap();
    assert_eq!(
        changed.map(|changed| changed.monthly_kudos),
        Some(MOST_CREATED)
    );
    let changed = store.change_person(other, more(Kudos(1000)), NOW).await;
    assert!(changed.unwrap().is_some());
    let later = NOW.after(31 * DAY);
    assert_eq!(store.pay_months(later).await, Ok(2), "the other, too");
    sound(&store).await;
}

async fn nothing_waits_where_nobody_is_doubted(scratch: Scratch) {
    let store = scratch.open().await;
    let (_, works) = two(&store).await;
    let job = settlement(JobId::random(), 5).keeping_back(|_| false);
    store.settle(job).await.unwrap();
    for _ in 0..2 {
        store.release_escrows(NOW).await.unwrap();
        let person = store.person(works).await.unwrap().unwrap();
        assert_eq!((person.kudos, person.escrow), (Kudos(19_000), Kudos(0)));
    }
    sound(&store).await;
}

async fn what_was_asked_for_and_made_is_counted_for_ever(scratch: Scratch) {
    let store = scratch.open().await;
    let (asks, works) = two(&store).await;
    store.settle(settlement(JobId::random(), 5)).await.unwrap();
    let half = PersonChange {
        usage_multiplier: Some(500),
        ..PersonChange::default()
    };
    store.change_person(asks, half, NOW).await.unwrap();
    let job = settlement(JobId::random(), 5).keeping_back(|_| false);
    store.settle(job.clone()).await.unwrap();
    store.settle(job).await.unwrap();
    while store.forget_before(UnixMillis(i64::MAX)).await.unwrap() > 0 {}
    let asked = store.person(asks).await.unwrap().unwrap().records;
    assert_eq!(
        (asked.used_tokens, asked.asked.texts, asked.multiplier),
        (15, 2, 500)
    );
    let made = store.person(works).await.unwrap().unwrap().records;
    assert_eq!(
        (made.made_tokens, made.made.texts, made.made.images),
        (20, 2, 0)
    );
    for (kind, size) in [(Kind::Image, 262_144 * 30), (Kind::Form, 1)] {
        let mut job = settlement(JobId::random(), 5);
        (job.kind, job.size, job.paid_tokens) = (kind, size, 0);
        store.settle(job).await.unwrap();
    }
    let asked = store.person(asks).await.unwrap().unwrap().records;
    assert_eq!((asked.used_pixelsteps, asked.used_tokens), (7864 / 2, 15));
    assert_eq!((asked.asked.images, asked.asked.interrogations), (1, 1));
    let made = store.person(works).await.unwrap().unwrap().records;
    assert_eq!((made.made_pixelsteps, made.made_tokens), (7864, 20));
    assert_eq!((made.made.images, made.made.interrogations), (1, 1));
    sound(&store).await;
}

async fn an_account_is_wiped_a_month_after_it_was_marked(scratch: Scratch) {
    let store = scratch.open().await;
    let login = NewLogin {
        name: "alice".to_owned(),
        login: "alice".to_owned(),
        kudos: Some(Kudos(5_000)),
        now: NOW,
    };
    let alice = store.log_in(login.clone()).await.unwrap();
    let worker = store.worker("w", alice.account, NOW).await.unwrap().id;
    let paused = RigChange {
        paused: Some(true),
        ..RigChange::default()
    };
    store.decide(worker, paused).await.unwrap();
    let here = vec![("w".into(), "192.0.2.7".to_owned())];
    store.note_worker_addresses(here).await.unwrap();
    let key = key_of(alice.account);
    assert_eq!(store.create_shared_key(key.clone()).await, Ok(true));
    let message = message_to(worker, alice.account);
    assert_eq!(store.create_message(message.clone()).await, Ok(true));
    let leave = async |now| {
        let leaving = Leaving {
            account: alice.account,
            grace: 30 * DAY,
            now,
        };
        store.leave(leaving).await.unwrap()
    };
    assert_eq!(leave(NOW).await, Left::Marked);
    assert_eq!(leave(NOW.after(29 * DAY)).await, Left::TooSoon);
    assert_eq!(leave(NOW.after(30 * DAY)).await, Left::Wiped);
    let person = store.person(alice.account).await.unwrap().unwrap();
    assert_eq!(
        (&*person.name, person.login, person.kudos),
        ("deleted", None, Kudos(5_000))
    );
    assert!(store.workers_of(alice.account).await.unwrap().is_empty());
    assert_eq!(store.shared_key(key.id).await, Ok(None));
    assert_eq!(store.message(message.id).await, Ok(None));
    // A worker that reuses its number inherits nothing.
    let next = store.worker("next", AccountId(1), NOW).await.unwrap();
    let rig = store.rig_of_row(next.id).await.unwrap().unwrap();
    assert_eq!(rig.decided, Decided::default());
    let address = store.worker_address(next.public_id).await;
    assert_eq!(address, Ok(WorkerAddress::Unknown));
    let again = store.log_in(login).await.unwrap();
    assert!(again.is_new && again.account != alice.account);
    sound(&store).await;
}

fn key_of(owner: AccountId) -> NewSharedKey {
    NewSharedKey {
        id: SharedKeyId(Uuid::new_v4()),
        sealed: "v1.sealed".to_owned(),
        owner,
        name: None,
        budget: None,
        expires_at: None,
        limits: JobLimits {
            image_pixels: -1,
            image_steps: -1,
            text_tokens: -1,
        },
        now: NOW,
        most: 3,
    }
}

fn message_to(worker: WorkerId, author: AccountId) -> NewMessage {
    NewMessage {
        id: Uuid::new_v4(),
        worker: Some(worker),
        author,
        message: "m".to_owned(),
        origin: "1".to_owned(),
        created_at: NOW,
        expires_at: NOW.after(DAY),
        most: 3,
    }
}
