//! A request's state, for readers: the progress and outcome of each job.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::accounts::ANONYMOUS;
use crate::clock::wall_clock;
use crate::dispatch::Standing;
use crate::storage::{RequestRow, Store, Wanted};
use crate::switchboard::{JobStream, Stage};
use muster_protocol::job::{AccountId, Job, JobId, Kind, Kudos, RequestId, UnixMillis};

use super::orders::MediaNotes;
use super::output::{Counts, Ended, Output, locked};

/// How long workers of an earlier process may take to return: as long as a polling worker counts as online.
const RETURN: Duration = Duration::from_secs(300);
/// Maximum delay of an end.
const CATCH_UP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Request {
    pub id: RequestId,
    pub account: AccountId,
    pub kind: Kind,
    pub accepted_at: UnixMillis,
    /// In milliseconds, as stored; extended by every result.
    expires_at: AtomicI64,
    kept_until: AtomicI64,
    /// Lifetime after each result.
    life: Duration,
    pub wishes: Wishes,
    /// The standing of its jobs, whenever they are queued.
    pub standing: Standing,
    /// In the requested order.
    pub outputs: Vec<Output>,
    /// Sorted models that may serve it; kept only where they have their own limits, else empty.
    models: Vec<Arc<str>>,
    /// Cancelled when no more of its jobs are given to workers.
    cancelled: CancellationToken,
    /// Cancelled by the client, running jobs included.
    given_up: CancellationToken,
    /// Incremented with every change.
    heard: watch::Sender<u64>,
    /// Fee, besides the jobs.
    fee: Kudos,
    /// Time of the restore, for requests of an earlier process.
    restored: Option<Instant>,
    /// The request was stopped or failed before its jobs were queued: its open jobs are presumed to be leased to
    /// workers.
    held: bool,
    /// Charges of its jobs, and how many had ended at the time of the query.
    charged: Mutex<(usize, Kudos)>,
    /// Deleted by the client, and not found any more.
    deleted: AtomicBool,
    /// Time of the last result, in milliseconds; 0 before the first.
    brought_at: AtomicI64,
}

/// Client options besides the output itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Images are links instead of base64.
    pub links: bool,
    /// The images may be published.
    pub shared: bool,
    /// The service's end user.
    pub end_user: Option<Arc<str>>,
    /// Fields of a `/v1` request.
    pub media: Option<Arc<MediaNotes>>,
}

impl Request {
    pub(crate) fn new(
        row: &RequestRow,
        (wishes, standing): (Wishes, Standing),
        jobs: &[Arc<Job>],
        streams: &[JobStream],
        ended: Vec<(usize, Ended)>,
    ) -> Self {
        let outputs: Vec<Output> = jobs.iter().map(|job| Output::of(job, streams)).collect();
        for (index, ended) in ended {
            outputs[index].end(ended);
        }
        Self {
            id: row.id,
            account: row.account,
            kind: row.kind,
            accepted_at: row.accepted_at,
            expires_at: AtomicI64::new(row.expires_at.0),
            kept_until: AtomicI64::new(row.expires_at.0),
            life: jobs
                .first()
                .and_then(|job| job.limits.life)
                .unwrap_or_default(),
            wishes,
            standing: Standing {
                since: Some(row.accepted_at),
                ..standing
            },
            outputs,
            models: match row.account {
                ANONYMOUS => models(jobs),
                _ => Vec::new(),
            },
            cancelled: CancellationToken::new(),
            given_up: CancellationToken::new(),
            heard: watch::Sender::new(0),
            restored: None,
            held: false,
            fee: row.fee,
            charged: Mutex::default(),
            deleted: AtomicBool::new(false),
            brought_at: AtomicI64::new(0),
        }
    }

    /// A failed request, for a row that cannot be parsed any more.
    pub(super) fn unreadable(row: &RequestRow) -> Self {
        let told = (Wishes::default(), Standing::default());
        Self {
            outputs: vec![Output::unreadable()],
            ..Self::new(row, told, &[], &[], Vec::new())
        }
    }

