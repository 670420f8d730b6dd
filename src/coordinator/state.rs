//! The state of request handlers. Each handler extracts the parts that it uses.

use std::collections::{HashMap, HashSet};
use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use super::accounts::{Accounts, Caller};
use super::address::{Network, Networks};
use super::billing::{Charging, MicroUsd, PriceBook};
use super::condition::Condition;
use super::documents::Documents;
use super::erasure::Erasures;
use super::kudos::Prices;
use super::local_models::LocalModelsSlot;
use super::media::Media;
use super::messages::Messages;
use super::moderation::Moderation;
use super::modes::Modes;
use super::names::Names;
use super::passkeys::Passkeys;
use super::people::{Development, People};
use super::pictures::{Results, Sources};
use super::pollers::Pollers;
use super::requests::Requests;
use super::responses::{ResponseSettings, Responses};
use super::rigs::{Quotas, RigSettings, Rigs};
use super::stats::Stats;
use super::storage::Store;
use super::switchboard::Switchboard;
use super::workers::Workers;
use muster_process::tasks::Tasks;
use muster_protocol::job::KnownWords;
use muster_protocol::openai::IgnoredFields;

#[derive(Debug, Clone)]
pub struct Doors {
    pub accounts: Accounts,
    pub people: People,
    pub switchboard: Switchboard,
    pub workers: Workers,
    pub pollers: Pollers,
    pub requests: Requests,
    pub responses: Responses,
    pub erasures: Erasures,
    pub media: Media,
    pub moderation: Moderation,
    pub modes: Modes,
    pub passkeys: Passkeys,
    pub stats: Stats,
    pub rigs: Rigs,
    pub messages: Messages,
    pub results: Results,
    pub sources: Sources,
    pub store: Store,
    pub tasks: Tasks,
    pub settings: LiveSettings,
    pub condition: Condition,
    pub local_models: LocalModelsSlot,
}

/// The settings in force, some of which the operator may change at run time. Clones share them; a request keeps those
/// that it began with.
#[derive(Debug, Clone)]
pub struct LiveSettings(Arc<RwLock<Arc<DoorSettings>>>);

impl LiveSettings {
    pub fn current(&self) -> Arc<DoorSettings> {
        self.0.read().clone()
    }

    /// Applies settings that can change at run time, and keeps the others.
    pub fn change(&self, new: DoorSettings) {
        let mut settings = self.0.write();
        *settings = Arc::new(DoorSettings {
            documents: new.documents,
            rate_limits: new.rate_limits,
            requests_per_minute: new.requests_per_minute,
            known_image_models_only: new.known_image_models_only,
            chat_audio_model: new.chat_audio_model,
            scrub_secrets: new.scrub_secrets,
            chat_messages: new.chat_messages,
            polled_texts: new.polled_texts,
            price_book: new.price_book,
            responses: new.responses,
            ..DoorSettings::clone(&settings)
        });
    }
}

impl From<DoorSettings> for LiveSettings {
    fn from(settings: DoorSettings) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(settings))))
    }
}

