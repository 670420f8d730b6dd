//! A request as stored, and the jobs made from it: now, and again after a restart.
//!
//! | file | contents |
//! | --- | --- |
//! | `text` | texts |
//! | `image` | images |
//! | `media` | media of `/v1` |
//! | `interrogation` | questions about images |
//! | `sent` | the client's original fields, if they differ |
//!
//! Each kind defines the lifetime of its requests, its jobs, and warnings for the client. The rest is common.

mod image;
mod interrogation;
mod media;
mod sent;
mod text;

pub use media::{MediaNotes, MediaWork, VideoFacts};
pub use sent::{Again, Sent};

/// The longest lifetime of all kinds, which is that of media; a test checks this.
pub const LONGEST_LIFETIME: Duration = media::LIFETIME;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{NewRequest, Wishes};
use crate::accounts::Payer;
use crate::clock::wall_clock;
use crate::dispatch::{Priority, Standing};
use crate::kudos::activation_fee;
use crate::media::{Area, Key};
use crate::names::Names;
use crate::storage::{Dues, RequestRow};
use crate::values::styles::Use;
use muster_protocol::job::{
    AccountId, Body, Capabilities, Job, JobId, JobPrice, Kind, Kudos, Limits, ModelChoice,
    Original, Privacy, RequestId, SharedKeyId, Targets, UnixMillis, WorkerId,
};
use muster_protocol::legacy::Refusal;
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::legacy::interrogation::ModelInterrogationInputImage;
use muster_protocol::legacy::text::request::GenerationInputText;

use image::ImageAsked;
use interrogation::FormsAsked;
use text::TextAsked;

/// A request with its random ids and seed.
#[derive(Debug)]
pub struct Order {
    id: RequestId,
    account: AccountId,
    /// The shared key of the request.
    shared_key: Option<SharedKeyId>,
    jobs: Vec<JobId>,
    /// Below 2^32, as in this API.
    seed: u64,
    whose: Whose,
    expires_at: UnixMillis,
    /// The priority, the same after a restart.
    priority: Priority,
    /// Whether the account may lack the kudos.
    short: bool,
    asked: Asked,
    /// As stored; restored requests are not written again.
    sent: Option<Sent>,
}

/// The workers that may serve it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Whose {
    pub workers: Targets,
    /// The client's address is of a VPN or proxy, so only trusted workers get the request, if their owners allow it.
    pub is_hidden: bool,
}

/// The request's own fields, by kind.
#[derive(Debug)]
pub enum Asked {
    Text(Box<TextAsked>),
    Image(Box<ImageAsked>),
    Forms(Box<FormsAsked>),
    /// From `/v1`.
    Media(Box<MediaWork>),
}

/// Why a stored request cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// The index of a job within its request.
#[derive(Debug, Clone, Copy)]
struct Nth {
    index: u32,
    /// The request's random seed.
    seed: u64,
}

/// The part of a job that depends on the request's kind.
#[derive(Debug)]
struct Task {
    body: Body,
    limits: Limits,
    /// Only for workers that the operator trusts.
    trusted: bool,
    original: Option<Original>,
    /// `None` if the account does not pay in money.
    price: Option<JobPrice>,
}

impl Order {
    pub fn new(id: RequestId, payer: &Payer, asked: Asked) -> Self {
        let now = wall_clock();
        Self {
            id,
            account: payer.account,
            shared_key: payer.shared_key(),
            expires_at: now.after(asked.lifetime()),
            jobs: (0..asked.outputs()).map(|_| JobId::random()).collect(),
            seed: Uuid::new_v4().as_u64_pair().0 >> 32,
            whose: Whose::default(),
            priority: payer.standing.priority,
            short: payer.standing.short,
            asked,
            sent: None,
        }
    }

    /// Media of `/v1`, with the current standing of the account.
    pub fn of_media(
        id: RequestId,
        account: AccountId,
        standing: Standing,
        work: MediaWork,
    ) -> Self {
        let asked = Asked::Media(Box::new(work));
        Self {
            id,
            account,
            shared_key: None,
            expires_at: wall_clock().after(asked.lifetime()),
            jobs: (0..asked.outputs()).map(|_| JobId::random()).collect(),
            seed: Uuid::new_v4().as_u64_pair().0 >> 32,
            whose: Whose::default(),
            priority: standing.priority,
            short: standing.short,
            asked,
            sent: None,
        }
    }

