//! From the configuration to what a coordinator is started with.

use crate::catalog::Catalog;
use crate::cli::{Exit, Failure};
use crate::config::Config;
use crate::coordinator::state::DoorSettings;
use crate::coordinator::storage::Location;
use crate::coordinator::{Settings, TlsFiles, dispatch, kudos};

pub fn of(config: &Config) -> Result<Settings, Failure> {
    let serve = &config.serve;
    Ok(Settings {
        listen: serve.listen,
        tls: serve.tls().map(|(certificate, key)| TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        }),
        database: location(config)?,
        doors: DoorSettings {
            name: serve.name.clone(),
            console_url: serve.console_url.as_ref().map(ToString::to_string),
            requests_per_minute: serve
                .requests_per_minute
                .and_then(|most| u32::try_from(most).ok()),
            largest_request: usize::try_from(serve.largest_request.bytes).unwrap_or(usize::MAX),
            ..DoorSettings::default()
        },
        dispatch: dispatch::Settings {
            queue_limit: serve.queue,
            in_flight_limit: serve.jobs_in_flight,
            ..dispatch::Settings::default()
        },
        prices: prices(&Catalog::open(config.models.dir.as_deref())?),
    })
}

/// The sizes of the models we know, under every name they are asked for by.
fn prices(catalog: &Catalog) -> kudos::Prices {
    let mut prices = kudos::Prices::default();
    for entry in catalog.entries() {
        let billions = entry.shape.parameters as f64 / 1e9;
        let names = [&entry.names.v1, &entry.names.legacy];
        let names = names.into_iter().flatten().chain([&entry.id]);
        prices = names.fold(prices, |prices, name| prices.with(name, billions));
    }
    prices
}

/// Where accounts and the ledger are.
pub fn location(config: &Config) -> Result<Location, Failure> {
    match &config.serve.database {
        None => Ok(Location::in_folder(&config.worker.data_dir)),
        Some(named) => Location::parse(named.expose()).map_err(|error| {
            Failure::new(Exit::BadConfiguration, format!("serve.database: {error}"))
        }),
    }
}
