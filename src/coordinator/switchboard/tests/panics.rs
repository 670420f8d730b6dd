//! A panic costs its own job, and the other clients go on.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use super::super::{Books, Order, Switchboard};
use super::{OURS, Rig, done, job, ledger, next, outcome, submit, text};
use crate::dispatch::{Outcome, Settings};
use muster_process::tasks::Tasks;
use muster_protocol::job::{FailureKind, Kudos};

/// A waker that panics.
struct Trap;

impl std::task::Wake for Trap {
    fn wake(self: Arc<Self>) {
        panic!("as the test wants");
    }
}

#[tokio::test]
async fn a_panic_of_the_task_ends_every_job_with_a_reason_and_the_next_ones_are_served() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let mut rig = Rig::connect(&board, "rig", OURS, 4).await;
    let (mut waiting, mut trapped) = (
        submit(&board, job("one")).await.unwrap(),
        submit(&board, job("two")).await.unwrap(),
    );
    let (first, second) = (rig.offer().await, rig.offer().await);
    let waits = tasks.start(async move { outcome(&mut waiting).await });
    let waker = std::task::Waker::from(Arc::new(Trap));
    let mut context = std::task::Context::from_waker(&waker);
    assert!(trapped.poll_delivery(&mut context).is_pending());
    rig.say(&second, [text("hi")]).await;
    let failure = waits.await.unwrap().failure().unwrap();
    assert_eq!(failure.kind, FailureKind::Internal);
    assert!(outcome(&mut trapped).await.failure().is_some());
    let closed = poll_fn(|context| rig.orders.poll_take(&mut VecDeque::new(), context));
    let closed = timeout(Duration::from_secs(10), closed).await.unwrap();
    assert!(!closed, "the worker is let go, and dials again");
    rig.say(&first, [text("late"), done(1)]).await;
    rig.hang_up();
    let rig = Rig::connect(&board, "rig", OURS, 4).await;
    let mut stream = submit(&board, job("three")).await.unwrap();
    let offer = rig.offer().await;
    rig.say(&offer, [text("hi"), done(1)]).await;
    assert!(matches!(
        outcome(&mut stream).await,
        Outcome::Delivered { .. }
    ));
}

#[tokio::test]
async fn a_handler_that_panics_loses_its_own_job_and_the_socket_keeps_the_others() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 4).await;
    let mut broken = submit(&board, job("one")).await.unwrap();
    let mut sound = submit(&board, job("two")).await.unwrap();
    let (first, second) = (rig.offer().await, rig.offer().await);
    let handler = tasks.start(async move {
        next(&mut broken).await;
        panic!("as the test wants");
    });
    rig.say(&first, [text("hi")]).await;
    assert!(handler.await.is_err());
    let Order::Cancel { job, .. } = rig.order().await else {
        panic!("expected a cancel");
    };
    assert_eq!(job, first.job.id);
    rig.say(&second, [text("hi"), done(1)]).await;
    assert!(matches!(
        outcome(&mut sound).await,
        Outcome::Delivered { .. }
    ));
    assert_eq!(board.figures().sessions, 1);
}

#[tokio::test]
async fn a_panic_of_the_books_is_an_answer_that_has_not_come() {
    let tasks = Tasks::default();
    let asked = Arc::new(Mutex::new(0));
    let times = asked.clone();
    let books = Books::new(move |_, _| {
        let mut times = times.lock();
        *times += 1;
        let is_first = *times == 1;
        async move {
            assert!(!is_first, "as the test wants");
            Ok(Kudos(1))
        }
    });
    let board = Switchboard::start(Settings::default(), books, &tasks);
    let rig = Rig::connect(&board, "rig", OURS, 4).await;
    let mut stream = submit(&board, job("hello")).await.unwrap();
    let offer = rig.offer().await;
    rig.say(&offer, [text("hi"), done(1)]).await;
    assert!(matches!(
        outcome(&mut stream).await,
        Outcome::Delivered { .. }
    ));
    assert_eq!(*asked.lock(), 2);
}
