//! Teams: names, workers, and concurrent sums.

use futures_util::future::join_all;
use uuid::Uuid;

use super::on_both_engines;
use super::scratch::Scratch;
use crate::storage::{
    Decision, NewTeam, RigChange, RigNews, Store, Tally, TeamChange, TeamChanged, TeamRow,
    TeamShare,
};
use crate::values::Roles;
use muster_protocol::job::{AccountId, Kudos, UnixMillis, WorkerId};

on_both_engines! {
    a_name_is_one_teams,
    a_team_is_changed_only_where_asked,
    workers_join_and_leave_and_none_stays_in_a_team_that_is_gone,
    what_workers_do_is_added_to_their_team,
}

const NOON: UnixMillis = UnixMillis(1_700_000_000_000);

async fn creator(store: &Store) -> AccountId {
    let made = store.create_account("alice", Roles::USER, NOON).await;
    made.unwrap()
}

fn new(creator: AccountId, name: &str) -> NewTeam {
    NewTeam {
        public_id: Uuid::new_v4(),
        name: name.to_owned(),
        info: "we\0draw".to_owned(),
        creator,
        created_at: NOON,
    }
}

async fn team(store: &Store, name: &str) -> TeamRow {
    let new = new(creator(store).await, name);
    assert_eq!(store.create_team(new.clone()).await, Ok(true));
    store.team(new.public_id).await.unwrap().unwrap()
}

async fn worker(store: &Store, name: &str) -> WorkerId {
    let owner = creator(store).await;
    store.worker(name, owner, NOON).await.unwrap().id
}

fn joins(team: Option<i64>) -> RigChange {
    RigChange {
        team: Some(team),
        ..RigChange::default()
    }
}

async fn names(store: &Store, team: i64) -> Vec<String> {
    let rigs = store.rigs_in(team).await.unwrap();
    rigs.into_iter().map(|rig| rig.name).collect()
}

async fn a_name_is_one_teams(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = creator(&store).await;
    let making = (0..10).map(|_| store.create_team(new(alice, "rigs")));
    let made = join_all(making).await;
    assert_eq!(made.iter().filter(|one| **one == Ok(true)).count(), 1);
    let found = store.teams().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].info, "we\u{fffd}draw");
    assert_eq!(found[0].creator_name, "alice");
    assert_eq!(store.team(Uuid::new_v4()).await, Ok(None));
}

async fn a_team_is_changed_only_where_asked(scratch: Scratch) {
    let store = scratch.open().await;
    let (one, two) = (team(&store, "one").await, team(&store, "two").await);
    let name = |name: &str| TeamChange {
        name: Some(name.to_owned()),
        info: None,
    };
    let change = |id: i64, name: TeamChange| store.change_team(id, name);
    assert_eq!(
        change(two.team.id, name("one")).await,
        Ok(TeamChanged::NameTaken)
    );
    assert_eq!(
        change(one.team.id, name("one")).await,
        Ok(TeamChanged::Done)
    );
    assert_eq!(
        change(one.team.id, name("three")).await,
        Ok(TeamChanged::Done)
    );
    assert_eq!(change(999, name("four")).await, Ok(TeamChanged::Gone));
    let after = store.team(one.team.public_id).await.unwrap().unwrap();
    assert_eq!(
        (after.team.name.as_str(), &after.info),
        ("three", &one.info)
    );
}

async fn workers_join_and_leave_and_none_stays_in_a_team_that_is_gone(scratch: Scratch) {
    let store = scratch.open().await;
    let team = team(&store, "rigs").await.team;
    let (one, two) = (worker(&store, "one").await, worker(&store, "two").await);
    let decide = |worker, team| store.decide(worker, joins(team));
    assert_eq!(decide(two, Some(team.id)).await, Ok(Decision::Done));
    assert_eq!(decide(one, Some(team.id)).await, Ok(Decision::Done));
    assert_eq!(names(&store, team.id).await, ["one", "two"]);
    let rig = store.rig_of_row(one).await.unwrap().unwrap();
    assert_eq!(rig.decided.team, Some(team.clone()));
    assert_eq!(decide(two, None).await, Ok(Decision::Done));
    assert_eq!(names(&store, team.id).await, ["one"]);
    assert_eq!(store.rigs_in_teams().await.unwrap().len(), 1);
    assert_eq!(decide(two, Some(999)).await, Ok(Decision::NoTeam));
    // A worker that joins during the deletion is either a member before it or refused.
    let (gone, joined) = tokio::join!(store.disband(team.id), decide(two, Some(team.id)));
    assert_eq!(gone, Ok(true));
    assert!(matches!(joined, Ok(Decision::Done | Decision::NoTeam)));
    assert_eq!(store.rigs_in_teams().await.unwrap(), []);
    assert_eq!(store.disband(team.id).await, Ok(false));
}

async fn what_workers_do_is_added_to_their_team(scratch: Scratch) {
    let store = scratch.open().await;
    let team = team(&store, "rigs").await.team;
    let worker = worker(&store, "one").await;
    let share = TeamShare {
        fulfilled: 1,
        earned: Kudos(10_500),
        uptime: 30,
    };
    let news = RigNews {
        worker,
        seen_at: NOON,
        said: None,
        done: Tally::default(),
        speed: 0,
        team: Some((team.id, share)),
    };
    let saving = (0..10).map(|_| store.save_rigs(vec![news.clone(), news.clone()]));
    assert!(join_all(saving).await.iter().all(Result::is_ok));
    let done = store.team(team.public_id).await.unwrap().unwrap().done;
    assert_eq!(
        (done.fulfilled, done.earned, done.uptime),
        (20, Kudos(210_000), 600)
    );
}
