//! With a store: suspicion marks for prompts, and changes seen by other processes.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use muster_testing::eventually;
use tempfile::TempDir;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::accounts::ANONYMOUS;
use crate::address::Network;
use crate::moderation::{
    Asker, Blocked, Medium, Moderation, NoPattern, NotWritten, Piece, Prompt, Rules, Said,
};
use crate::storage::{
    FilterChange, FilterChanged, FilterMade, FilterRow, Location, NewFilter, Store,
};
use crate::values::Roles;
use crate::values::suspicion::{Mark, Reason, TOO_MUCH};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, UnixMillis, WorkerId};

/// Processes that share a database.
struct House {
    folder: TempDir,
    tasks: Tasks,
}

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

impl House {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            tasks: Tasks::default(),
        }
    }

    async fn process(&self) -> (Moderation, Store) {
        let place = Location::in_folder(self.folder.path());
        let store = Store::open(&place, &self.tasks).await.unwrap();
        let rules = Rules {
            marked: HashSet::from(["marked".to_owned()]),
            ..Rules::default()
        };
        let moderation = Moderation::open(store.clone(), rules, &self.tasks).await;
        (moderation.unwrap(), store)
    }
}

fn new(kind: i64, regex: &str) -> NewFilter {
    NewFilter {
        regex: regex.to_owned(),
        kind,
        description: None,
        replacement: "nice".to_owned(),
        editor: AccountId(1),
        now: NOW,
    }
}

