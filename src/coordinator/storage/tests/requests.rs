//! Cancelled and stopped requests, as read by the next process.

use std::time::Duration;

use super::on_both_engines;
use super::scratch::Scratch;
use crate::storage::{Dues, RequestRow, Store, Wanted};
use muster_protocol::job::{AccountId, Kind, Kudos, RequestId, UnixMillis};

on_both_engines! { a_request_that_ended_waiting_is_told_from_one_that_its_client_cancelled }

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

async fn accept(store: &Store) -> RequestId {
    let row = RequestRow {
        id: RequestId::random(),
        account: AccountId(1),
        kind: Kind::Image,
        body: "{}".to_owned(),
        accepted_at: NOW,
        expires_at: NOW.after(Duration::from_secs(600)),
        wanted: Wanted::Everything,
        fee: Kudos(0),
    };
    let id = row.id;
    store.accept(row, Dues::default()).await.unwrap();
    id
}

async fn a_request_that_ended_waiting_is_told_from_one_that_its_client_cancelled(scratch: Scratch) {
    let store = scratch.open().await;
    let whole = accept(&store).await;
    let (ended, cancelled) = (accept(&store).await, accept(&store).await);
    let both = [accept(&store).await, accept(&store).await];
    store.end_waiting(ended).await.unwrap();
    store.cancel_request(cancelled).await.unwrap();
    // The client's cancellation wins, in either order.
    store.end_waiting(both[0]).await.unwrap();
    store.cancel_request(both[0]).await.unwrap();
    store.cancel_request(both[1]).await.unwrap();
    store.end_waiting(both[1]).await.unwrap();
    let open = store.open_requests(NOW).await.unwrap();
    let wanted = |id| {
        let found = open.iter().find(|one| one.request.id == id);
        found.unwrap().request.wanted
    };
    assert_eq!(wanted(whole), Wanted::Everything);
    assert_eq!(wanted(ended), Wanted::Begun);
    for id in [cancelled, both[0], both[1]] {
        assert_eq!(wanted(id), Wanted::Nothing);
    }
}
