use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::select;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{pause, timeout};

use super::{Ask, Badges, Made, NotTaken, Pollers};
use crate::accounts::{Caller, Payer};
use crate::clock::wall_clock;
use crate::dispatch::{Settings, Standing, Submission, Wants};
use crate::metering::Counted;
use crate::names::Names;
use crate::requests::Order;
use crate::requests::orders::Asked;
use crate::rigs::{Records, RigSettings, Rigs};
use crate::storage::{Location, NewLogin, Said, Store};
use crate::switchboard::{Books, JobStream, Switchboard};
use muster_process::tasks::Tasks;
use muster_protocol::job::{
    Capabilities, JobId, Kind, Kudos, Product, Reach, RequestId, TextNeeds,
};
use muster_protocol::legacy::Body as _;
use muster_protocol::legacy::text::request::GenerationInputText;

const PATIENCE: Duration = Duration::from_secs(30);

/// A store that settles on command, and reports requests for settlement.
struct Ledger {
    asked: Arc<Notify>,
    open: Arc<Semaphore>,
}

impl Ledger {
    fn closed() -> Self {
        Self {
            asked: Arc::default(),
            open: Arc::new(Semaphore::new(0)),
        }
    }

    /// Pauses the clock once the ledger is called, so that no timeout depends on the machine's speed.
    async fn stops_the_clock(&self) {
        self.asked.notified().await;
        pause();
    }

    fn books(&self) -> Books {
        let (asked, open) = (self.asked.clone(), self.open.clone());
        Books::new(move |_, _: Counted| {
            let (asked, open) = (asked.clone(), open.clone());
            async move {
                asked.notify_one();
                open.acquire().await.unwrap().forget();
                Ok(Kudos(1))
            }
        })
    }
}

struct Place {
    pollers: Pollers,
    board: Switchboard,
    caller: Caller,
    _folder: TempDir,
    _tasks: Tasks,
}

async fn place(ledger: &Ledger) -> Place {
    place_waiting(ledger, PATIENCE).await
}

/// A service whose submits wait this long for the ledger.
async fn place_waiting(ledger: &Ledger, patience: Duration) -> Place {
    let (tasks, folder) = (Tasks::default(), tempfile::tempdir().unwrap());
    let location = Location::in_folder(folder.path());
    let store = Store::open(&location, &tasks).await.unwrap();
    let login = NewLogin {
        name: "alice".to_owned(),
        login: "alice".to_owned(),
        kudos: None,
        now: wall_clock(),
    };
    let mut caller = Caller::anonymous();
    caller.account = store.log_in(login).await.unwrap().account;
    let board = Switchboard::start(Settings::default(), ledger.books(), &tasks);
    let records = Records::new(store.modes());
    let rigs = Rigs::start(
        records,
        board.clone(),
        store,
        RigSettings::default(),
        &tasks,
    );
    let words = (Names::default(), Badges::new(&[1; 32]));
    Place {
        pollers: Pollers::waiting(patience, board.clone(), rigs, (words, &tasks)),
        board,
        caller,
        _folder: folder,
        _tasks: tasks,
    }
}

impl Place {
    /// A text job on a worker, by its ticket.
    async fn text_that_is_out(&self) -> (JobId, Vec<JobStream>) {
        let payer = Payer::of(&Caller::anonymous(), None, false, wall_clock()).unwrap();
        let asked = json!({"prompt": "p", "models": ["tiny"]});
        let asked = Asked::text(GenerationInputText::read(asked).unwrap());
        let order = Order::new(RequestId::random(), &payer, asked);
        let submission = Submission {
            jobs: order.jobs(&Names::default()),
            standing: Standing::default(),
        };
        let streams = self.board.submit(submission).await.unwrap();
        let popped = self.pollers.pop(&self.caller, ask(), Wants::most(1)).await;
        let mut given = popped.unwrap();
        given.offers.keep();
        (given.ids()[0], streams)
    }

