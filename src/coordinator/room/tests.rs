use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    KEPT, LARGEST_FRAME, LONGEST_WAIT, MESSAGES, MOST_SMALL, Memory, PASSING, Room, SMALL, Stage,
    TOLD,
};
use crate::accounts::ANONYMOUS;
use crate::error::ApiError;
use crate::sender::Sender;
use muster_protocol::job::AccountId;

fn memory() -> Memory {
    Memory::new(1 << 20, Duration::from_secs(5))
}

fn all(stage: Stage) -> usize {
    match stage {
        Stage::Small => MOST_SMALL * SMALL,
        Stage::Passing => PASSING << 20,
        Stage::Kept => KEPT << 20,
        Stage::Told => TOLD << 20,
        Stage::Message => MESSAGES * LARGEST_FRAME,
    }
}

#[test]
fn room_is_taken_once_and_given_back() {
    let memory = memory();
    let (mut one, mut other) = (memory.room(), memory.room());
    for bytes in [1, 8 << 20, 4 << 20, 8 << 20] {
        one.cover(bytes).unwrap();
    }
    other.cover(4 << 20).unwrap();
    let full = other.cover(5 << 20).unwrap_err();
    assert_eq!(full.status(), 503);
    assert!(full.retry_after.is_some());
    drop(one);
    other.cover(5 << 20).unwrap();
}

#[test]
fn what_fills_one_stage_takes_nothing_of_another() {
    let memory = memory();
    let full = |room: Result<Room, ApiError>| room.unwrap_err().status() == 503;
    let cover = |mut room: Room, bytes| room.cover(bytes).map(|()| room);
    let kept = memory.room().keep(all(Stage::Kept)).unwrap();
    assert!(full(memory.room().keep(1 << 20)));
    let told = cover(memory.room_to_tell(), all(Stage::Told)).unwrap();
    assert!(full(cover(memory.room_to_tell(), 1 << 20)));
    let passing = cover(memory.room(), all(Stage::Passing)).unwrap();
    assert!(full(cover(memory.room(), 1 << 20)));
    drop((kept, told, passing));
}

#[test]
fn what_is_little_finds_room_where_there_is_none() {
    let memory = memory();
    for stage in [Stage::Passing, Stage::Kept, Stage::Told, Stage::Message] {
        let mut large = memory.room_for(stage);
        large.cover(all(stage)).unwrap();
        let mut small = memory.room_for(stage);
        small.cover(stage.little() - 1).unwrap();
        assert!(small.cover(stage.little()).is_err(), "{stage:?}");
    }
}

#[test]
fn small_requests_are_counted_from_their_beginning() {
    let memory = memory();
    let take = |bytes| {
        let mut room = memory.room();
        room.cover(bytes).map(|()| room)
    };
    let mut small: Vec<Room> = (0..MOST_SMALL).map(|_| take(0).unwrap()).collect();
    assert_eq!(take(0).unwrap_err().status(), 503);
    // The request's size is covered already, and large requests have a separate budget.
    small[0].cover(SMALL - 1).unwrap();
    let large = take(SMALL).unwrap();
    // A grown request leaves the budget of small ones.
    small[0].cover(SMALL).unwrap();
    let other = take(1).unwrap();
    assert!(take(1).is_err());
    drop((large, other));
    assert!(take(1).is_ok());
}

#[test]
fn one_that_needs_more_than_there_is_has_all_of_it() {
    let memory = memory();
    let mut large = memory.room();
    large.cover(2 * all(Stage::Passing)).unwrap();
    let mut other = memory.room();
    assert!(other.cover(1 << 20).is_err());
    drop(large);
    other.cover(1 << 20).unwrap();
    assert!(memory.room().cover(all(Stage::Passing)).is_err());
}

