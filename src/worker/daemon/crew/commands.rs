//! The owner's commands, carried out.

use std::time::{Duration, SystemTime};

use tokio::time::timeout;
use tracing::{error, info};

use super::{Crew, RETURN_TIME, add_adapters};
use crate::catalog::Catalog;
use crate::daemon::control::{
    CommandCause, CommandFailure, CommandOutcome, CommandReply, OwnerCommand,
};
use crate::daemon::owner::PauseOrder;
use crate::daemon::residency::{LoadOutcome, UnloadOutcome};
use crate::daemon::{DaemonError, DeviceModel, here_already};
use crate::hub::Hub;
use muster_config::{Config, nearest};

impl Crew {
    /// Carries out a command of the owner.
    pub async fn carry_out(
        mut self,
        command: OwnerCommand,
        context: (&Config, &Catalog, &Hub),
        grace: Duration,
    ) -> (Self, CommandReply) {
        match command {
            OwnerCommand::Load(wanted) => self.load(&wanted, context, grace).await,
            OwnerCommand::Unload(wanted) => {
                let reply = self.unload(&wanted).await;
                if let Ok(outcome) = &reply
                    && !self.choices.unloaded.contains(&outcome.model)
                {
                    self.choices.unloaded.push(outcome.model.clone());
                }
                (self, reply)
            }
            OwnerCommand::Withdraw(wanted) => self.withdraw(&wanted, context, grace).await,
            OwnerCommand::Pause {
                duration,
                after_jobs,
            } => {
                let until = duration.and_then(|time| SystemTime::now().checked_add(time));
                self.pause(PauseOrder { until, after_jobs }).await;
                let reply = Ok(self.standing());
                (self, reply)
            }
            OwnerCommand::Resume => {
                self.resume().await;
                let reply = Ok(self.standing());
                (self, reply)
            }
        }
    }

    /// Serves a model no more that the owner has loaded.
    async fn withdraw(
        mut self,
        wanted: &str,
        (config, catalog, hub): (&Config, &Catalog, &Hub),
        grace: Duration,
    ) -> (Self, CommandReply) {
        let Some(name) = self.name_of(wanted) else {
            let failure = self.not_served(wanted);
            return (self, Err(failure));
        };
        let mut models = self.models.iter();
        let is_adapter = |model: &DeviceModel| model.parent().is_some();
        if models.any(|(_, model)| model.name() == name && is_adapter(model)) {
            let text = format!(
                "this worker serves {name} as long as its files are in the folder of engine.adapters"
            );
            let failure = CommandFailure::new(CommandCause::Configured, text);
            return (self, Err(failure));
        }
        let mut models = self.models.iter();
        let is_configured = models
            .any(|(known, model)| model.name() == name && config.models.serve.0.contains(known));
        if is_configured {
            let text = format!("this worker serves {name} as long as models.serve names it");
            let failure = CommandFailure::new(CommandCause::Configured, text);
            return (self, Err(failure));
        }
        let models = &self.models;
        let is_it = |wanted: &String| {
            let mut known = models.iter();
            known.any(|(known, model)| known == wanted && model.name() == name)
        };
        self.choices.loaded.retain(|wanted| !is_it(wanted));
        self.choices.unloaded.retain(|unloaded| *unloaded != name);
        self.keep_files(config, hub);
        let changed = self.change(Vec::new(), (config, catalog), grace).await;
        let text = format!("{name} is served no more");
        (changed, Ok(outcome(name, "withdrawn", text)))
    }

