//! Modes of the service, shared by all processes of a store.

use std::time::Duration;

use tokio::time::timeout;

use super::on_both_engines;
use super::scratch::Scratch;
use crate::values::modes::ModeSet;

on_both_engines! {
    a_switched_mode_is_followed_by_every_process,
    modes_outlast_the_process,
}

async fn a_switched_mode_is_followed_by_every_process(scratch: Scratch) {
    let (here, there) = (scratch.open().await, scratch.open().await);
    let mut followed = there.modes();
    assert_eq!(followed.borrow_and_update().modes, ModeSet::default());
    let both = ModeSet::MAINTENANCE.with(ModeSet::RAID);
    here.switch_modes(vec![(both, true)]).await.unwrap();
    assert_eq!(here.modes().borrow().modes, both);
    let heard = timeout(Duration::from_secs(5), followed.changed()).await;
    heard.unwrap().unwrap();
    assert_eq!(followed.borrow_and_update().modes, both);
    here.switch_modes(vec![(ModeSet::MAINTENANCE, false)])
        .await
        .unwrap();
    let heard = timeout(Duration::from_secs(5), followed.changed()).await;
    heard.unwrap().unwrap();
    assert_eq!(followed.borrow().modes, ModeSet::RAID);
}

async fn modes_outlast_the_process(scratch: Scratch) {
    let before = scratch.open().await;
    let switches = vec![(ModeSet::RAID, true), (ModeSet::INVITE_ONLY, false)];
    before.switch_modes(switches).await.unwrap();
    drop(before);
    let after = scratch.open().await;
    assert_eq!(after.modes().borrow().modes, ModeSet::RAID);
}
