//! Durable requests, polled for later. Accepted means stored: such a request outlives its connection and this process,
//! is followed by a task of its own until all its jobs have ended, and is deleted with all results when it expires. The
//! request's id is the only secret.
//!
//! | file | contents |
//! | --- | --- |
//! | `request` | a request's state, for readers |
//! | `output` | one job of it, and its output |
//! | [`orders`] | its stored form, and the jobs made from it: one file for each kind |
//! | [`results`] | outputs, as its client gets them |
//! | `follow` | the task that listens to its jobs |
//! | `known` | known models |
//! | `names` | public ids of `/v1` requests |
//! | `places` | concurrency limits, including requests being accepted |
//! | `holds` | kudos held for it until it has ended |
//! | `shelves` | indexes of requests in memory, and expiry |
//! | `restore` | requests of an earlier process |

mod follow;
mod holds;
mod known;
mod names;
pub mod orders;
mod output;
mod places;
mod request;
mod restore;
pub mod results;
mod shelves;

pub use holds::Kept;
pub use known::Known;
pub use names::MediaName;
pub use orders::Order;
pub use output::{Counts, Ended, Made, Output};
pub use places::{Counted, NoPlace, Place};
pub use request::{Request, Wishes};

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::clock::wall_clock;
use super::dispatch::{Refusal, Standing, Submission};
use super::media::Holding;
use super::storage::{Dues, RequestRow, StorageError, Store, Wanted};
use super::switchboard::{JobStream, Switchboard};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, Job, Kind, Kudos, RequestId, UnixMillis};

use follow::{Follower, Told};
use places::Places;
use shelves::Shelves;

/// Interval of expiry checks.
const SWEEP: Duration = Duration::from_secs(20);
/// Pause between steps of the cleanup, for other writes.
const PAUSE: Duration = Duration::from_millis(100);
/// Expiry checks between two searches for data without a request, which scan everything.
const LOST: u32 = 30;
/// A lifetime extension beyond this is stored; the expiry margin is longer than this plus two sweeps.
const RENEWED: Duration = Duration::from_secs(60);
const MINUTE: i64 = 60_000;
/// Time after the expiry, so that the last settlement still finds the request.
const MARGIN: Duration = Duration::from_secs(120);
/// The longest time that a request stays stored after its last result: stored expiries are rounded up to minutes, and
/// sweeps come later.
pub const LONGEST_KEPT: Duration = orders::LONGEST_LIFETIME
    .saturating_add(MARGIN)
    .saturating_add(MARGIN);
/// How far the stored expiry may lag behind.
pub const UNWRITTEN: Duration = MARGIN;

/// All requests. Clones share them.
#[derive(Debug, Clone)]
pub struct Requests(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    switchboard: Switchboard,
    store: Store,
    listener: Arc<dyn ResultListener>,
    tasks: Tasks,
    shelves: RwLock<Shelves>,
    places: Mutex<Places>,
}

/// Gets the results of requests that name an address for them.
pub trait ResultListener: std::fmt::Debug + Send + Sync {
    /// Passes each further result of a request on to this address.
    fn follow(&self, request: Arc<Request>, address: Arc<str>);
}

/// A request before it is accepted. All jobs are durable and of one account and kind.
#[derive(Debug)]
pub struct NewRequest {
    pub id: RequestId,
    pub account: AccountId,
    pub kind: Kind,
    /// Enough to build its jobs again.
    pub body: String,
    pub wishes: Wishes,
    pub jobs: Vec<Arc<Job>>,
    /// Called with each result.
    pub webhook: Option<Arc<str>>,
    pub standing: Standing,
    /// Fee of the request, besides its jobs, and the postings due with it.
    pub fee: Kudos,
    pub dues: Dues,
    /// Kudos holds of the account and of the shared key.
    pub kept: Vec<Kept>,
    /// The request's place in the concurrency limit, until it is accepted.
    pub place: Option<Place>,
    /// The memory permit of the request, held until its jobs have ended.
    pub memory: Option<Box<dyn Any + Send>>,
    /// Source images, until the jobs have ended.
    pub sources: Option<Holding>,
    pub expires_at: UnixMillis,
}