    /// Loads a model that is served, or serves another one until the worker ends.
    async fn load(
        mut self,
        wanted: &str,
        (config, catalog, hub): (&Config, &Catalog, &Hub),
        grace: Duration,
    ) -> (Self, CommandReply) {
        // A new adapter may have been added to the folder since the last check.
        if self.name_of(wanted).is_none() && wanted.contains(':') {
            let mut models = Vec::new();
            let mut refused = add_adapters(&self.devices, &mut models).await.into_iter();
            if let Some((_, failure)) = refused.find(|(name, _)| name == wanted) {
                return (self, Err(failure.into()));
            }
            if !models.is_empty() {
                self = self.add(models, (config, catalog), grace).await;
            }
        }
        let located = match self.name_of(wanted) {
            Some(name) => Err(name),
            None => match here_already(wanted, config, catalog, hub) {
                Ok(located) => match self.name_of(&located.name) {
                    Some(name) => Err(name),
                    None => Ok(located),
                },
                Err(failure) => return (self, Err(DaemonError::from(failure).into())),
            },
        };
        let located = match located {
            Ok(located) => located,
            Err(name) => {
                let reply = self.load_served(&name).await;
                if reply.is_ok() {
                    self.choices.unloaded.retain(|unloaded| *unloaded != name);
                }
                return (self, reply);
            }
        };
        info!("loading {} as the owner says", located.name);
        // The served models continue meanwhile.
        let (model, unloaded) = match self.devices.load_new(wanted, located).await {
            Ok(loaded) => loaded,
            Err(failure) => {
                error!("{failure}");
                return (self, Err(failure.into()));
            }
        };
        let name = model.name().to_owned();
        let mut models = vec![(wanted.to_owned(), model)];
        add_adapters(&self.devices, &mut models).await;
        let mut changed = self.add(models, (config, catalog), grace).await;
        if !changed.choices.loaded.iter().any(|name| name == wanted) {
            changed.choices.loaded.push(wanted.to_owned());
        }
        // The model is loaded even if no coordinator is reachable.
        let _ = timeout(RETURN_TIME, changed.worker.until_up_to_date()).await;
        let mut text = format!("loaded {name}; served until this worker ends");
        if !unloaded.is_empty() {
            text.push_str(&format!("; unloaded to make room: {}", unloaded.join(", ")));
        }
        info!("{text}");
        (changed, Ok(outcome(name, "loaded", text)))
    }

    async fn load_served(&self, name: &str) -> CommandReply {
        let text = match self.devices.load(name).await? {
            LoadOutcome::Loaded => format!("loaded {name}"),
            LoadOutcome::AlreadyLoaded => format!("{name} is already in memory"),
            LoadOutcome::NotOffered => return Err(self.not_served(name)),
        };
        Ok(outcome(name.to_owned(), "loaded", text))
    }

    async fn unload(&self, wanted: &str) -> CommandReply {
        let Some(name) = self.name_of(wanted) else {
            return Err(self.not_served(wanted));
        };
        let (state, text) = match self.devices.unload(&name).await {
            UnloadOutcome::NotOffered => return Err(self.not_served(wanted)),
            UnloadOutcome::NotLoaded => ("unloaded", format!("{name} is not in memory")),
            UnloadOutcome::Unloaded => (
                "unloaded",
                format!("unloaded {name}; its next job loads it again"),
            ),
            UnloadOutcome::AfterJobs(jobs) => (
                "unloading",
                format!("{name} leaves memory when its running jobs end ({jobs} now)"),
            ),
        };
        Ok(outcome(name, state, text))
    }

    /// The name of a served model, by it or by its name in the configuration.
    fn name_of(&self, wanted: &str) -> Option<String> {
        let mut models = self.models.iter();
        let is_it =
            |(name, model): &&(String, DeviceModel)| name == wanted || model.name() == wanted;
        let found = models.find(is_it);
        found.map(|(_, model)| model.name().to_owned())
    }

    fn not_served(&self, wanted: &str) -> CommandFailure {
        let names: Vec<&str> = self.models.iter().map(|(_, model)| model.name()).collect();
        let text = match (nearest(wanted, names.iter().copied()), names.as_slice()) {
            (Some(near), _) => {
                format!("this worker serves no model {wanted}; did you mean {near}?")
            }
            (None, []) => format!("this worker serves no model {wanted}, and no other"),
            (None, names) => format!(
                "this worker serves no model {wanted}; it serves {}",
                names.join(", ")
            ),
        };
        CommandFailure::new(CommandCause::Unknown, text)
    }
}

pub(super) fn outcome(model: String, state: &str, text: String) -> CommandOutcome {
    CommandOutcome {
        model,
        state: state.to_owned(),
        text,
    }
}