    /// Models of a request whose account has a limit per model.
    pub fn models(&self) -> &[Arc<str>] {
        &self.models
    }

    pub fn wants_one_of(&self, models: &[Arc<str>]) -> bool {
        let wants = |model| self.models.binary_search(model).is_ok();
        models.iter().any(wants)
    }

    /// Extended whenever a worker takes or submits one of its jobs.
    pub fn expires_at(&self) -> UnixMillis {
        let taken = self.outputs.iter().map(Output::until).max();
        let until = UnixMillis(self.expires_at.load(Ordering::Relaxed));
        taken.map_or(until, |taken| taken.max(until))
    }

    /// A result arrived: extends the lifetime.
    pub(super) fn renew(&self) {
        let now = wall_clock();
        self.brought_at.fetch_max(now.0, Ordering::Relaxed);
        let until = now.after(self.life).0;
        self.expires_at.fetch_max(until, Ordering::Relaxed);
    }

    /// When the last output arrived. For a request that an earlier process finished, when it was accepted.
    pub fn completed_at(&self) -> Option<UnixMillis> {
        let is_made = |output: &Output| matches!(output.ended(), Some(Ended::Made(_)));
        let at = UnixMillis(self.brought_at.load(Ordering::Relaxed));
        let all = self.outputs.iter().all(is_made);
        all.then(|| at.max(self.accepted_at))
    }

