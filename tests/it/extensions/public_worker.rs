//! A worker of the public network negotiates nothing: it sees the public protocol, and words of ours mean nothing from
//! it.

use std::time::Duration;

use futures_util::StreamExt;
use muster::coordinator::dispatch::{Outcome, Settings};
use muster::coordinator::workers::WorkersSettings;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::support::rig::{Board, public, read_all, read_tokens};

const MOMENT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn without_multi_it_has_one_job_at_a_time_and_no_attempts() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut one = board.submit("one").await;
    let mut two = board.submit("two").await;
    let job = rig.job().await;
    assert!(job.get("att").is_none(), "{job}");
    assert!(rig.hears_nothing(MOMENT).await);
    // The public protocol cannot hand a job back.
    rig.send(json!({"type": "busy", "id": job["id"], "retry_ms": 60}))
        .await;
    rig.token(&job, "1").await;
    rig.done(&job).await;
    assert_eq!(read_all(&mut one).await.0, "1");
    let ack = rig.frame().await;
    assert_eq!((&ack["type"], ack.get("att")), (&json!("ack"), None));
    let job = rig.job().await;
    rig.token(&job, "2").await;
    rig.done(&job).await;
    assert_eq!(read_all(&mut two).await.0, "2");
}

#[tokio::test]
async fn without_cancel2_a_cancel_names_the_job_and_nothing_else() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let stream = board.submit("hello").await;
    let job = rig.job().await;
    drop(stream);
    let cancel = rig.frame().await;
    assert_eq!(cancel, json!({"type": "cancel", "id": job["id"]}));
}

#[tokio::test]
async fn without_state_a_report_changes_nothing() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    rig.send(json!({"type": "state", "models": [{"name": "tiny", "status": "loading", "max": 0}]}))
        .await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.token(&job, "hi").await;
    rig.done(&job).await;
    assert_eq!(read_all(&mut stream).await.0, "hi");
}

#[tokio::test]
async fn without_resume_numbers_and_claims_mean_nothing_and_nothing_is_confirmed() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    for seq in [7, 3, 32, 64] {
        rig.numbered(&job, seq, "a").await;
    }
    assert_eq!(read_tokens(&mut stream, 4).await, "aaaa");
    assert!(rig.hears_nothing(MOMENT).await, "nothing is confirmed");
    drop(rig);
    assert!(matches!(
        read_all(&mut stream).await.1,
        Outcome::Failed(failure) if failure.status() == 502
    ));
    let mut registration = public("rig");
    registration["resume"] =
        json!({"session": "s", "jobs": [{"id": job["id"], "att": 1, "last": 4}]});
    let (_, ready) = board.rig(registration).await;
    assert!(
        ready.get("resume").is_none() && ready.get("ext").is_none(),
        "{ready}"
    );
}

#[tokio::test]
async fn without_drain_its_wish_to_leave_means_nothing_and_ours_is_only_a_close() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    rig.send(json!({"type": "drain", "deadline_s": 0})).await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    rig.token(&job, "hi").await;
    rig.done(&job).await;
    read_all(&mut stream).await;
    assert_eq!(rig.frame().await["type"], "ack");
    let stopping = board.tasks.stop(Duration::from_secs(10));
    let (_, next) = tokio::join!(stopping, async {
        let next = rig.socket.next().await;
        drop(rig);
        next
    });
    assert!(
        matches!(&next, Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == 1012),
        "{next:?}"
    );
}

#[tokio::test]
async fn without_coalesce_every_delta_comes_alone_and_is_relayed_alone() {
    let board = Board::start();
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    for text in ["a", "b", "c"] {
        rig.token(&job, text).await;
        assert_eq!(read_tokens(&mut stream, 1).await, text);
    }
    rig.done(&job).await;
    assert!(matches!(
        read_all(&mut stream).await.1,
        Outcome::Delivered { .. }
    ));
}

#[tokio::test]
async fn without_lease_it_may_be_silent_and_knows_no_deadline() {
    let settings = Settings {
        beat_window: Duration::from_millis(50),
        ..Settings::default()
    };
    let board = Board::with(settings, WorkersSettings::default());
    let mut rig = board.public_rig("rig").await;
    let mut stream = board.submit("hello").await;
    let job = rig.job().await;
    assert!(job.get("deadline_ms").is_none(), "{job}");
    assert!(
        rig.hears_nothing(4 * MOMENT).await,
        "many beats are missing"
    );
    rig.token(&job, "hi").await;
    rig.done(&job).await;
    assert_eq!(read_all(&mut stream).await.0, "hi");
}