impl NewRequest {
    /// The row to store. Moves the body into it.
    pub fn take_row(&mut self) -> RequestRow {
        RequestRow {
            id: self.id,
            account: self.account,
            kind: self.kind,
            body: std::mem::take(&mut self.body),
            accepted_at: wall_clock(),
            expires_at: self.expires_at,
            wanted: Wanted::Everything,
            fee: self.fee,
        }
    }
}

/// Held by the follower until the request's jobs have ended.
#[derive(Debug, Default)]
struct Belongings {
    webhook: Option<Arc<str>>,
    memory: Option<Box<dyn Any + Send>>,
    sources: Option<Holding>,
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
        listener: Arc<dyn ResultListener>,
        tasks: &Tasks,
    ) -> Self {
        let requests = Self(Arc::new(Inner {
            switchboard,
            store,
            listener,
            tasks: tasks.clone(),
            shelves: RwLock::default(),
            places: Mutex::default(),
        }));
        let (swept, stopping) = (requests.clone(), tasks.stopping());
        tasks.start(async move {
            let _ = stopping.run_until_cancelled(swept.sweep_on()).await;
        });
        requests
    }

    /// Stores and queues the request. Both are done when this returns.
    pub async fn accept(&self, mut new: NewRequest) -> Result<Arc<Request>, NotAccepted> {
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
        let row = new.take_row();
        // If the store fails, the streams are dropped here, which cancels the jobs.
        self.0.store.accept(row.clone(), new.dues).await?;
        new.kept.into_iter().for_each(Kept::accepted);
        let wishes = (new.wishes, new.standing);
        let request = Request::new(&row, wishes, &new.jobs, &streams, Vec::new());
        let request = Arc::new(request);
        self.take_in(&request, new.place);
        let belongings = Belongings {
            webhook: new.webhook,
            memory: new.memory,
            sources: new.sources,
        };
        self.follow(&request, &new.jobs, streams, belongings);
        Ok(request)
    }

    pub fn find(&self, id: RequestId) -> Option<Arc<Request>> {
        let found = self.read().find(id);
        found.filter(|request| !request.is_deleted() && request.expires_at() > wall_clock())
    }

    /// Cancels a request. Running jobs may still be submitted.
    pub async fn cancel(&self, request: &Request) -> Result<(), StorageError> {
        request.cancel();
        self.0.store.cancel_request(request.id).await
    }

    /// Cancels all requests of an account.
    pub async fn cancel_all_of(&self, account: AccountId) -> Result<(), StorageError> {
        for request in self.unfinished(account) {
            self.cancel(&request).await?;
        }
        Ok(())
    }

    /// Removes the account's requests from memory. `erasure` deletes their rows.
    pub fn forget_all_of(&self, account: AccountId) {
        let shelves = self.read();
        for request in shelves.all_of(account) {
            request.cancel();
            request.delete();
        }
    }

    /// Stops the waiting jobs of a kind; running ones go on.
    pub async fn end_waiting(&self, kind: Kind) -> Result<(), StorageError> {
        let waiting = self.waiting(kind);
        // The writer batches them.
        let mut written: FuturesUnordered<_> = waiting
            .iter()
            .map(|request| self.0.store.end_waiting(request.id))
            .collect();
        while let Some(written) = written.next().await {
            written?;
        }
        waiting.iter().for_each(|request| request.end_waiting());
        Ok(())
    }

    fn waiting(&self, kind: Kind) -> Vec<Arc<Request>> {
        let shelves = self.read();
        let all = shelves.all_unfinished();
        let waiting = all.filter(|request| request.kind == kind && request.counts().waiting > 0);
        waiting.cloned().collect()
    }

    /// Requests of an account with open jobs.
    pub fn unfinished(&self, account: AccountId) -> Vec<Arc<Request>> {
        self.read().unfinished(account).cloned().collect()
    }

    fn follow(
        &self,
        request: &Arc<Request>,
        jobs: &[Arc<Job>],
        streams: Vec<JobStream>,
        belongings: Belongings,
    ) {
        let Inner {
            tasks, switchboard, ..
        } = &*self.0;
        let keeper = self.clone();
        let follower = Follower {
            request: request.clone(),
            switchboard: switchboard.clone(),
            stopping: tasks.stopping(),
            told: Told::of(request),
            ended: move |request: &Request| keeper.lessen(request),
        };
        let Belongings {
            webhook,
            memory,
            sources,
        } = belongings;
        if let Some(address) = webhook {
            self.0.listener.follow(request.clone(), address);
        }
        let following = follower.follow(jobs.to_vec(), streams);
        let (requests, followed) = (self.clone(), request.clone());
        tasks.start(async move {
            following.await;
            drop(memory);
            if let Some(sources) = sources {
                restore::let_go(sources, &followed);
            }
            if followed.has_ended() {
                requests.finish(&followed).await;
            }
        });
    }

    fn read(&self) -> RwLockReadGuard<'_, Shelves> {
        self.0.shelves.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shelves> {
        self.0.shelves.write()
    }

    async fn sweep_on(self) {
        for sweep in 1_u32.. {
            sleep(SWEEP).await;
            let all_written = self.keep_longer().await;
            let now = wall_clock();
            while self.write().forget(now) {
                yield_now().await;
            }
            // Without the extensions stored, the sweep would delete requests that are still needed.
            if all_written {
                self.sweep_store(now.before(MARGIN), sweep).await;
            }
        }
    }

    async fn sweep_store(&self, before: UnixMillis, sweep: u32) {
        if let Err(error) = self.forget_stored(before).await {
            warn!("deleting expired requests failed, retrying later: {error}");
        }
        self.release_lost(before).await;
        if sweep.is_multiple_of(LOST) {
            self.forget_lost(before).await;
        }
    }

    /// In steps, for one sweep interval at most, because extended lifetimes have to be stored in between.
    async fn forget_stored(&self, before: UnixMillis) -> Result<(), StorageError> {
        let began = Instant::now();
        while self.0.store.forget_requests(before).await? && began.elapsed() < SWEEP {
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Deletes results whose request was never stored or was deleted before its last job ended.
    async fn forget_lost(&self, before: UnixMillis) {
        match self.0.store.forget_lost_results(before).await {
            Ok(0) => {}
            Ok(lost) => debug!("deleted {lost} results without a request"),
            Err(error) => {
                warn!("deleting results without a request failed, retrying later: {error}")
            }
        }
    }
}

impl Requests {
    /// Stores extended lifetimes, each rounded up to a full minute so that many share one write. True if all were
    /// stored.
    async fn keep_longer(&self) -> bool {
        let mut longer: BTreeMap<UnixMillis, Vec<Arc<Request>>> = BTreeMap::new();
        let mut place = None;
        loop {
            let some = self.read().after(place);
            let Some((last, _)) = some.last() else { break };
            place = Some(*last);
            for (_, request) in some {
                if let Some(until) = request.outlives_disk(RENEWED) {
                    let minute = UnixMillis((until.0 / MINUTE + 1).saturating_mul(MINUTE));
                    longer.entry(minute).or_default().push(request);
                }
            }
            yield_now().await;
        }
        let mut all = true;
        for (until, requests) in longer {
            let ids: Vec<RequestId> = requests.iter().map(|request| request.id).collect();
            match self.0.store.keep_requests(ids, until).await {
                Ok(()) => requests.iter().for_each(|it| it.is_kept_until(until)),
                Err(error) => {
                    warn!("extending the lifetime of requests failed, retrying later: {error}");
                    all = false;
                }
            }
        }
        all
    }
}