    pub(super) fn delete(&self) {
        self.deleted.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Relaxed)
    }

    /// The expiry to store, if notably later than the stored one.
    pub(super) fn outlives_disk(&self, by: Duration) -> Option<UnixMillis> {
        let kept_until = UnixMillis(self.kept_until.load(Ordering::Relaxed));
        let until = self.expires_at();
        (until > kept_until.after(by)).then_some(until)
    }

    pub(super) fn is_kept_until(&self, until: UnixMillis) {
        self.kept_until.fetch_max(until.0, Ordering::Relaxed);
    }

    pub(crate) fn restored(self, wanted: Wanted) -> Self {
        match wanted {
            Wanted::Everything => {}
            Wanted::Begun => self.end_waiting(),
            Wanted::Nothing => self.cancel(),
        }
        if self.has_failed() {
            self.end_waiting();
        }
        Self {
            restored: Some(Instant::now()),
            held: self.is_cancelled(),
            ..self
        }
    }

    /// Whether its jobs are queued only for the workers that have them.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Workers of an earlier process may still be running its jobs and submit them here.
    pub fn awaits_workers(&self) -> bool {
        let waits = |since: Instant| since.elapsed() < RETURN;
        self.is_open() && self.restored.is_some_and(waits)
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for output in &self.outputs {
            output.count(&mut counts);
        }
        if self.held {
            counts.processing += std::mem::take(&mut counts.waiting);
        }
        counts
    }

    /// The job that a waiting client is told about: the first one queued, or else the first one running.
    pub fn next(&self) -> Option<JobId> {
        let open = || self.outputs.iter().filter(|output| output.is_open());
        let waits = open().find(|output| output.stage() == Stage::Waiting);
        waits.or_else(|| open().next()).map(|output| output.job)
    }

    /// The job that will probably end last, if several are open.
    pub fn last(&self) -> Option<JobId> {
        let open = || self.outputs.iter().rev().filter(|output| output.is_open());
        let waits = open().find(|output| output.stage() == Stage::Waiting);
        let last = waits.or_else(|| open().next()).map(|output| output.job);
        last.filter(|last| Some(*last) != self.next())
    }

    /// Charges so far. Asks the database when another of its jobs has ended.
    pub async fn charged(&self, ended: usize, store: &Store) -> Kudos {
        let jobs = self.charged_for_jobs(ended, store).await;
        Kudos(self.fee.0.saturating_add(jobs.0))
    }

    async fn charged_for_jobs(&self, ended: usize, store: &Store) -> Kudos {
        let (known, charged) = *locked(&self.charged);
        if known == ended {
            return charged;
        }
        let Ok(charged) = store.charged(self.id).await else {
            return charged;
        };
        *locked(&self.charged) = (ended, charged);
        charged
    }

    pub(super) fn output(&self, job: JobId) -> Option<&Output> {
        self.outputs.iter().find(|output| output.job == job)
    }

    /// The jobs were queued again. Keeps the extended lifetime, since the old watches that hold the workers' leases are
    /// dropped.
    pub(super) fn watch(&self, streams: &[JobStream]) {
        let until = self.expires_at().0;
        self.expires_at.fetch_max(until, Ordering::Relaxed);
        self.outputs.iter().for_each(|output| output.watch(streams));
    }

    /// The client cancelled the request.
    pub(crate) fn cancel(&self) {
        self.given_up.cancel();
        self.cancelled.cancel();
        self.note();
    }

    pub(crate) fn note(&self) {
        self.heard.send_modify(|count| *count += 1);
    }

    /// Waits until the ends of finished jobs are processed: a worker's submit may have been acknowledged before that.
    pub async fn catch_up(&self) {
        let mut news = self.news();
        let heard = async {
            while self.outputs.iter().any(Output::is_late) && news.changed().await.is_ok() {}
        };
        // The timeout covers a follower that has stopped.
        let _ = timeout(CATCH_UP, heard).await;
    }

    /// Notifies of changes.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.heard.subscribe()
    }

    /// Stops giving its jobs to workers. Running jobs are still delivered, unless it is cancelled.
    pub(crate) fn end_waiting(&self) {
        self.cancelled.cancel();
    }

    /// Whether no worker has this job, as far as known.
    pub(super) fn waits(&self, job: JobId) -> bool {
        let waits = |output: &Output| output.stage() == Stage::Waiting;
        self.output(job).is_none_or(waits)
    }

    pub(super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    pub(super) async fn given_up(&self) {
        self.given_up.cancelled().await;
    }

    /// Whether no more output will come.
    pub(super) fn has_ended(&self) -> bool {
        self.expires_at() <= wall_clock() || !self.is_open()
    }

    /// Whether a job is queued or running.
    pub(super) fn is_open(&self) -> bool {
        self.outputs.iter().any(Output::is_open)
    }

    /// Number of queued or running jobs.
    pub(super) fn open_jobs(&self) -> usize {
        let open = self.outputs.iter().filter(|output| output.is_open());
        open.count()
    }

    /// Number of jobs that a worker may still get.
    pub(super) fn waiting_jobs(&self) -> usize {
        match self.is_cancelled() {
            true => 0,
            false => self.counts().waiting,
        }
    }

    /// Whether its client cancelled it, as opposed to a stop or a failure.
    pub fn is_given_up(&self) -> bool {
        self.given_up.is_cancelled()
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// A job failed for good: the others are not run, and finished outputs stay.
    pub fn has_failed(&self) -> bool {
        let mut ended = self.outputs.iter().filter_map(Output::ended);
        ended.any(|ended| ended.is_fatal(self.kind))
    }
}

fn models(jobs: &[Arc<Job>]) -> Vec<Arc<str>> {
    let all = jobs.iter().flat_map(|job| &job.model.0);
    let mut models: Vec<Arc<str>> = all.cloned().collect();
    models.sort_unstable();
    models.dedup();
    models
}

#[cfg(test)]
pub mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{Ended, Request};
    use crate::accounts::{Caller, Payer};
    use crate::clock::wall_clock;
    use crate::dispatch::{Settings, Standing, Submission};
    use crate::names::Names;
    use crate::requests::orders::{Asked, Order};
    use crate::storage::{RequestRow, Wanted};
    use crate::switchboard::{Books, JobWatch, Switchboard};
    use muster_process::tasks::Tasks;
    use muster_protocol::job::{Event, Job, Kudos, RequestId, TokenEvent, UnixMillis};
    use muster_protocol::legacy::Body as _;
    use muster_protocol::legacy::text::request::GenerationInputText;

    /// A request of two texts that expires at this moment.
    pub fn asked(expires_at: UnixMillis) -> (Request, Vec<Arc<Job>>) {
        let payer = Payer::of(&Caller::anonymous(), None, false, wall_clock()).unwrap();
        let body = serde_json::json!({"prompt": "p", "params": {"n": 2}});
        let asked = GenerationInputText::read(body).unwrap();
        let order = Order::new(RequestId::random(), &payer, Asked::text(asked));
        let new = order.request(Standing::default(), None, &Names::default());
        let row = RequestRow {
            id: new.id,
            account: new.account,
            kind: new.kind,
            body: new.body,
            accepted_at: wall_clock(),
            expires_at,
            wanted: Wanted::Everything,
            fee: new.fee,
        };
        let wishes = (new.wishes, new.standing);
        let request = Request::new(&row, wishes, &new.jobs, &[], Vec::new());
        (request, new.jobs)
    }

    /// A request with open jobs.
    pub fn with_jobs(expires_at: UnixMillis) -> Arc<Request> {
        Arc::new(asked(expires_at).0)
    }

    /// A request whose jobs have all ended.
    pub fn request(expires_at: UnixMillis) -> Arc<Request> {
        let request = with_jobs(expires_at);
        let outputs = request.outputs.iter();
        outputs.for_each(|output| output.end(Ended::Expired));
        request
    }

    #[test]
    fn it_lives_as_long_as_a_worker_was_told_that_has_brought_its_job_since() {
        let now = wall_clock();
        let until = now.after(Duration::from_secs(3600));
        let request = request(now);
        *super::locked(&request.outputs[0].watch) = Some(JobWatch::taken_until(until));
        assert_eq!(request.expires_at(), until);
    }

    #[tokio::test]
    async fn what_a_job_brings_that_was_queued_again_is_not_written_behind_what_it_brought_before()
    {
        let tasks = Tasks::default();
        let books = Books::new(|_, _| async { Ok(Kudos(0)) });
        let board = Switchboard::start(Settings::default(), books, &tasks);
        let (request, jobs) = asked(wall_clock().after(Duration::from_secs(600)));
        let output = &request.outputs[0];
        let brings = || {
            output.hear(&Event::Token(TokenEvent {
                text: "a text".to_owned(),
                ..TokenEvent::default()
            }));
        };
        brings();
        let submission = Submission {
            jobs,
            standing: request.standing,
        };
        let streams = board.submit(submission).await.unwrap();
        request.watch(&streams);
        assert!(output.product().is_empty());
        brings();
        assert_eq!(output.product().text(), "a text");
    }

    #[tokio::test]
    async fn it_lives_as_long_as_before_when_its_jobs_are_queued_again() {
        let tasks = Tasks::default();
        let books = Books::new(|_, _| async { Ok(Kudos(0)) });
        let board = Switchboard::start(Settings::default(), books, &tasks);
        let now = wall_clock();
        let (request, jobs) = asked(now.after(Duration::from_secs(600)));
        let until = now.after(Duration::from_secs(3600));
        *super::locked(&request.outputs[0].watch) = Some(JobWatch::taken_until(until));
        let submission = Submission {
            jobs,
            standing: request.standing,
        };
        let streams = board.submit(submission).await.unwrap();
        request.watch(&streams);
        assert_ne!(
            request.outputs[0].until(),
            until,
            "no worker has the job now"
        );
        assert_eq!(request.expires_at(), until);
    }

    #[test]
    fn what_was_cancelled_before_a_restart_is_with_workers_as_far_as_it_is_open() {
        let check = |wanted, expected| {
            let (request, _) = asked(wall_clock());
            let request = request.restored(wanted);
            let counts = request.counts();
            let found = (counts.waiting, counts.processing, request.is_given_up());
            assert_eq!(found, expected, "{wanted:?}");
        };
        check(Wanted::Everything, (2, 0, false));
        check(Wanted::Begun, (0, 2, false));
        check(Wanted::Nothing, (0, 2, true));
    }
}