async fn make(moderation: &Moderation, kind: i64, regex: &str) -> FilterRow {
    match moderation.make_filter(new(kind, regex)).await.unwrap() {
        FilterMade::New(row) => row,
        other => panic!("{other:?}"),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

async fn ask(moderation: &Moderation, text: &str, who: &Asker) -> Result<Option<String>, Blocked> {
    let prompt = Prompt {
        text,
        medium: Medium::Image,
        may_be_rewritten: false,
        models: &["plain".to_owned()],
    };
    moderation.examine(prompt, who).await
}

async fn asker(store: &Store, roles: Roles, address: &str) -> Asker {
    let account = store.create_account("alice", roles, NOW).await.unwrap();
    Asker {
        account,
        roles,
        address: ip(address),
    }
}

fn minutes(moderation: &Moderation, address: &str) -> Option<u64> {
    let left = moderation.kept_out(ip(address));
    left.map(|left| left.as_secs().div_ceil(60))
}

#[tokio::test]
async fn of_timeouts_that_are_as_they_were_nobody_is_told() {
    let house = House::new();
    let (moderation, _store) = house.process().await;
    let mut told = moderation.timeouts_changed();
    make(&moderation, 10, "dark").await;
    assert!(!told.has_changed().unwrap(), "filters are no timeouts");
    let network = Network::around(ip("192.0.2.7"));
    let hour = Duration::from_secs(3600);
    moderation.keep_out(network, hour).await.unwrap();
    assert!(told.has_changed().unwrap());
    told.mark_unchanged();
    moderation.catch_up().await;
    assert!(!told.has_changed().unwrap());
    assert!(moderation.let_in(network).await.unwrap());
    assert!(told.has_changed().unwrap());
}

#[tokio::test]
async fn whoever_sends_suspicious_prompts_is_kept_out_longer_each_time() {
    let house = House::new();
    let (moderation, store) = house.process().await;
    make(&moderation, 10, "dark").await;
    make(&moderation, 20, "side").await;
    let alice = asker(&store, Roles::USER, "192.0.2.7").await;
    assert_eq!(ask(&moderation, "a dark hat", &alice).await, Ok(None));
    assert_eq!(minutes(&moderation, "192.0.2.7"), None);
    for expected in [3, 9, 15] {
        let refused = ask(&moderation, "the dark side", &alice).await;
        assert_eq!(refused, Err(Blocked::Corrupt));
        assert_eq!(minutes(&moderation, "192.0.2.7"), Some(expected));
    }
    // This reason counts once.
    assert_eq!(moderation.suspicion(alice.account).await, Ok(1));
    assert_eq!(minutes(&moderation, "192.0.2.8"), None);
}

#[tokio::test]
async fn of_ipv6_the_whole_household_is_kept_out() {
    let house = House::new();
    let (moderation, store) = house.process().await;
    make(&moderation, 10, "dark").await;
    make(&moderation, 20, "dark").await;
    let alice = asker(&store, Roles::USER, "2001:db8::1").await;
    assert!(ask(&moderation, "dark", &alice).await.is_err());
    assert_eq!(minutes(&moderation, "2001:db8::ffff"), Some(3));
    assert_eq!(minutes(&moderation, "2001:db8:0:1::1"), None);
}

#[tokio::test]
async fn moderators_test_without_being_held_to_account_and_the_trusted_get_no_mark() {
    let house = House::new();
    let (moderation, store) = house.process().await;
    make(&moderation, 10, "dark").await;
    make(&moderation, 20, "dark").await;
    for (roles, kept_out) in [
        (Roles::MODERATOR, None),
        (Roles::ADMIN, None),
        (Roles::TRUSTED, Some(3)),
    ] {
        let who = asker(&store, roles, "192.0.2.7").await;
        assert!(ask(&moderation, "dark", &who).await.is_err());
        assert_eq!(moderation.suspicion(who.account).await, Ok(0), "{roles:?}");
        assert_eq!(minutes(&moderation, "192.0.2.7"), kept_out, "{roles:?}");
    }
    let nobody = Asker {
        account: ANONYMOUS,
        roles: Roles::NONE,
        address: ip("192.0.2.9"),
    };
    assert!(ask(&moderation, "dark", &nobody).await.is_err());
    assert_eq!(moderation.suspicion(ANONYMOUS).await, Ok(0));
    assert_eq!(minutes(&moderation, "192.0.2.9"), Some(3));
}

#[tokio::test]
async fn what_a_moderator_decided_is_not_shortened_by_a_prompt() {
    let house = House::new();
    let (moderation, store) = house.process().await;
    make(&moderation, 10, "dark").await;
    make(&moderation, 20, "dark").await;
    let network = Network::parse("192.0.2.7").unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    moderation.keep_out(network, day).await.unwrap();
    let alice = asker(&store, Roles::USER, "192.0.2.7").await;
    assert!(ask(&moderation, "dark", &alice).await.is_err());
    assert_eq!(minutes(&moderation, "192.0.2.7"), Some(24 * 60));
    assert!(moderation.let_in(network).await.unwrap());
    assert_eq!(minutes(&moderation, "192.0.2.7"), None);
    assert!(!moderation.let_in(network).await.unwrap());
}

#[tokio::test]
async fn what_is_too_long_to_be_looked_at_is_refused_where_it_would_be() {
    let house = House::new();
    let (moderation, store) = house.process().await;
    let alice = asker(&store, Roles::USER, "192.0.2.7").await;
    let most = Medium::Image.longest();
    let (longest, longer) = ("a".repeat(most), "a".repeat(most + 1));
    assert_eq!(ask(&moderation, &longer, &alice).await, Ok(None));
    make(&moderation, 10, "dark").await;
    make(&moderation, 20, "side").await;
    assert_eq!(ask(&moderation, &longest, &alice).await, Ok(None));
    let found = most + 1;
    let unread = Err(Blocked::Unread { found, most });
    assert_eq!(ask(&moderation, &longer, &alice).await, unread);
    let piece = |length| {
        let text = "a".repeat(length);
        let said = Said::ByClient;
        moderation.examine_talk(vec![Piece { text, said }], &[], &alice)
    };
    assert!(matches!(
        piece(Medium::Text.longest()).await,
        Err(Blocked::Unread { .. })
    ));
}

fn all_of(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let all = u32::try_from(places.available_permits()).unwrap();
    places.clone().try_acquire_many_owned(all).unwrap()
}

#[tokio::test]
async fn what_is_long_does_not_wait_for_what_is_much_longer() {
    let house = House::new();
    let (moderation, store) = house.process().await;
    make(&moderation, 10, "dark").await;
    make(&moderation, 20, "side").await;
    let alice = asker(&store, Roles::USER, "192.0.2.7").await;
    let talk = |length| {
        let text = format!("the dark side {}", "a ".repeat(length));
        let said = Said::ByClient;
        moderation.examine_talk(vec![Piece { text, said }], &[], &alice)
    };
    let taken = all_of(&moderation.0.places.longest);
    assert!(talk(40_000).now_or_never().is_none());
    assert_eq!(talk(25_000).await, Err(Blocked::Corrupt));
    drop(taken);
    assert_eq!(talk(40_000).await, Err(Blocked::Corrupt));
}

#[tokio::test]
async fn what_is_long_is_looked_at_a_few_at_a_time() {
    let house = House::new();
    let (moderation, store) = house.process().await;
    make(&moderation, 10, "dark").await;
    make(&moderation, 20, "side").await;
    let alice = asker(&store, Roles::USER, "192.0.2.7").await;
    let long = format!("the dark side {}", "a ".repeat(25_000));
    let taken = all_of(&moderation.0.places.long);
    assert!(ask(&moderation, &long, &alice).now_or_never().is_none());
    assert_eq!(
        ask(&moderation, "the dark side", &alice).await,
        Err(Blocked::Corrupt)
    );
    drop(taken);
    assert_eq!(ask(&moderation, &long, &alice).await, Err(Blocked::Corrupt));
}

#[tokio::test]
async fn models_that_are_marked_and_classes_are_treated_on_their_own() {
    let house = House::new();
    let (moderation, store) = house.process().await;
    make(&moderation, 10, "dark").await;
    make(&moderation, 20, "side").await;
    let alice = asker(&store, Roles::USER, "192.0.2.7").await;
    let models = ["marked".to_owned()];
    let prompt = Prompt {
        text: "a kid",
        medium: Medium::Text,
        may_be_rewritten: false,
        models: &models,
    };
    let examined = moderation.examine(prompt, &alice).await;
    assert_eq!(examined, Ok(Some("a adult".to_owned())));
    let any = Prompt {
        models: &[],
        ..prompt
    };
    let examined = moderation.examine(any, &alice).await;
    assert_eq!(examined, Ok(Some("a adult".to_owned())));
    let unmarked = Prompt {
        models: &["other".to_owned()],
        ..prompt
    };
    assert_eq!(moderation.examine(unmarked, &alice).await, Ok(None));
    for roles in [Roles::EDUCATION, Roles::FILTERED] {
        let who = asker(&store, roles, "192.0.2.7").await;
        let rewritten = ask(&moderation, "the dark side", &who).await.unwrap();
        assert!(rewritten.unwrap().starts_with("the nice side ###"));
    }
    assert_eq!(minutes(&moderation, "192.0.2.7"), None);
}

#[tokio::test]
async fn long_prompts_are_looked_at_elsewhere_with_the_same_result() {
    let house = House::new();
    let (moderation, store) = house.process().await;
    make(&moderation, 10, "dark").await;
    make(&moderation, 20, "side").await;
    let moderator = asker(&store, Roles::MODERATOR, "192.0.2.7").await;
    let long = format!("{} the dark side", "x ".repeat(100_000));
    let prompt = Prompt {
        text: &long,
        medium: Medium::Text,
        may_be_rewritten: false,
        models: &["plain".to_owned()],
    };
    let examined = moderation.examine(prompt, &moderator).await;
    assert_eq!(examined, Err(Blocked::Corrupt));
}

#[tokio::test]
async fn another_process_learns_of_filters_and_timeouts() {
    let house = House::new();
    let (here, _) = house.process().await;
    let (there, _) = house.process().await;
    let dark = make(&here, 10, "dark").await;
    let network = Network::parse("10.0.0.0/8").unwrap();
    here.keep_out(network, Duration::from_secs(600))
        .await
        .unwrap();
    let level = async || there.suspicion_of("dark".to_owned(), None).await.level;
    eventually("the filter and the timeout", async || {
        level().await == 1 && minutes(&there, "10.1.2.3").is_some()
    })
    .await;
    assert!(here.remove_filter(dark.id).await.unwrap());
    here.let_in(network).await.unwrap();
    eventually("neither", async || {
        level().await == 0 && minutes(&there, "10.1.2.3").is_none()
    })
    .await;
}

#[tokio::test]
async fn filters_are_made_once_changed_and_refused_with_a_reason() {
    let house = House::new();
    let (moderation, _) = house.process().await;
    let dark = make(&moderation, 10, "dark").await;
    let again = moderation.make_filter(NewFilter {
        replacement: "other".to_owned(),
        ..new(10, "dark")
    });
    assert_eq!(again.await.unwrap(), FilterMade::Known(dark.clone()));
    let other = make(&moderation, 20, "dark").await;
    let change = |id, kind, regex: Option<&str>| FilterChange {
        id,
        regex: regex.map(str::to_owned),
        kind,
        description: Some("why".to_owned()),
        replacement: None,
        editor: AccountId(2),
        now: NOW,
    };
    let twin = moderation.change_filter(change(other.id, Some(10), None));
    assert_eq!(twin.await.unwrap(), FilterChanged::Twin(dark.id));
    let unknown = moderation.change_filter(change(999, None, None));
    assert_eq!(unknown.await.unwrap(), FilterChanged::Unknown);
    let changed = moderation
        .change_filter(change(dark.id, None, Some("light")))
        .await;
    let FilterChanged::Done(row) = changed.unwrap() else {
        panic!("it was not changed");
    };
    assert_eq!(
        (row.regex.as_str(), row.kind, row.editor),
        ("light", 10, AccountId(2))
    );
    assert_eq!(
        (row.description.as_deref(), &*row.replacement),
        (Some("why"), "nice")
    );
    let broken = moderation
        .change_filter(change(dark.id, None, Some("(")))
        .await;
    assert!(matches!(
        broken,
        Err(NotWritten::Pattern(NoPattern::Unreadable(_)))
    ));
    let long = NewFilter {
        replacement: "x".repeat(1001),
        ..new(10, "long")
    };
    let long = moderation.make_filter(long).await;
    assert!(matches!(long, Err(NotWritten::LongReplacement(1001))));
    assert_eq!(
        moderation
            .suspicion_of("light".to_owned(), None)
            .await
            .level,
        1
    );
}

#[tokio::test]
async fn suspicion_adds_up_for_accounts_and_their_workers_until_it_is_forgiven() {
    let house = House::new();
    let (moderation, store) = house.process().await;
    let alice = store
        .create_account("alice", Roles::USER, NOW)
        .await
        .unwrap();
    let mark = |worker: Option<i64>, reason| Mark {
        account: alice,
        worker: worker.map(WorkerId),
        reason,
    };
    let marks = [
        (mark(None, Reason::UserNameLong), true),
        (mark(None, Reason::UserNameLong), false),
        (mark(Some(1), Reason::TooFast), true),
        (mark(Some(1), Reason::TooFast), true),
        (mark(Some(1), Reason::WorkerNameLong), true),
        (mark(Some(2), Reason::WorkerNameLong), true),
    ];
    for (mark, counts) in marks {
        assert_eq!(moderation.mark(mark).await, Ok(counts), "{mark:?}");
    }
    assert_eq!(moderation.suspicion(alice).await, Ok(4));
    assert_eq!(moderation.suspicion_of_worker(WorkerId(1)).await, Ok(3));
    moderation
        .mark(mark(Some(2), Reason::DroppedJobs))
        .await
        .unwrap();
    assert!(moderation.suspicion(alice).await.unwrap() >= TOO_MUCH);
    moderation.forgive_worker(WorkerId(1)).await.unwrap();
    assert_eq!(moderation.suspicion(alice).await, Ok(3));
    moderation.forgive(alice).await.unwrap();
    assert_eq!(moderation.suspicion(alice).await, Ok(0));
}
