//! The configuration, reloaded at SIGHUP: settings that can change at run time are applied, and the log names those
//! that need a restart.

use tracing::{error, info, warn};

use super::{Failure, Root};
use crate::config::{Config, Flag, Loaded, Secret};

/// A loaded configuration that can be reloaded.
pub struct Reload {
    root: Root,
    flags: Vec<Flag>,
    live: &'static [&'static str],
    /// The configuration at the start.
    started: Loaded,
    /// The configuration as last read.
    current: Loaded,
}

/// Settings that a worker applies while it runs.
pub const OF_WORKERS: &[&str] = &["models.serve", "worker.log_level", "worker.drain"];
/// The same, also of the worker of `worker up`.
const OF_OWNERS: &[&str] = &[
    "owner.energy_price",
    "owner.hours",
    "owner.idle_for",
    "owner.kudos_worth",
    "owner.most_heat",
    "owner.most_watts",
    "owner.others_gpu_memory",
    "owner.others_load",
    "owner.pause_for",
    "owner.resume_after",
];
/// Whether a worker takes a change of this setting of `[owner]` over while it runs.
pub fn is_live_of_owners(name: &str) -> bool {
    OF_OWNERS.contains(&name)
}

/// In the name of each setting of a model that another program serves.
const UPSTREAM: &str = ".upstream.";
/// Settings that a coordinator can change at run time, by `Coordinator::reload`.
#[cfg(feature = "coordinator")]
pub const OF_COORDINATORS: &[&str] = &[
    "worker.log_level",
    "worker.drain",
    "serve.chat_audio_model",
    "serve.chat_messages",
    "serve.connections_per_address",
    "serve.documents",
    "serve.jobs_in_flight",
    "serve.known_image_models_only",
    "serve.media_in_flight",
    "serve.polled_texts",
    "serve.queue",
    "serve.rate_limits",
    "serve.requests_per_minute",
    "serve.store_responses",
    "serve.responses_days",
    "serve.scrub_secrets",
    "serve.store_responses",
    "serve.stored_response_bytes",
    "serve.stored_responses",
    "serve.texts_in_flight",
    "serve.tls_certificate",
    "serve.tls_key",
];
const TLS: [&str; 2] = ["serve.tls_certificate", "serve.tls_key"];

impl Reload {
    pub fn new(
        root: &Root,
        flags: Vec<Flag>,
        loaded: Loaded,
        live: &'static [&'static str],
    ) -> Self {
        Self {
            root: root.clone(),
            flags,
            live,
            started: loaded.clone(),
            current: loaded,
        }
    }

    /// The configuration as last read.
    #[cfg(feature = "coordinator")]
    pub fn config(&self) -> &Config {
        &self.current.config
    }

    /// The value made from the new configuration. `None` if that is invalid: the old one stays in use.
    pub fn again<T>(&mut self, make: impl FnOnce(&Config) -> Result<T, Failure>) -> Option<T> {
        let (made, loaded) = self.read(make)?;
        self.take_over(loaded);
        Some(made)
    }

    /// Applies the new configuration, then logs that it is in use.
    #[cfg(feature = "coordinator")]
    pub async fn apply<T>(
        &mut self,
        make: impl FnOnce(&Config) -> Result<T, Failure>,
        apply: impl AsyncFnOnce(T),
    ) {
        if let Some((made, loaded)) = self.read(make) {
            apply(made).await;
            self.take_over(loaded);
        }
    }

    fn read<T>(&self, make: impl FnOnce(&Config) -> Result<T, Failure>) -> Option<(T, Loaded)> {
        let read = self.root.load_with(self.flags.clone());
        let made = read.and_then(|loaded| Ok((make(&loaded.config)?, loaded)));
        made.map_err(|failure| {
            error!("reloading the configuration failed, keeping the old one: {failure}");
        })
        .ok()
    }

    fn take_over(&mut self, loaded: Loaded) {
        self.root.raise_log(&loaded.config);
        for remark in loaded.remarks() {
            warn!("{remark}");
        }
        let changed = changes(&self.current, &loaded);
        let (live, _) = self.split(changed, &loaded);
        // Includes settings that wait for a restart since an earlier reload.
        let (_, waiting) = self.split(changes(&self.started, &loaded), &loaded);
        match live.is_empty() {
            true => info!(
                "configuration reloaded: no setting changed, certificates and documents re-read"
            ),
            false => info!("configuration reloaded: {} changed", live.join(", ")),
        }
        if !waiting.is_empty() {
            warn!(
                "restart to apply these changed settings: {}",
                waiting.join(", ")
            );
        }
        self.current = loaded;
    }

    /// Settings that can change now, and those that need a restart.
    fn split(&self, names: Vec<String>, loaded: &Loaded) -> (Vec<String>, Vec<String>) {
        let has_tls = |loaded: &Loaded| loaded.config.serve.tls().is_some();
        let stays_encrypted = has_tls(&self.started) && has_tls(loaded);
        names.into_iter().partition(|name| {
            let name = name.as_str();
            let lists = [self.live, OF_OWNERS];
            let is_live = lists.iter().any(|list| list.contains(&name)) || name.contains(UPSTREAM);
            is_live && (stays_encrypted || !TLS.contains(&name))
        })
    }
}

/// The settings that are not the same in both, by their names.
fn changes(old: &Loaded, new: &Loaded) -> Vec<String> {
    let values = |loaded: &Loaded| -> Vec<(String, String)> {
        let found = loaded.found.iter();
        let shown = found.map(|found| (found.name.clone(), found.value.clone()));
        let secrets = secrets(&loaded.config).into_iter();
        let secrets =
            secrets.map(|(name, secret)| (name, secret.map_or("", Secret::expose).to_owned()));
        shown.chain(secrets).collect()
    };
    let (old, new) = (values(old), values(new));
    let differs = |these: &[(String, String)], those: &[(String, String)]| -> Vec<String> {
        let these = these.iter().filter(|value| !those.contains(value));
        these.map(|(name, _)| name.clone()).collect()
    };
    let mut names = differs(&old, &new);
    names.extend(differs(&new, &old));
    names.sort();
    names.dedup();
    names
}

/// Settings whose values are hidden where settings are shown.
fn secrets(config: &Config) -> Vec<(String, Option<&Secret>)> {
    let named = [
        ("serve.database", config.serve.database.as_ref()),
        ("serve.secret", config.serve.secret.as_ref()),
        (
            "serve.media.access_key_id",
            config.media.access_key_id.as_ref(),
        ),
        (
            "serve.media.secret_access_key",
            config.media.secret_access_key.as_ref(),
        ),
        ("hub.token", config.hub.token.as_ref()),
    ];
    let named = named
        .into_iter()
        .map(|(name, secret)| (name.to_owned(), secret));
    let keys = config.coordinators.iter().zip(1..);
    let keys = keys.map(|(one, number)| (format!("coordinator[{number}].key"), Some(&one.key)));
    let upstreams = config.upstreams.iter().map(|one| {
        let name = format!("models.{}.upstream.key", one.name);
        (name, one.settings.key.as_ref())
    });
    named.chain(keys).chain(upstreams).collect()
}