    /// Sets the money price of `/v1` media.
    #[must_use]
    pub fn priced(mut self, price: Option<JobPrice>) -> Self {
        if let Asked::Media(work) = &mut self.asked {
            work.price = price;
        }
        self
    }

    pub fn for_workers(mut self, whose: Whose) -> Self {
        self.whose = whose;
        self
    }

    /// Stores the client's original fields, which it may read again.
    pub fn sent_as(mut self, sent: Sent) -> Self {
        self.sent = Some(sent);
        self
    }

    pub fn read(row: &RequestRow) -> Result<Self, Unreadable> {
        let broken = |what: &str| Unreadable(format!("invalid {what}"));
        let mut body: Value = serde_json::from_str(&row.body).map_err(|_| broken("body"))?;
        Ok(Self {
            id: row.id,
            account: row.account,
            shared_key: serde_json::from_value(body["shared_key"].take())
                .map_err(|_| broken("shared key"))?,
            expires_at: row.expires_at,
            jobs: serde_json::from_value(body["jobs"].take()).map_err(|_| broken("jobs"))?,
            seed: body["seed"].as_u64().ok_or_else(|| broken("seed"))?,
            whose: Whose {
                workers: read_targets(&body),
                is_hidden: body[HIDDEN] == true,
            },
            priority: match body[LOW] == true {
                true => Priority::Low,
                false => Priority::Normal,
            },
            short: body[SHORT] == true,
            asked: Asked::read(row.kind, body)?,
            sent: None,
        })
    }

    pub fn kind(&self) -> Kind {
        self.asked.kind()
    }

    /// The stored standing in the queue, without the balance of that time.
    pub fn standing(&self) -> Standing {
        Standing {
            priority: self.priority,
            short: self.short,
            ..Standing::default()
        }
    }

    pub fn wishes(&self) -> Wishes {
        self.asked.wishes()
    }

    /// The client's webhook, called with each result.
    pub fn webhook(&self) -> Option<Arc<str>> {
        self.asked.webhook().map(Arc::from)
    }

    /// The request to accept, with the style that was applied.
    pub fn request(&self, standing: Standing, style: Option<Use>, names: &Names) -> NewRequest {
        let mut body = self.asked.stored();
        body["jobs"] = json!(self.jobs);
        body["seed"] = json!(self.seed);
        body["shared_key"] = json!(self.shared_key);
        self.whose.write(&mut body);
        if let Some(sent) = &self.sent {
            sent.write(&mut body);
        }
        if standing.priority == Priority::Low {
            body[LOW] = json!(true);
        }
        if standing.short {
            body[SHORT] = json!(true);
        }
        NewRequest {
            id: self.id,
            account: self.account,
            kind: self.kind(),
            body: body.to_string(),
            wishes: self.wishes(),
            jobs: self.jobs(names),
            webhook: self.webhook(),
            standing,
            fee: self.fee(style.as_ref()),
            dues: Dues {
                style,
                shared_key: self.shared_key,
            },
            kept: Vec::new(),
            place: None,
            memory: None,
            sources: None,
            expires_at: self.expires_at,
        }
    }

    pub fn jobs(&self, names: &Names) -> Vec<Arc<Job>> {
        let numbered = self.jobs.iter().zip(0..);
        let jobs = numbered.map(|(&id, index)| Arc::new(self.job(id, index, names)));
        jobs.collect()
    }

    /// A warning about fields that some workers ignore.
    pub fn caveat(&self) -> Option<String> {
        self.asked.caveat()
    }

    /// Source images in the media store.
    pub fn sources(&self) -> Vec<Key> {
        let keys = self.asked.sources().into_iter();
        let keys = keys.filter_map(|text| text.parse().ok());
        keys.filter(|key: &Key| key.area() == Area::Sources)
            .collect()
    }

    /// The fee, charged whatever becomes of the jobs. Interrogations have none.
    fn fee(&self, style: Option<&Use>) -> Kudos {
        let of_another = style.is_some_and(|used| used.owner != self.account);
        match &self.asked {
            Asked::Text(_) => activation_fee(0, of_another),
            Asked::Image(image) => activation_fee(image.extra_sources(), of_another),
            Asked::Forms(_) | Asked::Media(_) => Kudos(0),
        }
    }

