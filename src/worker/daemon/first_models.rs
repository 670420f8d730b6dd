//! The models of the configuration at the start of the worker.

use tracing::{error, info};

use super::devices::WantedModel;
use super::downloads::can_be_fetched;
use super::locate::{LocateError, Located};
use super::state::WorkerState;
use super::{DaemonError, DeviceModel, Devices, here_already};
use crate::catalog::Catalog;
use crate::hub::Hub;
use muster_config::Config;

/// The models of the configuration at the start.
#[derive(Default)]
pub struct FirstModels {
    /// By configured name.
    pub loaded: Vec<(String, DeviceModel)>,
    /// Names of models to download while the worker serves others.
    pub missing: Vec<String>,
}

/// Loads the models that are on disk. A model that is neither on disk nor to be fetched ends the start; offline, only
/// where no other model is on disk.
pub async fn first_models(
    devices: &Devices,
    config: &Config,
    (catalog, hub): (&Catalog, &Hub),
    state: &WorkerState,
) -> Result<FirstModels, DaemonError> {
    let mut models = FirstModels::default();
    let serve = &config.models.serve.0;
    // Models that are downloaded are not known yet.
    let here_now = serve
        .iter()
        .map(|wanted| here_already(wanted, config, catalog, hub));
    let here_now = here_now.map(|here| match here {
        Ok(located) => (Some(located), None),
        Err(failure) => (None, Some(failure)),
    });
    let (here_now, failures): (Vec<Option<Located>>, Vec<Option<LocateError>>) = here_now.unzip();
    for (at, (wanted, failure)) in serve.iter().zip(failures).enumerate() {
        match failure {
            None => {}
            Some(failure) if can_be_fetched(wanted, &failure, config, catalog) => {
                models.missing.push(wanted.clone());
            }
            Some(failure @ LocateError::NotHere { .. })
                if here_now.iter().flatten().count() > 0 =>
            {
                error!("not serving {wanted}: {failure}");
                state.is_refused(wanted, failure);
            }
            Some(failure) => return Err(failure.into()),
        }
        let Some(located) = here_now[at].clone() else {
            continue;
        };
        state.is_starting(format!("loading {}", located.name));
        info!("loading {}, no jobs until it is loaded", located.name);
        let following = serve.iter().zip(&here_now).skip(at + 1);
        let following = following.filter_map(|(name, here)| Some((name.as_str(), here.as_ref()?)));
        let following: Vec<WantedModel<'_>> = following.collect();
        let model = devices.load_before(wanted, located, &following).await?;
        match &model {
            DeviceModel::Text(info) => info!(
                model.name = %info.name,
                "loaded {}: KV cache for {} tokens, up to {} per job",
                info.name, info.cache_tokens, info.context
            ),
            DeviceModel::Media(model) => {
                info!(model.name = %model.name, "loaded {} for {}", model.name, model.kind.ability());
            }
        }
        models.loaded.push((wanted.clone(), model));
    }
    Ok(models)
}
