//! Messages to workers: their number, lifetime and readers.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use uuid::Uuid;

use super::on_both_engines;
use super::scratch::Scratch;
use crate::storage::{MessageSearch, NewMessage, Store, Topic};
use muster_protocol::job::{AccountId, UnixMillis, WorkerId};
use muster_protocol::legacy::worker::Validity;

on_both_engines! {
    there_are_never_more_messages_for_one_than_may_be,
    a_message_is_found_by_whom_it_is_for_who_wrote_it_and_its_time,
    another_process_hears_of_a_message_and_of_its_end,
    a_message_goes_with_its_worker_and_with_time,
}

const NOON: UnixMillis = UnixMillis(1_700_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

fn message(worker: Option<WorkerId>, author: i64) -> NewMessage {
    NewMessage {
        id: Uuid::new_v4(),
        worker,
        author: AccountId(author),
        message: "update,\0please".to_owned(),
        origin: "moderators".to_owned(),
        created_at: NOON,
        expires_at: NOON.after(HOUR),
        most: 3,
    }
}

async fn told(store: &Store, message: NewMessage) -> Uuid {
    let id = message.id;
    assert_eq!(store.create_message(message).await, Ok(true));
    id
}

fn all(now: UnixMillis) -> MessageSearch {
    MessageSearch {
        author: None,
        worker: None,
        reader: None,
        validity: Validity::All,
        page: 0,
        now,
    }
}

async fn there_are_never_more_messages_for_one_than_may_be(scratch: Scratch) {
    let store = scratch.open().await;
    for worker in [None, Some(WorkerId(1)), Some(WorkerId(2))] {
        let telling = (0..10).map(|_| store.create_message(message(worker, 1)));
        let told = join_all(telling).await;
        assert_eq!(told.iter().filter(|one| **one == Ok(true)).count(), 3);
    }
    assert_eq!(store.messages_at(NOON).await.unwrap().len(), 9);
    // Expired messages make room.
    let later = NewMessage {
        created_at: NOON.after(2 * HOUR),
        expires_at: NOON.after(3 * HOUR),
        ..message(None, 1)
    };
    told_once_more(&store, later).await;
}

async fn told_once_more(store: &Store, later: NewMessage) {
    let now = later.created_at;
    told(store, later).await;
    assert_eq!(store.messages_at(now).await.unwrap().len(), 1);
}

async fn a_message_is_found_by_whom_it_is_for_who_wrote_it_and_its_time(scratch: Scratch) {
    let store = scratch.open().await;
    let worker = store.worker("rig", AccountId(1), NOON).await.unwrap();
    let (own, all_of_them) = (
        told(&store, message(Some(worker.id), 1)).await,
        told(&store, message(None, 7)).await,
    );
    let row = store.message(own).await.unwrap().unwrap();
    assert_eq!(row.message, "update,\u{fffd}please");
    assert_eq!(
        (row.worker, row.worker_id),
        (Some(worker.id), Some(worker.public_id))
    );
    let found = async |search: MessageSearch| {
        let found = store.messages(search).await.unwrap();
        found.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(found(all(NOON)).await.len(), 2);
    let by = MessageSearch {
        author: Some(AccountId(7)),
        ..all(NOON)
    };
    assert_eq!(found(by).await, [all_of_them]);
    let to = MessageSearch {
        worker: Some(worker.id),
        ..all(NOON)
    };
    assert_eq!(found(to).await, [own]);
    let reader = |account| MessageSearch {
        reader: Some(AccountId(account)),
        ..all(NOON)
    };
    assert_eq!(found(reader(1)).await.len(), 2, "the owner of the worker");
    assert_eq!(found(reader(9)).await, [all_of_them], "a stranger");
    let valid = |validity, now| MessageSearch {
        validity,
        ..all(now)
    };
    let over = NOON.after(HOUR);
    assert_eq!(found(valid(Validity::Active, NOON)).await.len(), 2);
    assert_eq!(found(valid(Validity::Expired, NOON)).await.len(), 0);
    assert_eq!(found(valid(Validity::Active, over)).await.len(), 0);
    assert_eq!(found(valid(Validity::Expired, over)).await.len(), 2);
    let second_page = MessageSearch {
        page: 1,
        ..all(NOON)
    };
    assert!(found(second_page).await.is_empty());
}

async fn another_process_hears_of_a_message_and_of_its_end(scratch: Scratch) {
    let (here, there) = (scratch.open().await, scratch.open().await);
    let mut heard = there.revision(Topic::Messages);
    heard.mark_unchanged();
    let id = told(&here, message(None, 1)).await;
    let hear = timeout(Duration::from_secs(5), heard.changed()).await;
    hear.unwrap().unwrap();
    assert_eq!(here.remove_message(id).await, Ok(true));
    let hear = timeout(Duration::from_secs(5), heard.changed()).await;
    hear.unwrap().unwrap();
    assert_eq!(there.message(id).await, Ok(None));
    assert_eq!(here.remove_message(id).await, Ok(false));
}

async fn a_message_goes_with_its_worker_and_with_time(scratch: Scratch) {
    let store = scratch.open().await;
    let worker = store.worker("rig", AccountId(1), NOON).await.unwrap();
    let own = told(&store, message(Some(worker.id), 1)).await;
    let other = told(&store, message(None, 1)).await;
    store.delete_rig(worker.id).await.unwrap();
    assert_eq!(store.message(own).await, Ok(None));
    store.forget_before(NOON.after(HOUR)).await.unwrap();
    assert!(store.message(other).await.unwrap().is_some());
    store.forget_before(NOON.after(2 * HOUR)).await.unwrap();
    assert_eq!(store.message(other).await, Ok(None));
}
