//! A worker without a socket: it records effects, and sends the frames of its test.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use muster::coordinator::dispatch::{
    Extensions, Frame, Input, Offer, Offering, Registration, Said, ServedModel, SessionId,
};
use muster::coordinator::metering::Belief;
use muster::coordinator::switchboard::{Card, Gpus, Order, Orders, Switchboard, WorkerLine};
use muster::protocol::job::{
    AccountId, Capabilities, Event, Failure, FailureKind, FinishReason, Formats, Kind, Kinds,
    Reach, TokenEvent, Usage, WorkerId,
};
use tokio::time::timeout;
use uuid::Uuid;

use super::app::PATIENCE;

pub struct Puppet {
    session: SessionId,
    orders: Arc<Orders>,
    line: WorkerLine,
    waiting: Mutex<VecDeque<Order>>,
}

impl Puppet {
    /// Serves `tiny`, many jobs at once.
    pub async fn connect(board: &Switchboard) -> Self {
        Self::serving(
            board,
            "tiny",
            Capabilities::TOOLS.with(Capabilities::LOGPROBS),
        )
        .await
    }

    pub async fn serving(board: &Switchboard, model: &str, capabilities: Capabilities) -> Self {
        Self::with_context(board, model, capabilities, 4096).await
    }

    pub async fn of_kind(board: &Switchboard, model: &str, kind: Kind) -> Self {
        let offering = Offering {
            kinds: kind.into(),
            ..Offering::text(4096)
        };
        Self::offering(board, model, Capabilities::default(), offering).await
    }

    pub async fn with_context(
        board: &Switchboard,
        model: &str,
        capabilities: Capabilities,
        context: u32,
    ) -> Self {
        Self::offering(board, model, capabilities, Offering::text(context)).await
    }

    async fn offering(
        board: &Switchboard,
        model: &str,
        capabilities: Capabilities,
        offering: Offering,
    ) -> Self {
        let context = offering.reach.text.context;
        let session = board.next_session();
        let orders = Arc::new(Orders::default());
        let card = Card {
            name: format!("rig-{}", session.0).into(),
            public_id: Uuid::from_u128(u128::from(session.0)),
            agent: "test".into(),
            modalities: Arc::from(["text".into()]),
            context,
            belief: Belief::Whole,
            gpus: Gpus::default(),
        };
        let registration = Registration {
            session,
            // No row of the store's has this number.
            worker: WorkerId(1_000_000 + session.0 as i64),
            owner: AccountId(9),
            prefers: Vec::new(),
            own_only: false,
            trusted: false,
            kinds: Kinds::from(Kind::Text),
            formats: Formats::NEUTRAL,
            capabilities,
            reach: Reach::ENDLESS.with_context(context),
            models: vec![ServedModel {
                name: model.into(),
                slots: 64,
                offering,
            }],
            slots: 64,
            extensions: Extensions {
                multi: true,
                cancel: true,
                resume: false,
                lease: true,
            },
            polls: false,
            agent: None,
            resume: None,
        };
        let line = board.connect(registration, card, orders.clone()).await;
        let rig = Self {
            session,
            orders,
            line: line.unwrap(),
            waiting: Mutex::default(),
        };
        assert!(matches!(rig.order().await, Order::Ready { .. }));
        rig
    }

    pub async fn order(&self) -> Order {
        self.order_within(PATIENCE).await
    }

    pub async fn order_within(&self, patience: Duration) -> Order {
        let next = poll_fn(|context| {
            let mut waiting = self.waiting.lock().unwrap();
            if waiting.is_empty() {
                std::task::ready!(self.orders.poll_take(&mut waiting, context));
            }
            Poll::Ready(waiting.pop_front().unwrap())
        });
        timeout(patience, next).await.unwrap()
    }

    pub async fn offer(&self) -> Offer {
        self.offer_within(PATIENCE).await
    }

    pub async fn offer_within(&self, patience: Duration) -> Offer {
        loop {
            match self.order_within(patience).await {
                Order::Offer(offer) => return *offer,
                Order::Ack { .. } | Order::Got { .. } => {}
                other => panic!("an offer was wanted, found {other:?}"),
            }
        }
    }

    /// Waits until the job of this offer is cancelled, and confirms it.
    pub async fn cancelled(&self, offer: &Offer) {
        loop {
            match self.order().await {
                Order::Cancel { job, .. } if job == offer.job.id => {
                    return self.say(offer, [done(FinishReason::Cancelled)]).await;
                }
                Order::Ack { .. } | Order::Got { .. } => {}
                other => panic!("a cancel was wanted, found {other:?}"),
            }
        }
    }

    /// The same for many, in any order.
    pub async fn cancelled_all(&self, offers: &[Offer]) {
        let mut left: Vec<&Offer> = offers.iter().collect();
        while !left.is_empty() {
            match self.order().await {
                Order::Cancel { job, .. } => {
                    let place = left.iter().position(|offer| offer.job.id == job);
                    let offer = left.swap_remove(place.unwrap());
                    self.say(offer, [done(FinishReason::Cancelled)]).await;
                }
                Order::Ack { .. } | Order::Got { .. } => {}
                other => panic!("a cancel was wanted, found {other:?}"),
            }
        }
    }

    pub async fn say(&self, offer: &Offer, said: impl IntoIterator<Item = Event>) {
        let inputs = said.into_iter().map(|event| {
            Input::Frame(Frame {
                session: self.session,
                job: offer.job.id,
                attempt: Some(offer.attempt),
                seq: None,
                said: Said::Event(event),
            })
        });
        self.line.say(inputs.collect()).await.unwrap();
    }

    /// Takes the next job and answers it with these words.
    pub async fn answer(&self, words: &[&str]) {
        let offer = self.offer().await;
        let said = words.iter().map(|word| text(word));
        self.say(&offer, said.chain([done(FinishReason::Stop)]))
            .await;
    }
}

pub fn started() -> Event {
    Event::Started {
        prompt_tokens: 5,
        cached_tokens: 2,
    }
}

pub fn text(text: &str) -> Event {
    Event::Token(TokenEvent {
        text: text.to_owned(),
        ids: vec![1],
        ..TokenEvent::default()
    })
}

pub fn done(finish: FinishReason) -> Event {
    let usage = Usage {
        prompt_tokens: 5,
        cached_tokens: 2,
        completion_tokens: 3,
        reasoning_tokens: 0,
    };
    Event::Done { finish, usage }
}

pub fn failed(kind: FailureKind, message: &'static str) -> Event {
    Event::Failed(Failure::new(kind, message))
}