#[tokio::test(start_paused = true)]
async fn what_is_paid_for_waits_for_its_room_and_not_forever() {
    let memory = memory();
    let large = || {
        let mut room = memory.room_to_tell();
        room.cover(all(Stage::Told)).map(|()| room)
    };
    let held = large().unwrap();
    let began = Instant::now();
    let mut paid = memory.room_to_tell();
    let (covered, ()) = tokio::join!(paid.cover_in_time(1 << 20), async {
        sleep(Duration::from_secs(10)).await;
        drop(held);
    });
    covered.unwrap();
    assert!(began.elapsed() < LONGEST_WAIT);
    drop(paid);
    let _held = large().unwrap();
    let mut late = memory.room_to_tell();
    let full = late.cover_in_time(1 << 20).await.unwrap_err();
    assert_eq!(full.status(), 503);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stands_still_gives_way_before_what_is_paid_for_is_lost() {
    let memory = memory();
    let mut room = memory.room_to_tell();
    room.cover(all(Stage::Told)).unwrap();
    let unread = room.carry(vec![0; 1 << 20]);
    let mut paid = memory.room_to_tell();
    paid.cover_in_time(1 << 20).await.unwrap();
    assert!(unread.unload().is_err());
}

const ALICE: Sender = Sender::Account(AccountId(1));
const BOB: Sender = Sender::Account(AccountId(2));

/// Requests of this size accepted from an account, and the refusal of the next.
fn let_in(memory: &Memory, sender: Sender, bytes: usize) -> (Vec<Room>, ApiError) {
    let mut rooms = Vec::new();
    loop {
        match memory.room_of(sender).keep(bytes) {
            Ok(room) => rooms.push(room),
            Err(refusal) => return (rooms, refusal),
        }
    }
}

#[test]
fn an_account_has_a_quarter_for_its_media_and_another_is_served() {
    let memory = memory();
    let (alices, refusal) = let_in(&memory, ALICE, 1 << 20);
    assert_eq!(alices.len(), KEPT / 4);
    assert_eq!(refusal.status(), 429);
    assert!(refusal.retry_after.is_some());
    let text = refusal.to_string();
    assert!(
        text.contains("take 3 MiB of memory, its share is 3 MiB"),
        "{text}"
    );
    let (bobs, _) = let_in(&memory, BOB, 1 << 20);
    assert_eq!(bobs.len(), KEPT / 4);
    drop((alices, bobs));
    assert!(memory.0.shares.is_empty());
}

#[test]
fn callers_without_a_key_share_by_their_addresses() {
    let memory = memory();
    let at = |address: &str| Sender::of(ANONYMOUS, address.parse().unwrap());
    let (here, refusal) = let_in(&memory, at("192.0.2.1"), 1 << 20);
    assert_eq!((here.len(), refusal.status()), (KEPT / 4, 429));
    let (there, _) = let_in(&memory, at("192.0.2.2"), 1 << 20);
    assert_eq!(there.len(), KEPT / 4);
}

#[test]
fn the_only_request_of_an_account_may_be_large_and_grows() {
    let memory = memory();
    let mut large = memory.room_of(ALICE);
    for mib in [1, 4, 9] {
        large.cover(mib << 20).unwrap();
    }
    let mut another = memory.room_of(ALICE);
    assert_eq!(another.cover(1 << 20).unwrap_err().status(), 429);
    // Small requests are not counted in the share.
    another.cover(1 << 10).unwrap();
    // A failed request leaves no share.
    let mut bobs = memory.room_of(BOB);
    assert_eq!(bobs.cover(4 << 20).unwrap_err().status(), 503);
    drop((large, another));
    assert!(memory.0.shares.is_empty());
}

#[test]
fn a_body_counts_for_an_account_once_it_is_known() {
    let memory = memory();
    let body = |bytes| {
        let mut room = memory.room();
        room.cover(bytes).unwrap();
        room
    };
    let (mut one, mut other) = (body(2 << 20), body(2 << 20));
    one.count_for(ALICE).unwrap();
    assert_eq!(other.count_for(ALICE).unwrap_err().status(), 429);
    other.count_for(BOB).unwrap();
    drop((one, other));
    assert!(memory.0.shares.is_empty());
}
