//! Kudos and credits before `/v1` jobs are queued: counts the request and holds the most that its jobs may cost. Holds
//! of jobs that the queue refuses are released here, the others at settlement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use tracing::debug;

use super::admitted::Admitted;
use super::open::{KnownModels, Open};
use crate::accounts::Caller;
use crate::billing::{JobPrice, MicroUsd, ModelRates};
use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::metering;
use crate::state::DoorSettings;
use crate::storage::{CreditHold, CreditOutcome, CreditRelease, RequestCount, StorageError, Store};
use crate::switchboard::Switchboard;
use crate::values::Roles;
use crate::workers::output_room;
use muster_process::tasks::Tasks;
use muster_protocol::job::{Body, FailureKind, Job, JobId, Kind, OutputForm, UnixMillis};

/// Charges the account of an HTTP request.
#[derive(Debug, Clone)]
pub struct Cashier {
    store: Store,
    settings: Arc<DoorSettings>,
    models: Arc<KnownModels>,
    board: Switchboard,
    tasks: Tasks,
    caller: Arc<Caller>,
    /// A request counts once, however many models or jobs it is tried with.
    is_counted: Arc<AtomicBool>,
}

/// The hold of jobs on their way to the queue. Dropped before they are queued, it is released.
#[derive(Debug)]
pub struct PendingHold {
    cashier: Option<Cashier>,
    jobs: Vec<JobId>,
    was_counted: bool,
    now: UnixMillis,
    /// Why the jobs must not run, should the queue take them.
    refusal: Option<ApiError>,
}

/// Tokens of a chat template: its system message, and the marks around the messages.
const TEMPLATE_TOKENS: u64 = 128;
const DAY_MILLIS: i64 = 86_400_000;
/// Administrators, and services that send requests of others.
const UNCOUNTED: [Roles; 2] = [Roles::ADMIN, Roles::SERVICE];

impl<S> FromRequestParts<S> for Cashier
where
    S: Send + Sync,
    Store: FromRef<S>,
    Arc<DoorSettings>: FromRef<S>,
    Arc<KnownModels>: FromRef<S>,
    Switchboard: FromRef<S>,
    Tasks: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Admitted(caller) = Admitted::from_request_parts(parts, state).await?;
        Ok(Self::new(state, caller))
    }
}

impl Cashier {
    fn new<S>(state: &S, caller: Arc<Caller>) -> Self
    where
        Store: FromRef<S>,
        Arc<DoorSettings>: FromRef<S>,
        Arc<KnownModels>: FromRef<S>,
        Switchboard: FromRef<S>,
        Tasks: FromRef<S>,
    {
        Self {
            store: FromRef::from_ref(state),
            settings: FromRef::from_ref(state),
            models: FromRef::from_ref(state),
            board: FromRef::from_ref(state),
            tasks: FromRef::from_ref(state),
            caller,
            is_counted: Arc::default(),
        }
    }

    /// For a request that an earlier process counted.
    pub fn resumed(open: &Open, caller: Arc<Caller>) -> Self {
        Self {
            is_counted: Arc::new(AtomicBool::new(true)),
            ..Self::new(open, caller)
        }
    }

    /// Puts a price on the jobs, all of one model, where their account pays.
    pub async fn hold(&self, jobs: &mut [Arc<Job>]) -> Result<PendingHold, ApiError> {
        let login = self.caller.login.as_deref();
        let pays = self.settings.charging.includes(login);
        let count = self.count();
        if !pays && count == RequestCount::Uncounted {
            return Ok(PendingHold::nothing(None));
        }
        if pays && let Err(unpriced) = self.put_prices(jobs).await {
            return match self.is_online(jobs).await {
                true => Err(unpriced),
                // The queue's error for an unknown model is more precise.
                false => Ok(PendingHold::nothing(Some(unpriced))),
            };
        }
        let amounts = jobs.iter();
        let amounts = amounts.filter_map(|job| Some((job.id, job.price?.held)));
        self.hold_amounts(amounts.collect(), count).await
    }

