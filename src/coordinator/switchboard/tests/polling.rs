//! Pops and submits of polling workers.

use std::time::Duration;

use tokio::time::timeout;
use uuid::Uuid;

use super::super::{Brought, Card, News, Pop, Popped, Receipt, Switchboard};
use super::{done, job, ledger, registration, submit, text};
use crate::dispatch::{Extensions, Frame, Offer, Registration, Said, SessionId, Settings, Wants};
use crate::metering::Belief;
use muster_process::tasks::Tasks;
use muster_protocol::job::{Formats, Job, Kudos, WorkerId};

const POLLING: Extensions = Extensions {
    multi: true,
    cancel: false,
    resume: false,
    lease: false,
};

fn here(session: SessionId, worker: i64) -> (Box<Registration>, Card) {
    let mut registration = registration(session, WorkerId(worker), POLLING, 1);
    registration.formats = Formats::LEGACY;
    registration.polls = true;
    let card = Card {
        name: format!("poller {worker}").into(),
        public_id: Uuid::new_v4(),
        agent: "test".into(),
        modalities: Default::default(),
        context: 4096,
        belief: Belief::Nothing,
        gpus: Default::default(),
    };
    (Box::new(registration), card)
}

async fn ask(board: &Switchboard, session: SessionId, news: Option<News>) -> Option<Popped> {
    let wants = Wants::most(1);
    let pop = Pop {
        session,
        news,
        wants,
    };
    board.pop(pop).await.unwrap()
}

/// The first pop of a worker.
async fn come(board: &Switchboard, worker: i64) -> Popped {
    let session = board.next_session();
    let (registration, card) = here(session, worker);
    let news = News::Here(registration, card);
    ask(board, session, Some(news)).await.unwrap()
}

/// A worker that has popped without getting a job.
async fn waiting(board: &Switchboard, worker: i64) -> SessionId {
    let popped = come(board, worker).await;
    assert!(popped.offers.is_empty());
    SessionId(board.next_session().0 - 1)
}

async fn pop(board: &Switchboard, session: SessionId) -> Offer {
    kept(ask(board, session, None).await.unwrap())
}

fn kept(mut popped: Popped) -> Offer {
    popped.offers.keep();
    popped.offers[0].clone()
}

async fn bring(board: &Switchboard, offer: &Offer) -> Receipt {
    let frame = |event| Frame {
        session: offer.session,
        job: offer.job.id,
        attempt: Some(offer.attempt),
        seq: None,
        said: Said::Event(event),
    };
    let brought = Brought {
        job: offer.job.id,
        attempt: offer.attempt,
        frames: [text("hi"), done(0)].map(frame).into(),
    };
    let receipt = timeout(Duration::from_secs(10), board.bring(brought)).await;
    receipt.expect("an answer").unwrap()
}

fn for_pollers(prompt: &str) -> Job {
    let mut job = job(prompt);
    job.limits.formats = Formats::NEUTRAL.with(Formats::LEGACY);
    job
}

#[tokio::test]
async fn what_is_brought_on_a_session_that_has_ended_is_not_wanted_and_the_next_attempt_is() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let first = waiting(&board, 1).await;
    let _stream = submit(&board, for_pollers("hello")).await.unwrap();
    let late = pop(&board, first).await;
    board.lost(first).await.unwrap();
    assert_eq!(bring(&board, &late).await, Receipt::NotWanted);
    let offer = kept(come(&board, 2).await);
    assert_eq!((offer.job.id, offer.attempt), (late.job.id, 2));
    assert_eq!(bring(&board, &late).await, Receipt::NotWanted);
    assert_eq!(bring(&board, &offer).await, Receipt::Taken(Kudos(7)));
}

#[tokio::test]
async fn a_worker_whose_session_ends_while_its_result_is_written_down_hears_what_it_is_worth() {
    let (tasks, mut ledger) = (Tasks::default(), ledger());
    ledger.open.forget_permits(1000);
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let session = waiting(&board, 1).await;
    let _stream = submit(&board, for_pollers("hello")).await.unwrap();
    let offer = pop(&board, session).await;
    let ends = async {
        board.lost(session).await.unwrap();
        assert!(come_in(&board).await.is_none());
        ledger.open.add_permits(1);
        ledger.settled.recv().await.unwrap();
    };
    let (receipt, ()) = tokio::join!(bring(&board, &offer), ends);
    assert_eq!(receipt, Receipt::Taken(Kudos(7)));
}

/// Returns after all earlier messages were handled.
async fn come_in(board: &Switchboard) -> Option<Popped> {
    ask(board, board.next_session(), None).await
}

#[tokio::test]
async fn the_same_brought_again_by_one_that_hung_up_is_answered_when_it_is_written_down() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    ledger.open.forget_permits(1000);
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let session = waiting(&board, 1).await;
    let _stream = submit(&board, for_pollers("hello")).await.unwrap();
    let offer = pop(&board, session).await;
    let hung_up = timeout(Duration::from_millis(50), bring(&board, &offer)).await;
    assert!(hung_up.is_err());
    let opens = async {
        assert!(come_in(&board).await.is_none());
        ledger.open.add_permits(1);
    };
    let (receipt, ()) = tokio::join!(bring(&board, &offer), opens);
    assert_eq!(receipt, Receipt::Taken(Kudos(7)));
}

#[tokio::test]
async fn a_worker_whose_session_has_ended_has_to_say_who_it_is_even_if_it_says_something_new() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let session = waiting(&board, 1).await;
    board.lost(session).await.unwrap();
    let (registration, card) = here(session, 1);
    let news = News::Changed(registration, card);
    assert!(ask(&board, session, Some(news)).await.is_none());
    assert!(ask(&board, session, None).await.is_none());
}

#[tokio::test]
async fn a_job_whose_worker_did_not_wait_for_it_goes_to_the_next_at_once() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let first = waiting(&board, 1).await;
    let second = waiting(&board, 2).await;
    let _stream = submit(&board, for_pollers("hello")).await.unwrap();
    let popped = ask(&board, first, None).await.unwrap();
    assert_eq!(popped.offers.len(), 1);
    drop(popped);
    let offer = until_given(&board, second).await;
    assert_eq!(offer.attempt, 2);
    assert_eq!(bring(&board, &offer).await, Receipt::Taken(Kudos(7)));
}

#[tokio::test]
async fn a_job_that_was_for_somebody_who_had_hung_up_goes_to_the_next_at_once() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let first = waiting(&board, 1).await;
    let second = waiting(&board, 2).await;
    let _stream = submit(&board, for_pollers("hello")).await.unwrap();
    // The pop is dropped after its message was sent and before a reply.
    assert!(futures_util::FutureExt::now_or_never(ask(&board, first, None)).is_none());
    let offer = until_given(&board, second).await;
    assert_eq!(bring(&board, &offer).await, Receipt::Taken(Kudos(7)));
}

async fn until_given(board: &Switchboard, session: SessionId) -> Offer {
    let given = async {
        loop {
            let popped = ask(board, session, None).await.unwrap();
            if !popped.offers.is_empty() {
                return kept(popped);
            }
        }
    };
    timeout(Duration::from_secs(10), given).await.unwrap()
}
