//! A request of the poll API as it is kept on disk, and the jobs that it becomes: now, and again after a restart.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::NewRequest;
use crate::coordinator::clock::wall_clock;
use crate::coordinator::dispatch::Standing;
use crate::coordinator::names::Names;
use crate::coordinator::storage::RequestRow;
use crate::coordinator::switchboard::Overview;
use crate::protocol::job::{
    AccountId, Body, Formats, Job, JobId, Kind, Limits, ModelChoice, Privacy, Reach, RequestId,
    UnixMillis,
};
use crate::protocol::legacy::Body as _;
use crate::protocol::legacy::text::format;
use crate::protocol::legacy::text::request::GenerationInputText;

/// Text is stale after this.
const LIFETIME: Duration = Duration::from_secs(20 * 60);
/// How long a worker that polls may keep one.
const PATIENCE: Duration = Duration::from_secs(150);
/// Hardly any text has fewer tokens than one in so many bytes.
const BYTES_PER_TOKEN: usize = 8;
/// Settings about how repetition is punished. Our own engine punishes all of it alike; a request that only names
/// these goes to any worker, and is told.
const SHAPES_OF_PENALTY: [&str; 4] = [
    "rep_pen_range",
    "rep_pen_slope",
    "sampler_order",
    "use_default_badwordsids",
];

/// A text request with everything that was drawn for it.
#[derive(Debug)]
pub struct Order {
    id: RequestId,
    account: AccountId,
    accepted_at: UnixMillis,
    asked: GenerationInputText,
    jobs: Vec<JobId>,
    seed: u64,
    /// Settings in it that our own engine does not have.
    acting: Vec<&'static str>,
}

/// Why a stored request is not understood any more.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

impl Order {
    pub fn new(id: RequestId, account: AccountId, asked: GenerationInputText) -> Self {
        let jobs = (0..asked.outputs()).map(|_| JobId::random());
        Self {
            id,
            account,
            accepted_at: wall_clock(),
            jobs: jobs.collect(),
            // Seeds of this API have 32 bits.
            seed: Uuid::new_v4().as_u64_pair().0 >> 32,
            acting: acting(&asked),
            asked,
        }
    }

    pub fn read(row: &RequestRow) -> Result<Self, Unreadable> {
        let broken = |what: &str| Unreadable(format!("its {what} cannot be read"));
        let body: Value = serde_json::from_str(&row.body).map_err(|_| broken("body"))?;
        let ids = serde_json::from_value(body["jobs"].clone()).map_err(|_| broken("jobs"))?;
        let asked = GenerationInputText::read(body["request"].clone())
            .map_err(|refusal| Unreadable(refusal.to_string()))?;
        Ok(Self {
            id: row.id,
            account: row.account,
            accepted_at: row.accepted_at,
            acting: acting(&asked),
            asked,
            jobs: ids,
            seed: body["seed"].as_u64().ok_or_else(|| broken("seed"))?,
        })
    }

    pub fn request(&self, standing: Standing, names: &Names) -> NewRequest {
        let body = json!({"jobs": self.jobs, "seed": self.seed, "request": self.asked});
        NewRequest {
            id: self.id,
            account: self.account,
            kind: Kind::Text,
            body: body.to_string(),
            jobs: self.jobs(names),
            standing,
            expires_at: self.expires_at(),
        }
    }

    pub fn jobs(&self, names: &Names) -> Vec<Arc<Job>> {
        let numbered = self.jobs.iter().zip(0..);
        let jobs = numbered.map(|(&id, choice)| Arc::new(self.job(id, choice, names)));
        jobs.collect()
    }

    /// What whoever asks should know: that nobody can serve it now, or that not all of it is honoured everywhere.
    pub fn notice(&self, overview: &Overview, names: &Names) -> Option<String> {
        let serves = |model: &crate::coordinator::switchboard::ModelOnline| {
            model.kinds.contains(Kind::Text) && model.formats.meets(self.formats())
        };
        let is_wanted = |name: &str| {
            let mut asked = self.asked.models.iter();
            self.asked.models.is_empty() || asked.any(|one| *names.id(one) == *name)
        };
        let mut online = overview.models.iter();
        if !online.any(|model| serves(model) && is_wanted(&model.name)) {
            return Some(
                "no worker that is online now can serve this; it waits for one".to_owned(),
            );
        }
        let acting = &self.acting;
        (!acting.is_empty() && self.formats().meets(Formats::NEUTRAL)).then(|| {
            format!(
                "workers on a socket do not know {}; whichever worker is free first serves this",
                acting.join(", ")
            )
        })
    }

    fn expires_at(&self) -> UnixMillis {
        self.accepted_at.after(LIFETIME)
    }

    fn job(&self, id: JobId, choice: u32, names: &Names) -> Job {
        let mut text = self.asked.text(choice);
        text.sampling.seed = Some(self.seed + u64::from(choice));
        if let crate::protocol::job::TextInput::Prompt(prompt) = &mut text.input
            && let Some(legacy) = &mut text.sampling.legacy
        {
            *prompt = format::prompt(prompt, legacy).into_owned();
            legacy.frmtadsnsp = legacy.frmtadsnsp.map(|_| false);
        }
        let models = self.asked.models.iter().map(|name| names.id(name));
        let params = &self.asked.params;
        let length = self.asked.prompt.len() / BYTES_PER_TOKEN;
        Job {
            id,
            request: self.id,
            account: self.account,
            kind: Kind::Text,
            model: ModelChoice(models.collect()),
            limits: Limits {
                formats: self.formats(),
                prompt_tokens: u32::try_from(length).unwrap_or(u32::MAX),
                output_tokens: Some(params.max_length),
                reach: Reach {
                    window: params.max_context_length,
                    output: params.max_length,
                },
                patience: Some(PATIENCE),
                ..Limits::default()
            },
            body: Body::Text(Box::new(text)),
            privacy: match self.asked.trusted_workers {
                true => Privacy::Trusted,
                false => Privacy::Anyone,
            },
            deadline: self.expires_at(),
            durable: true,
            prefixes: Vec::new(),
            original: None,
        }
    }

    fn formats(&self) -> Formats {
        match self
            .acting
            .iter()
            .all(|name| SHAPES_OF_PENALTY.contains(name))
        {
            true => Formats::LEGACY.with(Formats::NEUTRAL),
            false => Formats::LEGACY,
        }
    }
}

fn acting(asked: &GenerationInputText) -> Vec<&'static str> {
    asked.text(0).sampling.only_for_legacy_workers()
}