    async fn hold_amounts(
        &self,
        jobs: Vec<(JobId, MicroUsd)>,
        count: RequestCount,
    ) -> Result<PendingHold, ApiError> {
        let now = wall_clock();
        let mut pending = PendingHold {
            cashier: Some(self.clone()),
            jobs: jobs.iter().map(|(job, _)| *job).collect(),
            // An aborted request counts as one of the day.
            was_counted: false,
            now,
            refusal: None,
        };
        let hold = CreditHold {
            account: self.caller.account,
            jobs,
            allowance: self.settings.free_credits_per_day,
            count,
            now,
        };
        let refusal = match self.store.hold_credits(hold).await.map_err(unavailable)? {
            CreditOutcome::Held => {
                pending.was_counted = count != RequestCount::Uncounted;
                self.is_counted
                    .fetch_or(pending.was_counted, Ordering::Relaxed);
                return Ok(pending);
            }
            CreditOutcome::Missing(missing) => too_little(missing),
            CreditOutcome::NoRequests => self.used_up(now),
        };
        pending.forget();
        Err(refusal)
    }

    fn count(&self) -> RequestCount {
        let is_exempt = UNCOUNTED
            .iter()
            .any(|role| self.caller.roles.contains(*role));
        let is_counted = self.is_counted.load(Ordering::Relaxed);
        match self.settings.free_requests_per_day {
            Some(most) if !is_exempt && !is_counted => RequestCount::UpTo(most),
            _ => RequestCount::Uncounted,
        }
    }

    async fn put_prices(&self, jobs: &mut [Arc<Job>]) -> Result<(), ApiError> {
        let Some(first) = jobs.first() else {
            return Ok(());
        };
        let name = first.model.0.first().cloned().unwrap_or_default();
        let names = self.models.priced_names(&name);
        let rates = self
            .settings
            .price_book
            .rates(names.iter().map(|name| &**name));
        let price = rates.and_then(|rates| rates_of(rates, first));
        let price = price.ok_or_else(|| unpriced(&name))?;
        // The jobs of a request differ in the seed alone.
        let prompt = metering::count_of_prompt(first.clone()).await;
        let output = self.longest_output(first, prompt).await;
        let held = price.of_tokens(most_prompt_tokens(prompt), output.into());
        for job in jobs {
            let job = Arc::make_mut(job);
            job.price = Some(JobPrice { held, ..price });
            // The output is limited to the paid tokens.
            if let Body::Text(text) = &mut job.body {
                job.limits.output_tokens = Some(output);
                text.max_tokens = Some(output);
            }
        }
        Ok(())
    }

    /// Output tokens to hold for: the request's limit, or the rest of the model's context without one.
    async fn longest_output(&self, job: &Job, prompt: u32) -> u32 {
        match (&job.body, job.limits.output_tokens) {
            (Body::Text(_), Some(most)) => most,
            (Body::Text(_), None) => output_room(self.context(job).await, prompt),
            _ => 0,
        }
    }

    async fn context(&self, job: &Job) -> u32 {
        let overview = self.board.current().await;
        let models = overview.models.iter();
        let models = models.filter(|model| job.model.0.contains(&model.name));
        models.map(|model| model.context).max().unwrap_or_default()
    }

    async fn is_online(&self, jobs: &[Arc<Job>]) -> bool {
        let overview = self.board.current().await;
        let mut models = overview.models.iter();
        models.any(|model| jobs.iter().any(|job| job.model.0.contains(&model.name)))
    }

    fn used_up(&self, now: UnixMillis) -> ApiError {
        let most = self.settings.free_requests_per_day.unwrap_or_default();
        let message = format!(
            "the account has used its {most} free requests of this UTC day; add credits or retry after midnight UTC"
        );
        ApiError::new(FailureKind::RateLimited, message).after(until_midnight(now))
    }

    async fn release(&self, jobs: Vec<JobId>, was_counted: bool, now: UnixMillis) {
        if was_counted {
            self.is_counted.store(false, Ordering::Relaxed);
        }
        let release = CreditRelease {
            account: self.caller.account,
            jobs,
            was_counted,
            now,
        };
        if let Err(error) = self.store.release_credits(release).await {
            debug!("releasing credits failed, they are released later: {error}");
        }
    }
}

