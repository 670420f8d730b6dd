//! Jobs for the queue from a parsed request: one for each choice.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use crate::http::journal::JournalHead;
use crate::secrets;
use crate::state::DoorSettings;
use muster_protocol::job::{
    AccountId, Body, CacheOwner, Formats, Job, JobId, Kind, Limits, ModelChoice, NativeBody, Needs,
    Original, Privacy, RequestId, TextInput, TextNeeds, TextRequest, UnixMillis,
};
use muster_protocol::openai::chat::ChatRequest;

/// Job fields that do not come from the request's body.
#[derive(Debug)]
pub struct Order {
    request: RequestId,
    account: AccountId,
    now: UnixMillis,
    settings: Arc<DoorSettings>,
    privacy: Privacy,
    /// For a request without a seed: a stream can be resumed on another worker only with the same seed.
    seed: u64,
    /// Ids of jobs that an earlier coordinator began; empty for a new request.
    begun: Vec<JobId>,
}

/// Most prefixes of a prompt.
const MOST_PREFIXES: usize = 16;
/// Larger numbers lose precision in programs that use doubles.
const EXACT: u64 = (1 << 53) - 1;

impl Order {
    pub fn new(request: RequestId, account: AccountId, settings: Arc<DoorSettings>) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            request,
            account,
            now: UnixMillis::default().after(since.unwrap_or_default()),
            seed: settings.prefixes.hash_one(request) & EXACT,
            settings,
            privacy: Privacy::Anyone,
            begun: Vec::new(),
        }
    }

    /// The same jobs as an earlier coordinator's, so that each is settled once.
    pub fn continuing(self, head: &JournalHead) -> Self {
        Self {
            now: head.created,
            seed: head.seed,
            begun: head.jobs.clone(),
            ..self
        }
    }

    /// The head of a journal, by which another coordinator continues these jobs.
    pub fn journal_head(&self, request: &ChatRequest, jobs: Vec<JobId>) -> JournalHead {
        JournalHead {
            request: self.request,
            created: self.now,
            model: request.model.clone(),
            seed: self.seed_of(request),
            jobs,
        }
    }

    /// A request through a VPN or proxy goes to trusted workers only.
    pub fn hidden(self, is_hidden: bool) -> Self {
        let privacy = match is_hidden {
            true => Privacy::Trusted,
            false => Privacy::Anyone,
        };
        Self { privacy, ..self }
    }

    /// Seconds since the epoch.
    pub fn created(&self) -> i64 {
        self.now.0 / 1000
    }

    pub fn seed_of(&self, request: &ChatRequest) -> u64 {
        request.text.sampling.seed.unwrap_or(self.seed)
    }

    /// The body for workers of the public network: as a chat body, and in the client's own API.
    pub fn original(&self, mut body: Value, native: Option<NativeBody>) -> Original {
        let native = native.map(|native| match self.settings.scrub_secrets {
            true => scrubbed(native),
            false => native,
        });
        if self.settings.scrub_secrets {
            secrets::scrub_messages(&mut body);
        }
        Original {
            format: Formats::OPENAI_CHAT,
            body: Arc::new(body),
            native,
        }
    }

    /// A job for each choice.
    pub fn jobs(&self, request: &ChatRequest, original: &Original) -> Vec<Arc<Job>> {
        let prefixes = self.prefixes(request);
        let job = |choice| {
            let mut text = request.choice(choice);
            text.sampling.seed = Some(self.seed_of(request));
            let mut job = self.job(request, text, original, prefixes.clone());
            if let Some(begun) = self.begun.get(choice as usize) {
                job.id = *begun;
            }
            Arc::new(job)
        };
        (0..request.choices).map(job).collect()
    }

    fn job(
        &self,
        request: &ChatRequest,
        text: TextRequest,
        original: &Original,
        prefixes: Vec<u64>,
    ) -> Job {
        Job {
            id: JobId::random(),
            request: self.request,
            account: self.account,
            shared_key: None,
            kind: Kind::Text,
            model: ModelChoice(vec![request.model.clone()]),
            limits: Limits {
                formats: formats(request, original.native.as_ref()),
                requires: request.requires(),
                prompt_tokens: request.least_prompt_tokens(),
                output_tokens: text.max_tokens,
                needs: Needs::Text(needs(request)),
                restartable: request.stream.is_none(),
                keep_alive: request.keep_alive,
                ..Limits::default()
            },
            body: Body::Text(Box::new(text)),
            privacy: self.privacy,
            deadline: self.now.after(self.settings.lifetime),
            durable: false,
            prefixes,
            original: is_chat(request).then(|| original.clone()),
            price: None,
        }
    }

    /// After each message, the hash of everything up to it and of the cache's owner, so that only the same owner finds
    /// it. For a long conversation only the last ones, which match most.
    fn prefixes(&self, request: &ChatRequest) -> Vec<u64> {
        let TextInput::Chat(chat) = &request.text.input else {
            return Vec::new();
        };
        let mut hasher = self.settings.prefixes.build_hasher();
        CacheOwner::of(self.account, None, self.request).hash(&mut hasher);
        request.model.hash(&mut hasher);
        request.cache_key.hash(&mut hasher);
        chat.tools.hash(&mut hasher);
        let mut prefixes: Vec<u64> = chat
            .messages
            .iter()
            .map(|message| {
                message.hash(&mut hasher);
                hasher.finish()
            })
            .collect();
        prefixes.split_off(prefixes.len().saturating_sub(MOST_PREFIXES))
    }
}

