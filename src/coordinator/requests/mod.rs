//! Requests that are asked for later. Accepted means on disk: such a request outlives its connection and this process,
//! is followed by a task of its own until all its jobs have ended, and goes with everything it brought when its
//! time is over. Its id is its only secret.
//!
//! | file | what it is |
//! | --- | --- |
//! | `request` | one request as somebody who asks sees it |
//! | [`orders`] | what is kept of it, and the jobs that it becomes: one file for each kind |
//! | [`results`] | what was made, as its client is handed it |
//! | `follow` | the task that listens to its jobs |
//! | `holds` | kudos that are kept for it until it has ended |
//! | `restore` | what an earlier process has left on disk |

mod follow;
mod holds;
pub mod orders;
mod request;
mod restore;
pub mod results;

pub use holds::Kept;
pub use orders::Order;
pub use request::{Counts, Ended, Made, Output, Request, Wishes};

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::clock::wall_clock;
use super::dispatch::{Refusal, Standing, Submission};
use super::storage::{Dues, RequestRow, StorageError, Store};
use super::switchboard::{JobStream, Switchboard};
use super::webhooks::Webhooks;
use crate::protocol::job::{AccountId, Job, Kind, Kudos, RequestId, UnixMillis};
use crate::tasks::Tasks;

/// What has expired is looked for this often.
const SWEEP: Duration = Duration::from_secs(20);
/// Between two steps when more has expired: other writes come first.
const PAUSE: Duration = Duration::from_millis(100);
/// Sweeps between two looks at what has no request: that looks at everything.
const LOST: u32 = 30;
/// What it lives longer than this by is written down: the margin is longer than this and two sweeps together.
const RENEWED: Duration = Duration::from_secs(60);
const MINUTE: i64 = 60_000;
/// Kept beyond its time, so that the last settlement finds it still there.
const MARGIN: Duration = Duration::from_secs(120);

/// All of them. Clones are the same.
#[derive(Debug, Clone)]
pub struct Requests(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    switchboard: Switchboard,
    store: Store,
    webhooks: Webhooks,
    tasks: Tasks,
    shelves: RwLock<Shelves>,
}

#[derive(Debug, Default)]
struct Shelves {
    by_id: HashMap<RequestId, Arc<Request>>,
    /// Those with jobs to come, and some that had until lately.
    by_account: HashMap<AccountId, Vec<Arc<Request>>>,
    /// Those that kudos are kept for.
    paid_before: HashSet<RequestId>,
}

/// One that is at the door. Its jobs are durable and of one account and kind.
#[derive(Debug)]
pub struct NewRequest {
    pub id: RequestId,
    pub account: AccountId,
    pub kind: Kind,
    /// From which its jobs can be made again.
    pub body: String,
    pub wishes: Wishes,
    pub jobs: Vec<Arc<Job>>,
    /// Called for each result.
    pub webhook: Option<Arc<str>>,
    pub standing: Standing,
    /// What it costs at once, beside its jobs, and what is owed for it.
    pub fee: Kudos,
    pub dues: Dues,
    /// What is kept of the account's kudos and of the key's until it has ended, if anything is.
    pub kept: Vec<Kept>,
    pub expires_at: UnixMillis,
}

