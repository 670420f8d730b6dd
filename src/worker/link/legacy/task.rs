//! The polling task.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::client::{Client, Popped, said};
use super::heard::Heard;
use super::job::{Errand, Job, Records};
use super::rounds::{Came, Rounds};
use super::skips::Skips;
use super::{Polling, Served};
use crate::link::feedback::LinkProblem;
use crate::link::session::Peer;
use crate::link::ws::{report_maintenance, whole_seconds};
use crate::link::{Condition, Feedback, Offer, Present, Standing, Transfers, rand_seed};
use muster_process::tasks::Tasks;
use muster_protocol::legacy::popped::{PoppedJob, PoppedWork, Told};

/// Time for returning cancelled jobs at the end.
const FAREWELL: Duration = Duration::from_secs(2);

pub struct Task {
    line: Polling,
    /// The offer that was last sent to the coordinator.
    served: Served,
    offers: mpsc::Sender<Offer>,
    condition: watch::Receiver<Condition>,
    tasks: Tasks,
    rounds: Rounds,
    heard: Heard,
    skips: Skips,
    records: Records,
    feedback: Feedback,
    transfers: Transfers,
    /// A permit per concurrent job.
    seats: Arc<Semaphore>,
    /// Cancels running jobs.
    ending: CancellationToken,
}

impl Task {
    pub fn new(
        line: Polling,
        offers: mpsc::Sender<Offer>,
        condition: watch::Receiver<Condition>,
        tasks: Tasks,
    ) -> Self {
        let served = line.served.borrow().clone();
        Self {
            seats: Arc::new(Semaphore::new(served.jobs)),
            served,
            ending: tasks.stopping().child_token(),
            rounds: Rounds::new(rand_seed()),
            heard: Heard::default(),
            skips: Skips::default(),
            records: Records::default(),
            feedback: Feedback::default(),
            transfers: Transfers::near(line.base.clone(), line.tls.clone(), &line.media_hosts),
            line,
            offers,
            condition,
            tasks,
        }
    }