    fn job(&self, id: JobId, index: u32, names: &Names) -> Job {
        let seed = self.seed;
        let Task {
            body,
            limits,
            trusted,
            original,
            price,
        } = self.asked.task(Nth { index, seed });
        let models = self.asked.models_of(index).iter();
        let models = models.map(|name| names.id(name));
        Job {
            id,
            request: self.id,
            account: self.account,
            shared_key: self.shared_key,
            kind: self.kind(),
            model: ModelChoice(models.collect()),
            body,
            limits: Limits {
                targets: self.whose.workers,
                requires: limits.requires.with_if(
                    self.whose.is_hidden && self.kind() == Kind::Image,
                    Capabilities::HIDDEN_ADDRESSES,
                ),
                life: Some(self.asked.lifetime()),
                ..limits
            },
            privacy: match trusted || self.whose.is_hidden {
                true => Privacy::Trusted,
                false => Privacy::Anyone,
            },
            deadline: self.expires_at,
            durable: true,
            prefixes: Vec::new(),
            original,
            price,
        }
    }
}

fn end_user(name: Option<&str>) -> Option<Arc<str>> {
    name.filter(|name| !name.is_empty()).map(Arc::from)
}

/// Key of the low priority in a stored request.
const LOW: &str = "low";
/// Key of a possible lack of kudos in a stored request.
const SHORT: &str = "short";
/// Key of the allowed workers in a stored request.
const ALLOWED: &str = "only_workers";
const DENIED: &str = "no_workers";
const HIDDEN: &str = "hidden";

impl Whose {
    fn write(self, body: &mut Value) {
        if !self.workers.is_everybody() {
            let workers: Vec<i64> = self.workers.workers().map(|worker| worker.0).collect();
            let name = match self.workers.are_denied() {
                true => DENIED,
                false => ALLOWED,
            };
            body[name] = json!(workers);
        }
        if self.is_hidden {
            body[HIDDEN] = json!(true);
        }
    }
}

fn read_targets(body: &Value) -> Targets {
    let named = |name: &str| {
        let workers = body[name].as_array()?.iter();
        Some(workers.filter_map(Value::as_i64).map(WorkerId))
    };
    match (named(ALLOWED), named(DENIED)) {
        (Some(allowed), _) => Targets::of(allowed, false),
        (None, Some(denied)) => Targets::of(denied, true),
        (None, None) => Targets::default(),
    }
}

impl Asked {
    pub fn text(request: GenerationInputText) -> Self {
        Self::Text(Box::new(TextAsked::new(request)))
    }

    /// The source images must be keys already.
    pub fn image(request: GenerationInputImage) -> Self {
        Self::Image(Box::new(ImageAsked::new(request)))
    }

    /// An interrogation of an image of this size, given by key or URL.
    pub fn forms(request: ModelInterrogationInputImage, size: (u32, u32)) -> Self {
        Self::Forms(Box::new(FormsAsked::new(request, size)))
    }

    fn read(kind: Kind, body: Value) -> Result<Self, Unreadable> {
        let refused = |refusal: Refusal| Unreadable(refusal.to_string());
        if MediaWork::is_in(&body) {
            return Ok(Self::Media(Box::new(MediaWork::read(body)?)));
        }
        match kind {
            Kind::Text => {
                let asked = TextAsked::read(body).map_err(refused)?;
                Ok(Self::Text(Box::new(asked)))
            }
            Kind::Image => {
                let asked = ImageAsked::read(body).map_err(refused)?;
                Ok(Self::Image(Box::new(asked)))
            }
            Kind::Form => {
                let asked = FormsAsked::read(body).map_err(refused)?;
                Ok(Self::Forms(Box::new(asked)))
            }
            other => Err(Unreadable(format!("unsupported kind {other:?}"))),
        }
    }

    /// The counterpart of [`Self::read`].
    fn stored(&self) -> Value {
        match self {
            Self::Text(text) => text.stored(),
            Self::Image(image) => image.stored(),
            Self::Forms(forms) => forms.stored(),
            Self::Media(work) => work.stored(),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Image(_) => Kind::Image,
            Self::Forms(_) => Kind::Form,
            Self::Media(work) => work.kind(),
        }
    }

    fn webhook(&self) -> Option<&str> {
        match self {
            Self::Text(text) => text.webhook(),
            Self::Image(image) => image.webhook(),
            Self::Forms(forms) => forms.webhook(),
            Self::Media(_) => None,
        }
    }