#[derive(Debug, thiserror::Error)]
pub enum NotAccepted {
    #[error("{0}")]
    Refused(Refusal),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Requests {
    pub fn start(
        switchboard: Switchboard,
        store: Store,
        webhooks: Webhooks,
        tasks: &Tasks,
    ) -> Self {
        let requests = Self(Arc::new(Inner {
            switchboard,
            store,
            webhooks,
            tasks: tasks.clone(),
            shelves: RwLock::default(),
        }));
        let (swept, stopping) = (requests.clone(), tasks.stopping());
        tasks.start(async move {
            let _ = stopping.run_until_cancelled(swept.sweep_on()).await;
        });
        requests
    }

    /// Queued and on disk when this returns.
    pub async fn accept(&self, new: NewRequest) -> Result<Arc<Request>, NotAccepted> {
        let submission = Submission {
            jobs: new.jobs.clone(),
            standing: new.standing,
        };
        let streams = match submission.jobs.is_empty() {
            true => Vec::new(),
            false => {
                let streams = self.0.switchboard.submit(submission).await;
                streams.map_err(NotAccepted::Refused)?
            }
        };
        let row = RequestRow {
            id: new.id,
            account: new.account,
            kind: new.kind,
            body: new.body,
            accepted_at: wall_clock(),
            expires_at: new.expires_at,
            cancelled: false,
            fee: new.fee,
        };
        // Should the store fail, the streams are dropped here, which cancels the jobs.
        self.0.store.accept(row.clone(), new.dues).await?;
        new.kept.into_iter().for_each(Kept::accepted);
        let wishes = (new.wishes, new.standing);
        let request = Request::new(&row, wishes, &new.jobs, &streams, Vec::new());
        Ok(self.follow(request, &new.jobs, streams, new.webhook))
    }

    pub fn find(&self, id: RequestId) -> Option<Arc<Request>> {
        let shelves = self.0.shelves.read();
        let shelves = shelves.unwrap_or_else(PoisonError::into_inner);
        let found = shelves.by_id.get(&id).cloned();
        drop(shelves);
        found.filter(|request| request.expires_at() > wall_clock())
    }

    /// Makes nothing more for it. What workers are busy with may still come.
    pub async fn cancel(&self, request: &Request) -> Result<(), StorageError> {
        request.cancel();
        self.0.store.cancel_request(request.id).await
    }

    /// Makes nothing more for those of a kind that wait; what workers are busy with goes on.
    pub async fn end_waiting(&self, kind: Kind) -> Result<(), StorageError> {
        let waiting = self.waiting(kind);
        // The writer takes many at once.
        let mut written: FuturesUnordered<_> = waiting
            .iter()
            .map(|request| self.0.store.cancel_request(request.id))
            .collect();
        while let Some(written) = written.next().await {
            written?;
        }
        waiting.iter().for_each(|request| request.end_waiting());
        Ok(())
    }

    fn waiting(&self, kind: Kind) -> Vec<Arc<Request>> {
        let shelves = self.0.shelves.read();
        let shelves = shelves.unwrap_or_else(PoisonError::into_inner);
        let all = shelves.by_account.values().flatten();
        let waiting = all.filter(|request| request.kind == kind && request.counts().waiting > 0);
        waiting.cloned().collect()
    }

    /// Requests of an account that have jobs to come.
    pub fn unfinished(&self, account: AccountId) -> Vec<Arc<Request>> {
        self.write().unfinished(account).to_vec()
    }

    /// How many jobs wait or run for such requests of an account.
    pub fn open_jobs(&self, account: AccountId, counts: impl Fn(&Request) -> bool) -> usize {
        let mut shelves = self.write();
        let unfinished = shelves.unfinished(account).iter();
        let counted = unfinished.filter(|request| counts(request));
        counted.map(|request| request.open_jobs()).sum()
    }

    fn follow(
        &self,
        request: Request,
        jobs: &[Arc<Job>],
        streams: Vec<JobStream>,
        webhook: Option<Arc<str>>,
    ) -> Arc<Request> {
        let request = Arc::new(request);
        self.write().add(&request);
        let Inner {
            tasks, switchboard, ..
        } = &*self.0;
        if let Some(address) = webhook {
            self.0.webhooks.follow(request.clone(), address);
        }
        let following = follow::follow(
            request.clone(),
            jobs.to_vec(),
            streams,
            switchboard.clone(),
            tasks.stopping(),
        );
        let (requests, followed) = (self.clone(), request.clone());
        tasks.start(async move {
            following.await;
            if followed.has_ended() {
                requests.release(followed.id).await;
            }
        });
        request
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shelves> {
        let shelves = self.0.shelves.write();
        shelves.unwrap_or_else(PoisonError::into_inner)
    }

    async fn sweep_on(self) {
        for sweep in 1_u32.. {
            sleep(SWEEP).await;
            self.keep_longer().await;
            let now = wall_clock();
            self.write().forget(now);
            let before = now.before(MARGIN);
            if let Err(error) = self.forget_stored(before).await {
                warn!("expired requests stay in the store for now: {error}");
            }
            self.release_lost(before).await;
            if sweep.is_multiple_of(LOST) {
                self.forget_lost(before).await;
            }
        }
    }

    /// In steps, and no longer than a sweep: what lives longer has to be written down in between.
    async fn forget_stored(&self, before: UnixMillis) -> Result<(), StorageError> {
        let began = Instant::now();
        while self.0.store.forget_requests(before).await? && began.elapsed() < SWEEP {
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Where a request could not be written down, or went before its last job, what its jobs have brought is nobody's.
    async fn forget_lost(&self, before: UnixMillis) {
        match self.0.store.forget_lost_results(before).await {
            Ok(0) => {}
            Ok(lost) => debug!("{lost} results had no request"),
            Err(error) => warn!("results without a request stay in the store for now: {error}"),
        }
    }
}

impl Requests {
    /// Those that live longer than was written down are kept for so long, each to the next full minute: many have the
    /// same one.
    async fn keep_longer(&self) {
        let mut longer: BTreeMap<UnixMillis, Vec<Arc<Request>>> = BTreeMap::new();
        {
            let shelves = self.0.shelves.read();
            let shelves = shelves.unwrap_or_else(PoisonError::into_inner);
            for request in shelves.by_id.values() {
                if let Some(until) = request.outlives_disk(RENEWED) {
                    let minute = UnixMillis((until.0 / MINUTE + 1).saturating_mul(MINUTE));
                    longer.entry(minute).or_default().push(request.clone());
                }
            }
        }
        for (until, requests) in longer {
            let ids: Vec<RequestId> = requests.iter().map(|request| request.id).collect();
            match self.0.store.keep_requests(ids, until).await {
                Ok(()) => requests.iter().for_each(|it| it.is_kept_until(until)),
                Err(error) => warn!("requests that live longer are written down later: {error}"),
            }
        }
    }
}

impl Shelves {
    fn add(&mut self, request: &Arc<Request>) {
        self.by_id.insert(request.id, request.clone());
        let its = self.by_account.entry(request.account).or_default();
        its.push(request.clone());
    }

    /// Those of an account that have jobs to come; the others leave its shelf.
    fn unfinished(&mut self, account: AccountId) -> &[Arc<Request>] {
        let Some(its) = self.by_account.get_mut(&account) else {
            return &[];
        };
        its.retain(|request| request.is_open());
        its
    }

    fn forget(&mut self, now: UnixMillis) {
        let is_kept = |request: &Arc<Request>| request.expires_at().after(MARGIN) > now;
        self.by_id.retain(|_, request| is_kept(request));
        self.by_account.retain(|_, its| {
            its.retain(|request| is_kept(request) && request.is_open());
            !its.is_empty()
        });
    }
}