/// Settings of the request handlers.
#[derive(Debug, Clone)]
pub struct DoorSettings {
    /// Display name of the service.
    pub name: String,
    /// Terms, privacy policy, sponsors, news.
    pub documents: Documents,
    /// Whether the AI Horde API enforces its rate limits.
    pub rate_limits: bool,
    /// Proxies whose claims about the client's address are trusted.
    pub trusted_proxies: Vec<Network>,
    /// Networks of VPNs and proxies.
    pub unsafe_networks: Networks,
    /// User agents of client programs that the AI Horde API refuses.
    pub blocked_clients: Vec<String>,
    /// Models for adults only, by any of their names.
    pub nsfw_models: HashSet<String>,
    /// Whether image workers may serve only models of the public reference, unless their owners are customizers.
    pub known_image_models_only: bool,
    /// URL for getting a key.
    pub console_url: Option<String>,
    /// Limit of a request, in bytes.
    pub largest_request: usize,
    /// Limit of generation requests per key and minute.
    pub requests_per_minute: Option<u32>,
    /// Existing models, online or not, and their names.
    pub names: Names,
    /// Words of small models by id: others are named to their clients.
    pub known_words: HashMap<String, KnownWords>,
    /// Sizes of models by id, which `auto` compares.
    pub sizes: Prices,
    /// Prices of models in money.
    pub price_book: PriceBook,
    /// Selects the accounts that pay for requests.
    pub charging: Charging,
    /// Free credits per account and UTC day.
    pub free_credits_per_day: MicroUsd,
    /// Limit of requests per UTC day of an account without paid credits.
    pub free_requests_per_day: Option<u32>,
    /// Fields of chat requests that are ignored instead of refused.
    pub ignored_fields: IgnoredFields,
    /// Transcribes audio parts of chats; `None` refuses them.
    pub chat_audio_model: Option<String>,
    /// Whether credentials are removed from prompts for public workers.
    pub scrub_secrets: bool,
    /// Limit of messages per chat request.
    pub chat_messages: usize,
    /// Limit of an account's open texts of polled requests.
    pub polled_texts: usize,
    /// Limits of workers per owner; `None` is unlimited.
    pub worker_quotas: Option<Quotas>,
    /// Whether the AI Horde API accepts the anonymous key.
    pub anonymous: bool,
    /// Keys for requests may connect workers, too.
    pub submit_keys_connect_workers: bool,
    /// Development mode, for tests of other programs on this machine: no rate limits, and users created on demand.
    pub development: Option<Development>,
    pub responses: ResponseSettings,
    /// Limit of an account's source files for open requests, in bytes.
    pub source_media_bytes: u64,
    /// Lifetime of the records of ended jobs, for the privacy policy.
    pub records_kept: Duration,
    /// Silence before a stream sends a heartbeat.
    pub heartbeat: Duration,
    /// How long a stream waits for its first event before it replies 200, so that earlier failures have their own
    /// status.
    pub commit_after: Duration,
    /// Maximum time of a request.
    pub lifetime: Duration,
    /// Timeout for the next piece of a body.
    pub body_patience: Duration,
    /// Buffered bodies and replies that stall for this long are dropped when others need the memory.
    pub standstill: Duration,
    /// Keys the hashes of prompts that placement compares, so that clients cannot construct collisions.
    pub prefixes: RandomState,
}

impl DoorSettings {
    /// Concurrency of accounts without a limit of their own.
    pub fn usual_concurrency(&self) -> i64 {
        i64::try_from(self.polled_texts).unwrap_or(i64::MAX)
    }

    /// Limit of a caller's waiting jobs of polled requests.
    pub fn concurrency(&self, caller: &Caller) -> usize {
        match self.development {
            Some(_) => usize::MAX,
            None => caller.concurrency.unwrap_or(self.polled_texts),
        }
    }
}

impl From<&DoorSettings> for RigSettings {
    fn from(settings: &DoorSettings) -> Self {
        Self {
            quotas: settings.worker_quotas,
            names: settings.names.clone(),
            sizes: settings.sizes.clone(),
        }
    }
}

impl Default for DoorSettings {
    fn default() -> Self {
        Self {
            name: "Muster".to_owned(),
            documents: Documents::default(),
            rate_limits: false,
            trusted_proxies: Vec::new(),
            unsafe_networks: Networks::default(),
            blocked_clients: Vec::new(),
            nsfw_models: HashSet::new(),
            known_image_models_only: false,
            console_url: None,
            largest_request: 64 << 20,
            requests_per_minute: None,
            names: Names::default(),
            known_words: HashMap::new(),
            sizes: Prices::default(),
            price_book: PriceBook::default(),
            charging: Charging::Off,
            free_credits_per_day: MicroUsd(0),
            free_requests_per_day: None,
            ignored_fields: IgnoredFields::None,
            chat_audio_model: None,
            scrub_secrets: true,
            chat_messages: 500,
            polled_texts: 30,
            worker_quotas: None,
            anonymous: false,
            submit_keys_connect_workers: false,
            development: None,
            responses: ResponseSettings::default(),
            source_media_bytes: 256 << 20,
            records_kept: Duration::from_secs(90 * 24 * 3600),
            heartbeat: Duration::from_secs(15),
            commit_after: Duration::from_secs(2),
            lifetime: Duration::from_secs(1800),
            body_patience: Duration::from_secs(30),
            standstill: Duration::from_secs(5),
            prefixes: RandomState::new(),
        }
    }
}
