//! With a paused clock, which advances when every task waits.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};

use super::{Activity, PIECE, Watched};
use crate::http::serve::Connections;
use crate::http::serve::place::Places;

const IDLE: Duration = Duration::from_secs(120);

fn watched(activity: &Arc<Activity>) -> (DuplexStream, Watched<DuplexStream>) {
    let place = Places::new(&Connections::default()).take(None).unwrap();
    let (client, stream) = tokio::io::duplex(64 << 10);
    (client, Watched::new(stream, activity.clone(), place))
}

/// A reply with one piece handed out and none written.
async fn reply_given(activity: &Arc<Activity>) {
    let mut reply = activity.work().replied(Body::from(vec![0; PIECE]));
    assert!(reply.frame().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_only_kept_alive_is_idle() {
    let activity = Arc::new(Activity::new());
    let (mut client, mut watched) = watched(&activity);
    let pings = async {
        for _ in 0..100 {
            sleep(Duration::from_secs(20)).await;
            client.write_all(b"ping").await.unwrap();
            watched.read_exact(&mut [0; 4]).await.unwrap();
        }
    };
    tokio::select! {
        () = activity.idle_for(IDLE) => {}
        () = pings => panic!("it is still here"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_taken_bit_by_bit_is_no_idle_connection() {
    let activity = Arc::new(Activity::new());
    let began = Instant::now();
    let mut reply = activity.work().replied(Body::from(vec![0; 4 * PIECE]));
    let reading = async {
        for _ in 0..4 {
            sleep(Duration::from_secs(100)).await;
            let piece = reply.frame().await.unwrap().unwrap();
            assert_eq!(piece.into_data().unwrap().len(), PIECE);
        }
        assert!(reply.frame().await.is_none());
    };
    tokio::join!(activity.idle_for(IDLE), reading);
    assert_eq!(began.elapsed().as_secs(), 400 + IDLE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_worked_on_is_no_idle_connection() {
    let activity = Arc::new(Activity::new());
    let began = Instant::now();
    let work = activity.work();
    let working = async {
        sleep(10 * IDLE).await;
        drop(work);
    };
    tokio::join!(activity.idle_for(IDLE), working);
    assert_eq!(began.elapsed().as_secs(), 11 * IDLE.as_secs());
}

#[tokio::test]
async fn a_large_reply_says_how_long_it_is_and_what_is_left_of_it() {
    let mut reply = Arc::new(Activity::new())
        .work()
        .replied(Body::from(vec![0; PIECE + 1]));
    for left in [PIECE + 1, 1, 0] {
        assert_eq!(reply.size_hint().exact(), Some(left as u64));
        assert_eq!(reply.is_end_stream(), left == 0);
        reply.frame().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_of_a_reply_may_be_taken_slowly() {
    let activity = Arc::new(Activity::new());
    let (_client, mut watched) = watched(&activity);
    let began = Instant::now();
    reply_given(&activity).await;
    let writing = async {
        for _ in 0..10 {
            sleep(Duration::from_secs(100)).await;
            watched.write_all(&[0; 4 << 10]).await.unwrap();
        }
    };
    tokio::join!(activity.idle_for(IDLE), writing);
    assert_eq!(began.elapsed().as_secs(), 1000 + IDLE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn pings_beside_a_reply_that_stands_still_do_not_get_it_on() {
    let activity = Arc::new(Activity::new());
    let (_client, mut watched) = watched(&activity);
    reply_given(&activity).await;
    let pings = async {
        for _ in 0..100 {
            sleep(Duration::from_secs(20)).await;
            watched.write_all(&[0; 17]).await.unwrap();
        }
    };
    tokio::select! {
        () = activity.idle_for(IDLE) => {}
        () = pings => panic!("it is still here"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_written_of_no_reply_gets_nothing_on() {
    let activity = Arc::new(Activity::new());
    let (_client, mut watched) = watched(&activity);
    let began = Instant::now();
    let writing = async {
        sleep(Duration::from_secs(100)).await;
        watched.write_all(&[0; 4 << 10]).await.unwrap();
    };
    tokio::join!(activity.idle_for(IDLE), writing);
    assert_eq!(began.elapsed().as_secs(), IDLE.as_secs());
}
