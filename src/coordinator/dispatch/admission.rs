//! Admission: a request is queued as a whole or refused with the reason. Never does I/O.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_protocol::job::{AccountId, Capabilities, Job, JobId, Kind, UnixMillis, WorkerId};

use super::Dispatcher;
use super::clock::Mono;
use super::effect::Effect;
use super::fairness::{Priority, Standing, Weight, Work};
use super::input::{BegunOutput, Submission};
use super::jobs::{Delivered, Entry, History, MOST_ATTEMPTS, State};
use super::lanes::{LaneId, Need};
use super::queue::Ticket;
use super::refusal::Refusal;
use super::timers::Alarm;
use super::wants::Judged;
use super::workers::WorkerModel;

impl Dispatcher {
    /// Whether the queue would accept this job now. Changes nothing.
    pub fn feasible(&mut self, job: &Job) -> Result<(), Refusal> {
        match self.lane_for(job, Capabilities::default()) {
            Err(_) if self.awaits_own_worker(job) => Ok(()),
            lane => lane.map(|_| ()),
        }
    }

    /// `begun` has the output of the jobs that earlier coordinators began, in the order of the jobs.
    pub(super) fn submit(
        &mut self,
        submission: Submission,
        begun: &[BegunOutput],
        out: &mut Vec<Effect>,
    ) {
        let Some(first) = submission.jobs.first() else {
            return;
        };
        let request = first.request;
        let mut delivered: Vec<Delivered> = begun.iter().map(|it| Delivered::of(it)).collect();
        match self.admit(&submission, &delivered) {
            Ok(lanes) => {
                out.push(Effect::Accepted { request });
                delivered.resize_with(submission.jobs.len(), Delivered::default);
                self.enqueue(submission, &lanes, delivered);
            }
            Err(refusal) => out.push(Effect::Refused { request, refusal }),
        }
    }

    /// The lanes of the jobs, in order.
    fn admit(
        &mut self,
        submission: &Submission,
        delivered: &[Delivered],
    ) -> Result<Vec<LaneId>, Refusal> {
        if self.draining {
            return Err(Refusal::ShuttingDown);
        }
        self.check_queue(submission)?;
        self.check_in_flight(submission)?;
        let ids: BTreeSet<JobId> = submission.jobs.iter().map(|job| job.id).collect();
        let known = |id| self.jobs.contains_key(id);
        if ids.len() < submission.jobs.len() || ids.iter().any(known) {
            return Err(Refusal::Duplicate);
        }
        let goes_on = delivered.iter().any(|it| it.events > 0);
        let also = match goes_on {
            true => Capabilities::CONTINUE,
            false => Capabilities::default(),
        };
        let mut lanes: Vec<LaneId> = Vec::with_capacity(submission.jobs.len());
        let mut before: Option<&Job> = None;
        for job in &submission.jobs {
            // The jobs of a request nearly always have the same needs.
            let same = before.is_some_and(|before| needs_the_same(before, job));
            let lane = match lanes.last() {
                Some(&lane) if same => lane,
                _ => self.lane_or_wait(job, also)?,
            };
            lanes.push(lane);
            before = Some(job);
        }
        Ok(lanes)
    }

    /// The lane of a job. A durable job may queue without an online worker, until one connects or the job expires; so may
    /// a job that is served by an own-only worker of its account, which is in no lane.
    fn lane_or_wait(&mut self, job: &Job, also: Capabilities) -> Result<LaneId, Refusal> {
        let lane = match self.lane_for(job, also) {
            Err(Refusal::Unserved { .. }) if job.durable || self.awaits_own_worker(job) => {
                self.lane_to_wait_in(job, also)
            }
            lane => lane?,
        };
        if !job.durable {
            self.check_pause(lane, job)?;
        }
        Ok(lane)
    }

    /// Whether a connected own-only worker of the job's account serves the job, even if busy now.
    pub(super) fn awaits_own_worker(&self, job: &Job) -> bool {
        let need = Need::of(job, Capabilities::default());
        self.own_models(job.account, &need).next().is_some()
    }

    /// The models that serve this need at connected own-only workers of this account.
    fn own_models(&self, account: AccountId, need: &Need) -> impl Iterator<Item = &WorkerModel> {
        let first = (account, WorkerId(i64::MIN));
        let last = (account, WorkerId(i64::MAX));
        let own = self.own_only.range(first..=last);
        let own = own.filter_map(|(_, id)| self.workers.get(id));
        let own = own.filter(|worker| worker.session.is_some() && worker.can_serve(need));
        own.flat_map(|worker| worker.models_for(need))
    }

    /// A request does not wait for workers that are all paused by their owners.
    fn check_pause(&self, lane: LaneId, job: &Job) -> Result<(), Refusal> {
        let listings = self.workers.values().flat_map(|worker| {
            let listings = worker.listings.iter();
            let listings = listings.filter(move |listing| listing.lane == lane);
            listings.flat_map(|listing| listing.models.iter().map(|at| &worker.models[*at]))
        });
        let need = Need::of(job, Capabilities::default());
        let listings = listings.chain(self.own_models(job.account, &need));
        let mut soonest: Option<i64> = None;
        for model in listings {
            match model.paused_until {
                None => return Ok(()),
                Some(0) => soonest = soonest.or(Some(0)),
                Some(until) => {
                    let before = soonest.filter(|before| *before > 0);
                    soonest = Some(before.map_or(until, |before| before.min(until)));
                }
            }
        }
        let Some(until) = soonest else {
            return Ok(());
        };
        let until = UnixMillis(until.saturating_mul(1000));
        let wait = until.since(self.now.wall);
        Err(Refusal::Paused {
            models: job.model.0.clone(),
            wait: (!wait.is_zero()).then_some(wait),
        })
    }