    async fn bring(&self, id: JobId, made: Made) -> Result<Kudos, NotTaken> {
        let owner = self.caller.account;
        let attempt = self.pollers.attempt(owner, id, Kind::Text).await?;
        self.pollers.bring_alone(owner, attempt, made).await
    }
}

fn ask() -> Ask {
    Ask {
        name: "rig".into(),
        agent: "test:1:url".into(),
        kind: Kind::Text,
        models: vec!["tiny".into()],
        capabilities: Capabilities::TIMELY,
        reach: Reach {
            text: TextNeeds {
                context: 4096,
                window: 4096,
                output: 512,
            },
            ..Reach::default()
        },
        threads: 1,
        prefers: Vec::new(),
        said: Said::default(),
    }
}

fn made() -> Made {
    written("a text".to_owned())
}

fn written(text: String) -> Made {
    Made::Brought {
        product: Product::from(text),
        hidden: None,
    }
}

#[tokio::test]
async fn what_is_brought_while_the_ledger_is_closed_is_brought_again_and_paid_once() {
    let ledger = Ledger::closed();
    let place = place_waiting(&ledger, Duration::from_millis(250)).await;
    let (id, _streams) = place.text_that_is_out().await;
    let bring = || place.bring(id, made());
    let twice = async { [bring().await, bring().await] };
    let (twice, ()) = tokio::join!(twice, ledger.stops_the_clock());
    assert_eq!(twice, [Err(NotTaken::Unavailable); 2]);
    // The first submit is waiting for the ledger and is answered after this one.
    let opening = async { ledger.open.add_permits(1) };
    let (brought, ()) = tokio::join!(biased; bring(), opening);
    assert_eq!(brought, Ok(Kudos(1)));
    assert_eq!(bring().await, Err(NotTaken::Already));
}

#[tokio::test]
async fn what_is_brought_is_known_as_that_though_its_worker_has_hung_up() {
    let ledger = Ledger::closed();
    let place = place(&ledger).await;
    let (owner, (id, _streams)) = (place.caller.account, place.text_that_is_out().await);
    let attempt = place.pollers.attempt(owner, id, Kind::Text);
    let attempt = attempt.await.unwrap();
    let bringing = place.pollers.bring_alone(owner, attempt, made());
    select! {
        brought = bringing => panic!("it is not on disk yet: {brought:?}"),
        () = ledger.asked.notified() => {}
    }
    ledger.open.add_permits(1);
    let again = place.pollers.attempt(owner, id, Kind::Text);
    let again = timeout(PATIENCE, again).await;
    assert_eq!(again.unwrap().unwrap_err(), NotTaken::Already);
}

#[tokio::test]
async fn what_is_brought_twice_at_once_is_paid_once_and_not_said_to_be_taken_away() {
    let ledger = Ledger::closed();
    let place = place_waiting(&ledger, Duration::from_millis(250)).await;
    let (id, _streams) = place.text_that_is_out().await;
    let both = async { tokio::join!(biased; place.bring(id, made()), place.bring(id, made())) };
    let unavailable = Err(NotTaken::Unavailable);
    let (both, ()) = tokio::join!(both, ledger.stops_the_clock());
    assert_eq!(both, (unavailable, unavailable));
    let opening = async { ledger.open.add_permits(1) };
    let again = async { tokio::join!(biased; place.bring(id, made()), place.bring(id, made())) };
    let (again, ()) = tokio::join!(biased; again, opening);
    assert_eq!(again, (Ok(Kudos(1)), Err(NotTaken::Already)));
}

#[tokio::test]
async fn what_is_too_long_is_refused_and_the_job_is_somebody_elses_at_once() {
    let ledger = Ledger::closed();
    let place = place(&ledger).await;
    let (id, _streams) = place.text_that_is_out().await;
    let (bytes, most) = ((64 << 10) + 1, 64 << 10);
    let long = written("x".repeat(bytes));
    let refused = place.bring(id, long).await;
    assert_eq!(refused, Err(NotTaken::TooLong { bytes, most }));
    assert_eq!(place.bring(id, made()).await, Err(NotTaken::TakenAway));
}