impl PendingHold {
    fn nothing(refusal: Option<ApiError>) -> Self {
        Self {
            cashier: None,
            jobs: Vec::new(),
            was_counted: false,
            now: UnixMillis::default(),
            refusal,
        }
    }

    /// The jobs are queued, and their settlements release the hold. On an error the caller drops the jobs' streams.
    pub fn queued(mut self) -> Result<(), ApiError> {
        self.cashier = None;
        self.refusal.take().map_or(Ok(()), Err)
    }

    /// The jobs are not queued.
    pub async fn release(mut self) {
        if let Some(cashier) = self.cashier.take() {
            let jobs = std::mem::take(&mut self.jobs);
            cashier.release(jobs, self.was_counted, self.now).await;
        }
    }

    /// Ends without a hold to release.
    fn forget(mut self) {
        self.cashier = None;
    }
}

/// The client disconnected before the jobs were queued.
impl Drop for PendingHold {
    fn drop(&mut self) {
        if let Some(cashier) = self.cashier.take() {
            let (jobs, was_counted, now) =
                (std::mem::take(&mut self.jobs), self.was_counted, self.now);
            let tasks = cashier.tasks.clone();
            tasks.start(async move { cashier.release(jobs, was_counted, now).await });
        }
    }
}

/// An upper bound of the prompt tokens by the worker's own tokenizer, chat template included. The bill uses the
/// worker's count, and a bill must never exceed its hold.
fn most_prompt_tokens(counted: u32) -> u64 {
    2 * u64::from(counted) + TEMPLATE_TOKENS
}

/// `None` if the model has no price for this kind of job.
fn rates_of(rates: &ModelRates, job: &Job) -> Option<JobPrice> {
    let body = &job.body;
    let spoken = body.spoken_characters().or_else(|| {
        // No model for music has such a price.
        let characters = body.characters_of_possible_speech()?;
        rates.of(Kind::Speech).map(|_| characters)
    });
    let spoken = spoken.and_then(|characters| rates.spoken(characters));
    match (body.output(), body.transcribed_millis()) {
        (OutputForm::Text, _) => rates.text(),
        (OutputForm::Values, Some(millis)) => rates.transcription(millis),
        (OutputForm::Values, None) if body.spoken_characters().is_some() => spoken.map(whole),
        (OutputForm::Values, None) => rates.reading(),
        (OutputForm::File(_), _) => {
            let fixed = spoken.or_else(|| rates.output(body.kind(), body.paid_millis()));
            fixed.map(whole)
        }
        (OutputForm::Form, _) => None,
    }
}

/// The price of an output as a whole.
fn whole(fixed: MicroUsd) -> JobPrice {
    JobPrice {
        fixed,
        ..JobPrice::default()
    }
}

/// How long until the next UTC day.
fn until_midnight(now: UnixMillis) -> Duration {
    let left = DAY_MILLIS - now.0.rem_euclid(DAY_MILLIS);
    Duration::from_millis(u64::try_from(left).unwrap_or_default())
}

fn unpriced(model: &str) -> ApiError {
    let message = format!(
        "the account pays for requests and the model {model} has no price: use a model listed by /v1/pricing"
    );
    ApiError::new(FailureKind::InsufficientCredits, message)
}

fn too_little(missing: MicroUsd) -> ApiError {
    let message = format!(
        "the account lacks {} USD of credits for this request: add credits or ask for less, such as a smaller max_tokens or a shorter sound",
        missing.usd()
    );
    ApiError::new(FailureKind::InsufficientCredits, message)
}

fn unavailable(_: StorageError) -> ApiError {
    let message = "holding credits failed: the database does not answer; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}

#[cfg(test)]
mod tests {
    use super::until_midnight;
    use muster_protocol::job::UnixMillis;

    #[test]
    fn the_day_ends_at_midnight_utc() {
        let check = |now, seconds| {
            assert_eq!(until_midnight(UnixMillis(now)).as_secs(), seconds);
        };
        check(0, 86_400);
        check(86_399_000, 1);
        check(1_700_000_000_000, 6_400);
    }
}