    /// Refuses a request if the queue is full. Anonymous requests may fill at most half of it, so that key holders
    /// always find room.
    fn check_queue(&self, submission: &Submission) -> Result<(), Refusal> {
        let most = self.settings.queue_limit;
        let all = (self.queue.len(), most);
        let keyless = self.settings.keyless.filter(|keyless| {
            let first = submission.jobs.first();
            first.is_some_and(|job| job.account == *keyless)
        });
        let its = keyless.map(|account| (self.queue.waiting_of(account), most.div_ceil(2)));
        for (waiting, most) in its.into_iter().chain([all]) {
            if waiting + submission.jobs.len() > most {
                let kind = submission.jobs.first().map_or(Kind::Text, |job| job.kind);
                let over = (waiting + submission.jobs.len()).saturating_sub(most);
                return Err(Refusal::QueueFull {
                    waiting,
                    wait: self.until_ended(kind, over, self.running()),
                });
            }
        }
        Ok(())
    }

    fn check_in_flight(&self, submission: &Submission) -> Result<(), Refusal> {
        let Some(first) = submission.jobs.first() else {
            return Ok(());
        };
        let all = (&self.open, self.settings.in_flight_limit);
        let texts = (&self.direct_texts, self.settings.direct_text_limit);
        let texts = is_direct_text(first).then_some(texts);
        let media = (&self.media, self.settings.media_limit);
        let media = is_media(first).then_some(media);
        for (counts, most) in texts.into_iter().chain(media).chain([all]) {
            let Some(most) = most else {
                continue;
            };
            let open = counts.get(&first.account).copied().unwrap_or(0);
            let wanted = submission.jobs.len();
            if wanted > most {
                return Err(Refusal::TooManyJobs { wanted, most });
            }
            let over = (open + wanted).saturating_sub(most);
            if over > 0 {
                let wait = self.until_ended(first.kind, over, open);
                return Err(Refusal::InFlight { open, most, wait });
            }
        }
        Ok(())
    }

    /// The lane of the job as it stands, if a connected worker serves it.
    pub(super) fn lane_for(&mut self, job: &Job, also: Capabilities) -> Result<LaneId, Refusal> {
        let need = Need::of(job, also);
        let admitted = self.lanes.admit(need, &mut self.workers, self.now.mono);
        let lane = admitted.map_err(|missing| Refusal::Unserved {
            missing,
            online: self.lanes.online_models(),
        })?;
        self.timers
            .set_by(Alarm::Lane(lane), self.now.mono + self.settings.lane_life);
        Ok(lane)
    }

    fn enqueue(&mut self, submission: Submission, lanes: &[LaneId], delivered: Vec<Delivered>) {
        let siblings: Arc<[JobId]> = submission.jobs.iter().map(|job| job.id).collect();
        let jobs = submission.jobs.into_iter().zip(lanes).zip(delivered);
        for ((job, &lane), delivered) in jobs {
            let mut entry = self.new_entry(job, submission.standing, lane, siblings.clone());
            entry.delivered = delivered;
            self.queue.push(lane, entry.ticket);
            self.timers.set(Alarm::Job(entry.job.id), entry.gives_up());
            *self.open.entry(entry.job.account).or_default() += 1;
            if is_direct_text(&entry.job) {
                *self.direct_texts.entry(entry.job.account).or_default() += 1;
            }
            if is_media(&entry.job) {
                *self.media.entry(entry.job.account).or_default() += 1;
            }
            self.demands.add(&entry.job);
            self.jobs.insert(entry.job.id, entry);
        }
        let mut lanes = lanes.to_vec();
        lanes.dedup();
        for lane in lanes {
            self.watch_lane(lane);
            self.touched.lanes.push(lane);
        }
        if let Some(job) = siblings.first() {
            self.wake_owner(*job);
        }
    }

    fn new_entry(
        &mut self,
        job: Arc<Job>,
        standing: Standing,
        lane: LaneId,
        siblings: Arc<[JobId]>,
    ) -> Entry {
        let life = job
            .deadline
            .since(self.now.wall)
            .min(self.settings.longest_life);
        Entry {
            ticket: self.ticket(&job, standing),
            siblings,
            lane,
            accepted_at: standing.since.unwrap_or(self.now.wall),
            earlier: standing.since.map_or(0, |_| MOST_ATTEMPTS),
            expires: self.now.mono + life,
            start_by: job.limits.start_within.map(|within| self.now.mono + within),
            short: standing.short,
            judged: Judged::default(),
            state: State::Queued,
            delivered: Delivered::default(),
            history: History::default(),
            bound: None,
            job,
        }
    }

    fn ticket(&mut self, job: &Job, standing: Standing) -> Ticket {
        self.tickets += 1;
        let waited = standing.since.map(|since| self.now.wall.since(since));
        let arrived = self.now.mono.before(waited.unwrap_or_default());
        let delay = Priority::High.head_start() - standing.priority.head_start();
        let order: Mono = arrived + delay;
        Ticket {
            job: job.id,
            account: job.account,
            request: job.request,
            arrived,
            order,
            number: self.tickets,
            work: Work::of(job),
            weight: Weight::of(standing),
        }
    }
}

/// A text whose client waits on an open connection.
pub(super) fn is_direct_text(job: &Job) -> bool {
    job.kind.is_relayed() && !job.durable
}

/// Media and stored transcripts of `/v1`. The AI Horde API has its own limits.
pub(super) fn is_media(job: &Job) -> bool {
    job.limits.restartable
}

fn needs_the_same(one: &Job, other: &Job) -> bool {
    one.model == other.model && one.limits == other.limits && one.privacy == other.privacy
}
