//! Workers: reports and totals added up from several sides, and settings.

use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;

use super::on_both_engines;
use super::scratch::{Scratch, settlement};
use crate::storage::{
    Decided, Decision, PersonChange, RigChange, RigNews, RigRow, Said, Store, Tally, WorkerRow,
};
use crate::values::Roles;
use muster_protocol::job::{AccountId, JobId, Kudos, UnixMillis, WorkerId};

on_both_engines! {
    a_new_worker_is_known_by_its_row_its_id_and_its_name,
    what_a_worker_says_stays_until_it_says_something_else,
    what_workers_do_is_added_by_whoever_saves_it,
    what_workers_do_is_added_once_when_its_batch_is_written_again,
    a_worker_was_seen_when_it_was_seen_last,
    only_what_is_named_is_decided,
    a_name_is_one_workers,
    workers_are_found_by_their_owner_and_by_when_they_were_seen,
    a_worker_is_forgotten_with_all_that_was_known_of_it,
}

const NOON: UnixMillis = UnixMillis(1_700_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

async fn owner(store: &Store, name: &str) -> AccountId {
    store.create_account(name, Roles::USER, NOON).await.unwrap()
}

async fn worker(store: &Store, name: &str, owner: AccountId) -> WorkerRow {
    store.worker(name, owner, NOON).await.unwrap()
}

async fn known(store: &Store, id: WorkerId) -> RigRow {
    store.rig_of_row(id).await.unwrap().unwrap()
}

fn news(worker: WorkerId) -> RigNews {
    RigNews {
        worker,
        seen_at: NOON,
        said: None,
        done: Tally::default(),
        speed: 0,
        team: None,
    }
}

fn said() -> Said {
    Said {
        agent: "test:1:\0url".to_owned(),
        address: "192.0.2.7".to_owned(),
        threads: 3,
        nsfw: true,
        models: vec!["a \"quoted\" one".to_owned(), "größe".to_owned()],
        takes: vec!["img2img".to_owned(), "lora".to_owned()],
        max_pixels: i64::MAX,
        max_length: 512,
        max_context: 4096,
    }
}

async fn a_new_worker_is_known_by_its_row_its_id_and_its_name(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = owner(&store, "alice").await;
    let row = worker(&store, "w", alice).await;
    let rig = known(&store, row.id).await;
    assert_eq!((&*rig.name, rig.public_id), ("w", row.public_id));
    assert_eq!((&*rig.owner.name, rig.owner.account), ("alice", alice));
    assert_eq!(
        (&*rig.trade, &rig.decided, rig.done, rig.seen_at),
        ("", &Decided::default(), Tally::default(), NOON)
    );
    assert_eq!(store.rig(row.public_id).await, Ok(Some(rig.clone())));
    assert_eq!(store.rig_named("w").await, Ok(Some(rig)));
    for nobody in ["W", "w ", "", "w\0"] {
        assert_eq!(store.rig_named(nobody).await, Ok(None), "{nobody:?}");
    }
    assert_eq!(store.rig(Uuid::new_v4()).await, Ok(None));
    assert_eq!(store.rig_of_row(WorkerId(999)).await, Ok(None));
}

async fn what_a_worker_says_stays_until_it_says_something_else(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = owner(&store, "alice").await;
    let id = worker(&store, "w", alice).await.id;
    let says = RigNews {
        said: Some(("image".to_owned(), said())),
        speed: 1500,
        ..news(id)
    };
    store.save_rigs(vec![says]).await.unwrap();
    store.save_rigs(vec![news(id)]).await.unwrap();
    let rig = known(&store, id).await;
    let kept = Said {
        agent: "test:1:\u{fffd}url".to_owned(),
        ..said()
    };
    assert_eq!((&*rig.trade, rig.said), ("image", kept));
    assert_eq!(rig.speed, 0, "the last measure counts");
}

async fn what_workers_do_is_added_by_whoever_saves_it(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = owner(&store, "alice").await;
    let (one, two) = (
        worker(&store, "one", alice).await.id,
        worker(&store, "two", alice).await.id,
    );
    let done = Tally {
        uptime: 30,
        fulfilled: 2,
        uncompleted: 1,
        earned: Kudos(10_500),
        rewarded: Kudos(40_000),
        work: 1 << 40,
    };
    let did = |worker| RigNews {
        done,
        ..news(worker)
    };
    let saving = (0..10).map(|_| store.save_rigs(vec![did(one), did(two), did(one)]));
    assert!(join_all(saving).await.iter().all(Result::is_ok));
    let sum = known(&store, one).await.done;
    assert_eq!(
        (sum.uptime, sum.fulfilled, sum.uncompleted, sum.work),
        (600, 40, 20, 20 << 40)
    );
    assert_eq!((sum.earned, sum.rewarded), (Kudos(210_000), Kudos(800_000)));
    assert_eq!(known(&store, two).await.done.fulfilled, 20);
    // Changes of unknown workers are dropped.
    assert_eq!(store.save_rigs(vec![did(WorkerId(999))]).await, Ok(()));
    assert_eq!(store.save_rigs(Vec::new()).await, Ok(()));
}

async fn what_workers_do_is_added_once_when_its_batch_is_written_again(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = owner(&store, "alice").await;
    let (one, two) = (
        worker(&store, "one", alice).await.id,
        worker(&store, "two", alice).await.id,
    );
    let job = JobId::random();
    store.settle(settlement(job, 1)).await.unwrap();
    let did = |worker| {
        let done = Tally {
            fulfilled: 1,
            ..Tally::default()
        };
        vec![RigNews {
            done,
            said: Some(("image".to_owned(), said())),
            ..news(worker)
        }]
    };
    // Because of the settled job, the batch is written one by one.
    let (first, again, second) = tokio::join!(
        store.save_rigs(did(one)),
        store.settle(settlement(job, 1)),
        store.save_rigs(did(two)),
    );
    assert_eq!((first, again, second), (Ok(()), Ok(Kudos(1000)), Ok(())));
    for worker in [one, two] {
        let rig = known(&store, worker).await;
        assert_eq!((&*rig.trade, rig.done.fulfilled), ("image", 1));
    }
}

async fn a_worker_was_seen_when_it_was_seen_last(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = owner(&store, "alice").await;
    let id = worker(&store, "w", alice).await.id;
    for seen_at in [NOON.after(HOUR), NOON] {
        let seen = RigNews {
            seen_at,
            ..news(id)
        };
        store.save_rigs(vec![seen]).await.unwrap();
    }
    assert_eq!(known(&store, id).await.seen_at, NOON.after(HOUR));
}

async fn only_what_is_named_is_decided(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = owner(&store, "alice").await;
    let id = worker(&store, "w", alice).await.id;
    let decide = |change| store.decide(id, change);
    let first = RigChange {
        maintenance: Some(true),
        maintenance_note: Some("back\0soon".to_owned()),
        info: Some("mine".to_owned()),
        ..RigChange::default()
    };
    assert_eq!(decide(first).await, Ok(Decision::Done));
    let second = RigChange {
        paused: Some(true),
        ..RigChange::default()
    };
    assert_eq!(decide(second).await, Ok(Decision::Done));
    let expected = Decided {
        info: "mine".to_owned(),
        maintenance: Some("back\u{fffd}soon".to_owned()),
        paused: true,
        team: None,
    };
    assert_eq!(known(&store, id).await.decided, expected);
    let over = RigChange {
        maintenance: Some(false),
        ..RigChange::default()
    };
    assert_eq!(decide(over).await, Ok(Decision::Done));
    assert_eq!(known(&store, id).await.decided.maintenance, None);
    let again = RigChange {
        maintenance: Some(true),
        ..RigChange::default()
    };
    assert_eq!(decide(again).await, Ok(Decision::Done));
    let told = known(&store, id).await.decided.maintenance;
    assert_eq!(told, Some(String::new()), "the last one has ended");
    let nobody = store.decide(WorkerId(999), RigChange::default()).await;
    assert_eq!(nobody, Ok(Decision::Gone));
}

async fn a_name_is_one_workers(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = owner(&store, "alice").await;
    let (one, two) = (
        worker(&store, "one", alice).await,
        worker(&store, "two", alice).await,
    );
    let named = |name: &str| RigChange {
        name: Some(name.to_owned()),
        info: Some("new".to_owned()),
        ..RigChange::default()
    };
    let taken = store.decide(one.id, named("two")).await;
    assert_eq!(taken, Ok(Decision::NameTaken));
    assert_eq!(known(&store, one.id).await.decided.info, "");
    assert_eq!(store.decide(one.id, named("one")).await, Ok(Decision::Done));
    let (first, second) = tokio::join!(
        store.decide(one.id, named("three")),
        store.decide(two.id, named("three"))
    );
    let mut answers = [first.unwrap(), second.unwrap()];
    answers.sort_by_key(|answer| *answer == Decision::NameTaken);
    assert_eq!(answers, [Decision::Done, Decision::NameTaken]);
    assert!(store.rig_named("three").await.unwrap().is_some());
    let zero = store.decide(one.id, named("a\0b")).await;
    assert_eq!(zero, Ok(Decision::Done));
    assert!(store.rig_named("a\0b").await.unwrap().is_some());
}

async fn workers_are_found_by_their_owner_and_by_when_they_were_seen(scratch: Scratch) {
    let store = scratch.open().await;
    let (alice, bob) = (owner(&store, "alice").await, owner(&store, "bob").await);
    for name in ["b", "a"] {
        worker(&store, name, alice).await;
    }
    let his = worker(&store, "c", bob).await.id;
    let late = RigNews {
        seen_at: NOON.after(HOUR),
        ..news(his)
    };
    store.save_rigs(vec![late]).await.unwrap();
    let names = |rigs: Vec<RigRow>| rigs.into_iter().map(|rig| rig.name).collect::<Vec<_>>();
    assert_eq!(names(store.rigs_of(alice).await.unwrap()), ["a", "b"]);
    let since = async |moment| names(store.rigs_seen_since(moment).await.unwrap());
    assert_eq!(since(NOON).await, ["a", "b", "c"]);
    assert_eq!(since(NOON.after(HOUR)).await, ["c"]);
    assert!(since(NOON.after(2 * HOUR)).await.is_empty());
    let shows = PersonChange {
        public_workers: Some(true),
        contact: Some("bob@example.org".to_owned()),
        worker_invited: Some(4),
        ..PersonChange::default()
    };
    store.change_person(bob, shows, NOON).await.unwrap();
    let rig = known(&store, his).await;
    assert!(rig.owner.shows_workers);
    assert_eq!(rig.owner.contact.as_deref(), Some("bob@example.org"));
    let here = RigNews {
        said: Some(("text".to_owned(), said())),
        ..news(his)
    };
    store.save_rigs(vec![here]).await.unwrap();
    let crew = async |owner| {
        let crew = store.crew(owner, &said().address).await.unwrap();
        (crew.all, crew.here)
    };
    assert_eq!((crew(alice).await, crew(bob).await), ((2, 0), (1, 1)));
    assert_eq!(crew(AccountId(999)).await, (0, 0));
    assert_eq!(store.workers_invited(bob).await, Ok(4));
    assert_eq!(store.workers_invited(alice).await, Ok(0));
}

async fn a_worker_is_forgotten_with_all_that_was_known_of_it(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = owner(&store, "alice").await;
    let row = worker(&store, "w", alice).await;
    assert_eq!(store.has_results(row.id).await, Ok(false));
    let paused = RigChange {
        paused: Some(true),
        ..RigChange::default()
    };
    store.decide(row.id, paused).await.unwrap();
    store.delete_rig(row.id).await.unwrap();
    assert_eq!(store.rig(row.public_id).await, Ok(None));
    let again = worker(&store, "w", alice).await;
    assert_ne!(again.public_id, row.public_id);
    assert_eq!(known(&store, again.id).await.decided, Decided::default());
}
