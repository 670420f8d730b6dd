//! The task that comes for jobs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::Polling;
use super::client::{Client, Popped};
use super::heard::Heard;
use super::job::{Errand, Job};
use super::rounds::{Came, Rounds};
use crate::link::session::Peer;
use crate::link::{Condition, Offer, Present, Standing, rand_seed};
use crate::protocol::legacy::text::popped::{PoppedText, TextJob, Told};
use crate::tasks::Tasks;

/// What those that are stopped at the end may take to be given back.
const FAREWELL: Duration = Duration::from_secs(2);

pub struct Task {
    line: Polling,
    offers: mpsc::Sender<Offer>,
    condition: watch::Receiver<Condition>,
    tasks: Tasks,
    rounds: Rounds,
    heard: Heard,
    /// One for each job that may run.
    seats: Arc<Semaphore>,
    /// Ends what runs.
    ending: CancellationToken,
    /// The coordinator has answered as one does.
    has_met: bool,
}

impl Task {
    pub fn new(
        line: Polling,
        offers: mpsc::Sender<Offer>,
        condition: watch::Receiver<Condition>,
        tasks: Tasks,
    ) -> Self {
        Self {
            seats: Arc::new(Semaphore::new(line.served.jobs)),
            ending: tasks.stopping().child_token(),
            rounds: Rounds::new(rand_seed()),
            heard: Heard::default(),
            has_met: false,
            line,
            offers,
            condition,
            tasks,
        }
    }

    pub async fn run(mut self, told: watch::Sender<Standing>, _present: Present) {
        let label = self.line.label.clone();
        let refused = match Client::new(&self.line) {
            Ok(client) => self.ask_on(&client, &told).await,
            Err(why) => Some(why),
        };
        if refused.is_some() {
            self.go_on().await;
        }
        self.finish().await;
        told.send_replace(match refused {
            Some(why) => {
                error!("{label} refuses this worker: {why}");
                Standing::Refused(why)
            }
            None => Standing::Left,
        });
    }

    /// Until it is time to leave, or nobody wants us: then with the reason.
    async fn ask_on(&mut self, client: &Client, told: &watch::Sender<Standing>) -> Option<String> {
        while let Some(seat) = self.seat().await {
            let amount = self.seats.available_permits() + 1;
            let came = match client.pop(&self.line, amount).await {
                Popped::Refused(why) => return Some(why),
                Popped::Strange(why) if !self.has_met => return Some(why),
                Popped::Strange(why) => {
                    self.note(Came::NoAnswer, &why, told);
                    Came::NoAnswer
                }
                Popped::Text(popped, messages) => {
                    self.hear(messages);
                    self.take(popped, seat, client)
                }
                Popped::Not(came, why) => {
                    self.note(came, &why, told);
                    came
                }
            };
            if matches!(came, Came::Jobs | Came::Nothing | Came::Maintenance) {
                self.has_met = true;
                self.arrive(told);
            }
            let wait = self.rounds.after(came);
            tokio::select! {
                () = sleep(wait) => {}
                () = self.time_to_leave() => return None,
            }
        }
        None
    }

    /// Room for one job, while the owner lets us work. None when it is time to leave.
    async fn seat(&self) -> Option<OwnedSemaphorePermit> {
        let mut condition = self.condition.clone();
        let free = async {
            let seat = self.seats.clone().acquire_owned().await;
            // Nobody is left who could end a pause.
            let _ = condition.wait_for(|now| !now.is_paused).await;
            seat.ok()
        };
        tokio::select! {
            biased;
            () = self.time_to_leave() => None,
            seat = free => seat,
        }
    }

    async fn time_to_leave(&self) {
        let mut condition = self.condition.clone();
        let told = condition.wait_for(|now| now.leave_within.is_some());
        tokio::select! {
            () = self.ending.cancelled() => {}
            _ = told => {}
        }
    }

    /// For whoever reads the log.
    fn hear(&mut self, messages: Vec<Told>) {
        for Told { origin, text, .. } in self.heard.news(messages) {
            info!("{}: a message of {origin}: {text}", self.line.label);
        }
    }

    fn take(&self, popped: PoppedText, seat: OwnedSemaphorePermit, client: &Client) -> Came {
        match popped {
            PoppedText::Nothing { .. } => Came::Nothing,
            PoppedText::Unreadable { id, why } => {
                warn!(
                    "{}: job {id} cannot be read and is given back: {why}",
                    self.line.label
                );
                self.errand(client).start(id, None, seat);
                Came::Jobs
            }
            PoppedText::Job(job) => {
                self.start(*job, seat, client);
                Came::Jobs
            }
        }
    }

    /// Each of its ids is a job of its own.
    fn start(&self, popped: TextJob, seat: OwnedSemaphorePermit, client: &Client) {
        let job = Job::of(&popped, &self.line.served);
        if let Err(why) = &job {
            warn!("{}: a job is given back: {why}", self.line.label);
        }
        let mut seat = Some(seat);
        for id in popped.ids {
            // More than were asked for find no seat: they are given back as well.
            let seat = seat
                .take()
                .or_else(|| self.seats.clone().try_acquire_owned().ok());
            let errand = self.errand(client);
            match seat {
                Some(seat) => errand.start(id, job.clone().ok(), seat),
                None => errand.give_back(id),
            }
        }
    }

    fn errand(&self, client: &Client) -> Errand {
        Errand {
            label: self.line.label.clone(),
            client: client.clone(),
            offers: self.offers.clone(),
            ending: self.ending.clone(),
            tasks: self.tasks.clone(),
        }
    }

    fn arrive(&self, told: &watch::Sender<Standing>) {
        let here = Standing::Connected(Peer::Public);
        let is_new = *told.borrow() != here;
        if is_new {
            info!("{} takes this worker in", self.line.label);
            told.send_replace(here);
        }
    }

    /// Said when it is news.
    fn note(&self, came: Came, why: &str, told: &watch::Sender<Standing>) {
        let label = &self.line.label;
        match came {
            Came::Maintenance => info!("{label} has this worker in maintenance: {why}"),
            Came::TooOften(_) => info!("{label} asks for patience: {why}"),
            _ => {
                warn!("{label} cannot be reached: {why}");
                told.send_replace(Standing::Away);
            }
        }
    }

    /// What runs was given to us before we were refused: it is made and brought, unless it is time to leave.
    async fn go_on(&self) {
        let all = u32::try_from(self.line.served.jobs).unwrap_or(u32::MAX);
        tokio::select! {
            _ = self.seats.acquire_many(all) => {}
            () = self.time_to_leave() => {}
        }
    }

    /// What runs may end within the time there is; the rest is given back.
    async fn finish(&mut self) {
        let all = u32::try_from(self.line.served.jobs).unwrap_or(u32::MAX);
        let grace = self.condition.borrow().leave_within.unwrap_or_default();
        let done = async || self.seats.acquire_many(all).await.is_ok();
        if timeout(grace, done()).await.is_err() {
            self.ending.cancel();
            if timeout(FAREWELL, done()).await.is_err() {
                warn!("{} was not told of all jobs that end here", self.line.label);
            }
        }
    }
}