    pub fn outputs(&self) -> u32 {
        match self {
            Self::Text(text) => text.outputs(),
            Self::Image(image) => image.outputs(),
            Self::Forms(forms) => forms.outputs(),
            Self::Media(work) => work.count,
        }
    }

    fn models(&self) -> &[String] {
        match self {
            Self::Text(text) => text.models(),
            Self::Image(image) => image.models(),
            Self::Forms(forms) => forms.models(),
            Self::Media(work) => work.models(),
        }
    }

    /// Models of one job.
    fn models_of(&self, index: u32) -> &[String] {
        let index = index as usize;
        match self {
            Self::Forms(forms) => forms.models().get(index..=index).unwrap_or_default(),
            other => other.models(),
        }
    }

    fn lifetime(&self) -> Duration {
        match self {
            Self::Text(_) => text::LIFETIME,
            Self::Image(_) => image::LIFETIME,
            Self::Forms(_) => interrogation::LIFETIME,
            Self::Media(_) => media::LIFETIME,
        }
    }

    fn wishes(&self) -> Wishes {
        match self {
            Self::Forms(_) => Wishes::default(),
            Self::Text(text) => text.wishes(),
            Self::Image(image) => image.wishes(),
            Self::Media(work) => work.wishes(),
        }
    }

    fn caveat(&self) -> Option<String> {
        match self {
            Self::Text(text) => text.caveat(),
            Self::Image(_) | Self::Forms(_) | Self::Media(_) => None,
        }
    }

    /// Source images: keys of the media store, or addresses of other servers.
    fn sources(&self) -> Vec<&str> {
        match self {
            Self::Text(_) => Vec::new(),
            Self::Image(image) => image.sources(),
            Self::Forms(forms) => vec![forms.source()],
            Self::Media(work) => work.sources(),
        }
    }

    fn task(&self, nth: Nth) -> Task {
        match self {
            Self::Text(text) => text.task(nth),
            Self::Image(image) => image.task(nth),
            Self::Forms(forms) => forms.task(nth),
            Self::Media(work) => work.task(nth),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Asked, Order};
    use crate::accounts::{Caller, Payer};
    use crate::clock::wall_clock;
    use crate::dispatch::{Priority, Standing};
    use crate::names::Names;
    use crate::storage::RequestRow;
    use muster_protocol::job::RequestId;
    use muster_protocol::legacy::Body as _;
    use muster_protocol::legacy::interrogation::ModelInterrogationInputImage;
    use muster_protocol::legacy::text::request::GenerationInputText;
    use muster_protocol::openai::json::DEEPEST;

    /// The stored row.
    fn row(order: &Order, standing: Standing) -> RequestRow {
        let mut new = order.request(standing, None, &Names::default());
        new.take_row()
    }

    fn order(asked: Asked) -> Order {
        let payer = Payer::of(&Caller::anonymous(), None, false, wall_clock()).unwrap();
        Order::new(RequestId::random(), &payer, asked)
    }

    #[test]
    fn what_waits_behind_the_others_or_is_short_of_kudos_still_is_when_it_is_read_again() {
        let asked = GenerationInputText::read(json!({"prompt": "p"})).unwrap();
        let order = order(Asked::text(asked));
        for (priority, short) in [(Priority::Low, true), (Priority::Normal, false)] {
            let standing = Standing {
                priority,
                short,
                ..Standing::default()
            };
            let again = Order::read(&row(&order, standing)).unwrap();
            assert_eq!(again.standing(), standing);
        }
    }

    #[test]
    fn media_live_the_longest() {
        use super::{LONGEST_LIFETIME, image, interrogation, text};
        let others = [text::LIFETIME, image::LIFETIME, interrogation::LIFETIME];
        assert!(others.iter().all(|lifetime| *lifetime <= LONGEST_LIFETIME));
    }

    #[test]
    fn what_is_as_deep_as_a_body_may_be_is_read_again() {
        let levels = DEEPEST - 4;
        let deep = "[".repeat(levels) + &"]".repeat(levels);
        let forms = format!(r#"[{{"name": "caption", "payload": {{"deep": {deep}}}}}]"#);
        let body = format!(r#"{{"source_image": "", "forms": {forms}}}"#);
        let asked = ModelInterrogationInputImage::parse(body.as_bytes()).unwrap();
        let order = order(Asked::forms(asked, (1, 1)));
        let again = Order::read(&row(&order, Standing::default())).unwrap();
        assert_eq!(again.asked.stored(), order.asked.stored());
    }
}