fn scrubbed(native: NativeBody) -> NativeBody {
    let mut body = Arc::unwrap_or_clone(native.body);
    secrets::scrub_body(&mut body);
    NativeBody {
        body: Arc::new(body),
        ..native
    }
}

fn is_chat(request: &ChatRequest) -> bool {
    matches!(request.text.input, TextInput::Chat(_))
}

/// The formats in which workers may get the request. Polling workers are included only if the request has no parameter
/// that their format lacks. (A seed drawn by this server does not count: its purpose is to resume a stream elsewhere,
/// and streams of polling workers are not resumed.)
pub fn formats(request: &ChatRequest, native: Option<&NativeBody>) -> Formats {
    let ours = match is_chat(request) {
        true => Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
        false => Formats::NEUTRAL,
    };
    let ours = native.map_or(ours, |native| ours.with(native.format));
    match request.text.beyond_plain_text().is_empty() {
        true => ours.with(Formats::LEGACY),
        false => ours,
    }
}

/// Lowers the requirement for the output, so that polling workers with smaller limits get the job; they write as much
/// as they can.
pub fn clamp(job: &mut Job) {
    job.limits.needs = Needs::Text(TextNeeds {
        window: job.limits.prompt_tokens,
        ..TextNeeds::default()
    });
}

/// Requirements for a polling worker: it states its context as prompt and output together.
fn needs(request: &ChatRequest) -> TextNeeds {
    let output = request.text.max_tokens.unwrap_or_default();
    TextNeeds {
        window: request.least_prompt_tokens().saturating_add(output),
        output,
        ..TextNeeds::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{EXACT, Order};
    use crate::state::DoorSettings;
    use muster_protocol::job::{AccountId, Body, Formats, Job, RequestId};
    use muster_protocol::openai::Strictness;
    use muster_protocol::openai::chat::ChatRequest;

    fn jobs(settings: &Arc<DoorSettings>, body: Value) -> Vec<Arc<Job>> {
        let request = ChatRequest::read(body.clone(), Strictness::Refuse).unwrap();
        let order = Order::new(RequestId::random(), AccountId(1), settings.clone());
        order.jobs(&request, &order.original(body, None))
    }

    fn seed(job: &Job) -> Option<u64> {
        let Body::Text(text) = &job.body else {
            return None;
        };
        text.sampling.seed
    }

    #[test]
    fn choices_become_jobs_of_one_seed_and_their_own_number() {
        let body = json!({"model": "m", "n": 3, "messages": [{"role": "user", "content": "hi"}]});
        let jobs = jobs(&Arc::default(), body);
        let choices: Vec<_> = jobs
            .iter()
            .map(|job| match &job.body {
                Body::Text(text) => Some(text.choice),
                _ => None,
            })
            .collect();
        assert_eq!(choices, [Some(0), Some(1), Some(2)]);
        assert!(seed(&jobs[0]).is_some_and(|seed| seed <= EXACT));
        assert_eq!(seed(&jobs[0]), seed(&jobs[2]));
        assert_ne!(jobs[0].id, jobs[1].id);
    }

    #[test]
    fn only_what_can_be_told_a_worker_that_polls_may_go_to_one() {
        let goes = |more: Value| {
            let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
            body.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            jobs(&Arc::default(), body)[0]
                .limits
                .formats
                .meets(Formats::LEGACY)
        };
        assert!(goes(
            json!({"temperature": 0.5, "stop": ["x"], "max_tokens": 9})
        ));
        assert!(!goes(json!({"seed": 1})));
        assert!(!goes(json!({"logprobs": true})));
        assert!(!goes(json!({"response_format": {"type": "json_object"}})));
        let tool = json!({"type": "function", "function": {"name": "f"}});
        assert!(!goes(json!({"tools": [tool]})));
        let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
        let picture = json!([{"role": "user", "content": [url]}]);
        assert!(!goes(json!({"messages": picture})));
    }

    #[test]
    fn a_talk_that_goes_on_begins_with_the_same_prefixes() {
        let settings = Arc::new(DoorSettings::default());
        let said = |texts: &[&str]| {
            let messages: Vec<_> = texts
                .iter()
                .map(|text| json!({"role": "user", "content": text}))
                .collect();
            let body = json!({"model": "m", "messages": messages});
            jobs(&settings, body)[0].prefixes.clone()
        };
        let (short, long) = (said(&["a", "b"]), said(&["a", "b", "c"]));
        assert_eq!(short, long[..2]);
        assert_ne!(said(&["b", "a"])[1], short[1]);
        assert_eq!(said(&["x"; 40]).len(), 16);
    }
}