    pub fn feedback(&self) -> Feedback {
        self.feedback.clone()
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

    /// Polls until the worker leaves or is refused; returns the reason of a refusal.
    async fn ask_on(&mut self, client: &Client, told: &watch::Sender<Standing>) -> Option<String> {
        while let Some(seat) = self.seat().await {
            if !self.rest().await {
                return None;
            }
            let mut refusal = None;
            let amount = self.seats.available_permits() + 1;
            self.served = self.line.served.borrow().clone();
            if self.served.models.is_empty() {
                match self.until_models_come().await {
                    true => continue,
                    false => return None,
                }
            }
            let came = match client.pop(&self.line.name, &self.served, amount).await {
                Popped::Refused(why) => return Some(why),
                Popped::Work(popped, messages) => {
                    self.hear(messages);
                    self.take(popped, seat, client)
                }
                Popped::Not(came, why) => {
                    refusal = Some(why);
                    came
                }
            };
            if matches!(came, Came::Jobs | Came::Nothing | Came::Maintenance) {
                self.arrive(told);
            }
            let wait = self.rounds.after(came);
            self.note(came, refusal, wait, told);
            tokio::select! {
                () = sleep(wait) => {}
                () = self.time_to_leave() => return None,
            }
        }
        None
    }

    /// A permit for a job while the worker is not paused. `None` when the worker leaves.
    async fn seat(&self) -> Option<OwnedSemaphorePermit> {
        let mut condition = self.condition.clone();
        let free = async {
            let seat = self.seats.clone().acquire_owned().await;
            // Fails if the sender is dropped: the pause could never end.
            let _ = condition.wait_for(|now| !now.is_paused).await;
            seat.ok()
        };
        tokio::select! {
            biased;
            () = self.time_to_leave() => None,
            seat = free => seat,
        }
    }

    /// Waits after returned jobs. False when the worker leaves.
    async fn rest(&self) -> bool {
        let Some((given_back, until)) = self.records.rest() else {
            return true;
        };
        let seconds = until.duration_since(Instant::now()).as_secs();
        info!(
            "{}: {given_back} jobs were handed back within an hour, polling again in {seconds} s",
            self.line.label
        );
        tokio::select! {
            () = sleep_until(until) => true,
            () = self.time_to_leave() => false,
        }
    }

    /// Waits for models, because a coordinator might send any job for a pop without models. False when the worker
    /// leaves.
    async fn until_models_come(&self) -> bool {
        let mut served = self.line.served.clone();
        tokio::select! {
            told = served.wait_for(|served| !served.models.is_empty()) => told.is_ok(),
            () = self.time_to_leave() => false,
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

    /// Logs new messages.
    fn hear(&mut self, messages: Vec<Told>) {
        for Told { origin, text, .. } in self.heard.news(messages) {
            info!("{}: message from {origin}: {text}", self.line.label);
        }
    }

    fn take(&mut self, popped: PoppedWork, seat: OwnedSemaphorePermit, client: &Client) -> Came {
        match popped {
            PoppedWork::Nothing { skipped } => {
                if let Some(why) = self.skips.news(&skipped) {
                    let label = &self.line.label;
                    info!("{label} skipped jobs for this worker: {why}");
                }
                self.feedback.set_skips(self.skips.words());
                Came::Nothing
            }
            PoppedWork::Unreadable { ids, why } => {
                let (label, why) = (&self.line.label, said(&why.body()).unwrap_or_default());
                warn!("{label}: parsing a job failed, handing it back: {why}");
                for id in ids {
                    self.errand(client).give_back(id);
                }
                Came::Jobs
            }
            PoppedWork::Job(job) => {
                self.start(*job, seat, client);
                Came::Jobs
            }
        }
    }

    /// Each of its ids is a separate job.
    fn start(&self, popped: PoppedJob, seat: OwnedSemaphorePermit, client: &Client) {
        let job = Job::of(&popped, &self.served);
        if let Err(why) = &job {
            warn!("{}: handing back a job: {why}", self.line.label);
        }
        let job = job.ok();
        let mut seat = Some(seat);
        for (index, id) in popped.ids.into_iter().enumerate() {
            // Jobs beyond the requested number get no permit and are returned, too.
            let seat = seat
                .take()
                .or_else(|| self.seats.clone().try_acquire_owned().ok());
            let errand = self.errand(client);
            match (&job, seat) {
                (Some(job), Some(seat)) => errand.start(id, job.numbered(index), seat),
                _ => errand.give_back(id),
            }
        }
    }

    fn errand(&self, client: &Client) -> Errand {
        Errand {
            label: self.line.label.clone(),
            client: client.clone(),
            kind: self.served.kind,
            transfers: self.transfers.clone(),
            offers: self.offers.clone(),
            ending: self.ending.clone(),
            tasks: self.tasks.clone(),
            records: self.records.clone(),
            feedback: self.feedback.clone(),
        }
    }

    fn arrive(&self, told: &watch::Sender<Standing>) {
        let here = Standing::Connected(Peer::Public);
        let is_new = *told.borrow() != here;
        if is_new {
            info!("polling {} for jobs", self.line.label);
            told.send_replace(here);
        }
    }

    /// Maintenance is logged when it begins and when it ends, not with each pop.
    fn note(
        &self,
        came: Came,
        refusal: Option<String>,
        wait: Duration,
        told: &watch::Sender<Standing>,
    ) {
        let label = &self.line.label;
        let (why, wait) = (refusal.unwrap_or_default(), whole_seconds(wait));
        if came != Came::NoAnswer {
            self.feedback.set_problem(None);
        }
        match came {
            Came::Jobs | Came::Nothing => report_maintenance(label, &self.feedback, None),
            Came::Maintenance => report_maintenance(label, &self.feedback, Some(why)),
            Came::TooOften(_) => info!("{label}: rate limited, polling again in {wait}: {why}"),
            Came::NoAnswer => {
                warn!("polling {label} failed, retrying in {wait}: {why}");
                self.feedback.set_problem(Some(LinkProblem::failure(why)));
                told.send_replace(Standing::Away);
            }
        }
    }

    /// After a refusal, running jobs are finished and submitted, unless the worker leaves.
    async fn go_on(&self) {
        let all = u32::try_from(self.served.jobs).unwrap_or(u32::MAX);
        tokio::select! {
            _ = self.seats.acquire_many(all) => {}
            () = self.time_to_leave() => {}
        }
    }

    /// Running jobs may finish within the grace period; the others are returned.
    async fn finish(&mut self) {
        let all = u32::try_from(self.served.jobs).unwrap_or(u32::MAX);
        let grace = self.condition.borrow().leave_within.unwrap_or_default();
        let done = async || self.seats.acquire_many(all).await.is_ok();
        if timeout(grace, done()).await.is_err() {
            self.ending.cancel();
            if timeout(FAREWELL, done()).await.is_err() {
                warn!(
                    "{}: handing back unfinished jobs timed out",
                    self.line.label
                );
            }
        }
    }
}
