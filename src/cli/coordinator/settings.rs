//! From the configuration to the settings of a coordinator.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::{certificate, documents};
use crate::catalog::{Catalog, Kind};
use crate::cli::{Exit, Failure};
use crate::config::{Charging as Mode, Config, Networks, ServeConfig, StoreResponses, Usd};
use crate::coordinator::accounts::{ANONYMOUS, SecretSource};
use crate::coordinator::address::Network;
use crate::coordinator::billing::{Charging, MicroUsd, ModelRates, PriceBook};
use crate::coordinator::media::{BucketSettings, MediaSettings, PlaceSettings};
use crate::coordinator::names::Names;
use crate::coordinator::people::Development;
use crate::coordinator::responses::{ResponseSettings, StoreResponses as Stored};
use crate::coordinator::rigs::Quotas;
use crate::coordinator::state::DoorSettings;
use crate::coordinator::storage::Location;
use crate::coordinator::{ClusterSettings, Settings, TlsFiles, dispatch, kudos};
use crate::protocol::job::{KnownWords, Kudos};
use crate::protocol::openai::IgnoredFields;
use crate::reader::Reader;

/// Per account and UTC day, if users pay.
const USUAL_FREE_REQUESTS: usize = 200;
const DAY: Duration = Duration::from_secs(86_400);

/// Settings for tests of other programs: no limits, and users on demand.
pub fn for_development(config: &Config) -> Result<Settings, Failure> {
    let mut settings = of(config)?;
    settings.doors.requests_per_minute = None;
    settings.doors.charging = Charging::Off;
    settings.doors.free_requests_per_day = None;
    settings.doors.rate_limits = false;
    settings.dispatch.in_flight_limit = None;
    settings.dispatch.direct_text_limit = None;
    settings.dispatch.media_limit = None;
    settings.dispatch.keyless = None;
    settings.doors.worker_quotas = None;
    settings.doors.anonymous = true;
    settings.doors.development = Some(Development {
        admins: config.serve.dev_admins.clone(),
        fills_in_images: config.serve.dev_fill_in_images,
    });
    Ok(settings)
}

pub fn of(config: &Config) -> Result<Settings, Failure> {
    let serve = &config.serve;
    let catalog = Catalog::open(config.models.dir.as_deref())?;
    Ok(Settings {
        listen: serve.listen,
        tls: tls(config)?,
        database: location(config)?,
        secret: secret(config, &location(config)?),
        media: media(config),
        public_url: serve
            .public_url
            .as_ref()
            .map(|address| address.0.to_string()),
        doors: DoorSettings {
            name: serve.name.clone(),
            documents: documents::read(serve.documents.as_deref())?,
            rate_limits: serve.rate_limits,
            trusted_proxies: networks(&serve.trusted_proxies),
            unsafe_networks: networks(&serve.unsafe_networks).into_iter().collect(),
            blocked_clients: serve.blocked_clients.clone(),
            nsfw_models: serve.nsfw_models.iter().cloned().collect(),
            known_image_models_only: serve.known_image_models_only,
            console_url: serve.console_url.as_ref().map(ToString::to_string),
            requests_per_minute: serve
                .requests_per_minute
                .and_then(|most| u32::try_from(most).ok()),
            largest_request: usize::try_from(serve.largest_request.bytes).unwrap_or(usize::MAX),
            ignored_fields: ignored_fields(&serve.ignored_fields),
            chat_audio_model: serve.chat_audio_model.clone(),
            scrub_secrets: serve.scrub_secrets,
            names: names(&catalog, config),
            known_words: known_words(&catalog),
            sizes: prices(&catalog),
            price_book: price_book(config),
            charging: charging(serve),
            free_credits_per_day: micro_usd(serve.free_credits_per_day_usd),
            free_requests_per_day: free_requests(serve),
            chat_messages: serve.chat_messages,
            responses: ResponseSettings {
                store: match serve.store_responses {
                    StoreResponses::UnlessRefused => Stored::UnlessRefused,
                    StoreResponses::OnRequest => Stored::OnRequest,
                    StoreResponses::Never => Stored::Never,
                },
                kept: days(serve.responses_days),
                most: serve.stored_responses,
                most_bytes: usize::try_from(serve.stored_response_bytes.bytes)
                    .unwrap_or(usize::MAX),
            },
            records_kept: records_kept(config),
            source_media_bytes: serve.source_media_bytes.bytes,
            polled_texts: serve.polled_texts,
            worker_quotas: Some(Quotas::default()),
            anonymous: serve.anonymous,
            submit_keys_connect_workers: serve.submit_keys_connect_workers,
            ..DoorSettings::default()
        },
        reader: Reader::default(),
        cluster: config
            .cluster
            .address()
            .map(|address| ClusterSettings::new(address, &shared_settings(config))),
        dispatch: dispatch::Settings {
            queue_limit: serve.queue,
            keyless: Some(ANONYMOUS),
            in_flight_limit: serve.jobs_in_flight,
            direct_text_limit: Some(serve.texts_in_flight).filter(|most| *most > 0),
            media_limit: Some(serve.media_in_flight).filter(|most| *most > 0),
            ..dispatch::Settings::default()
        },
        prices: prices(&catalog),
        trust_after: match serve.trust_after {
            0 => None,
            kudos => Some(Kudos(
                i64::try_from(kudos).unwrap_or(i64::MAX / 1000) * 1000,
            )),
        },
        connections_per_address: Some(serve.connections_per_address).filter(|most| *most > 0),
        retention: records_kept(config),
    })
}

/// Text of the settings that all coordinators of a cluster should share; `Debug` hides secrets in it.
fn shared_settings(config: &Config) -> String {
    let serve = ServeConfig {
        // Specific to one machine.
        listen: SocketAddr::from(([0; 4], 0)),
        ..config.serve.clone()
    };
    format!(
        "{serve:?} {:?} {:?} {:?}",
        config.media, config.prices, config.aliases
    )
}

fn days(days: usize) -> Duration {
    DAY * u32::try_from(days).unwrap_or(u32::MAX)
}

/// The records tell whose a media object is, so they stay as long as it does.
fn records_kept(config: &Config) -> Duration {
    days(config.serve.retention_days).max(config.media.keep + DAY)
}

/// The operator's certificate, or one of our own.
fn tls(config: &Config) -> Result<Option<TlsFiles>, Failure> {
    if config.serve.self_signed {
        return certificate::of_this_machine(config).map(Some);
    }
    Ok(config.serve.tls().map(|(certificate, key)| TlsFiles {
        certificate: certificate.clone(),
        key: key.clone(),
    }))
}

fn ignored_fields(names: &[String]) -> IgnoredFields {
    match names {
        [] => IgnoredFields::None,
        names if names.iter().any(|name| name == "all") => IgnoredFields::All,
        names => IgnoredFields::Named(names.iter().cloned().collect()),
    }
}

fn networks(networks: &Networks) -> Vec<Network> {
    let networks = networks.0.iter();
    let checked = networks.filter_map(|(address, bits)| Network::new(*address, *bits));
    checked.collect()
}

/// Known models with all of their names.
fn names(catalog: &Catalog, config: &Config) -> Names {
    let entries = catalog.entries().iter();
    let names = entries.map(|entry| (entry.id.as_str(), entry.all_names()));
    let aliases = config.aliases.iter();
    let aliases = aliases.map(|alias| (alias.name.as_str(), alias.model.as_str()));
    Names::of(names).with_aliases(aliases)
}

/// Words of small models.
fn known_words(catalog: &Catalog) -> HashMap<String, KnownWords> {
    let entries = catalog.entries().iter();
    let small = entries.filter(|entry| !entry.known_words.is_empty());
    small
        .map(|entry| (entry.id.clone(), entry.known_words.clone()))
        .collect()
}

/// The price of a text depends on its model's size; that of an image on the image.
fn prices(catalog: &Catalog) -> kudos::Prices {
    let entries = catalog.entries().iter();
    let texts = entries.filter(|entry| entry.kind() == Kind::Text);
    texts.fold(kudos::Prices::default(), |prices, entry| {
        let billions = entry.parameters() as f64 / 1e9;
        let names = entry.all_names();
        names.fold(prices, |prices, name| prices.with(name, billions))
    })
}

/// Prices of models in money.
fn price_book(config: &Config) -> PriceBook {
    let rate = |usd: Option<Usd>| usd.map(micro_usd);
    let book = PriceBook::new(config.serve.price_version.clone());
    config.prices.iter().fold(book, |book, price| {
        let rates = ModelRates {
            input_per_mtok: rate(price.input_per_mtok_usd),
            output_per_mtok: rate(price.output_per_mtok_usd),
            ..ModelRates::default()
        };
        let rates = Kind::each().fold(rates, |rates, kind| {
            let name = kind.facts().rate.map_or("", |rate| rate.name);
            rates.with(kind, rate(price.rate(name)))
        });
        let aliases = price.aliases.iter().map(String::as_str);
        book.with(&price.model, aliases, rates)
    })
}

fn charging(serve: &ServeConfig) -> Charging {
    match serve.charging {
        Mode::Off => Charging::Off,
        Mode::Allowlist => Charging::allowlist(serve.charged_accounts.iter().map(String::as_str)),
        Mode::On => Charging::On,
    }
}

/// If users pay, there is a limit unless the operator removes it.
fn free_requests(serve: &ServeConfig) -> Option<u32> {
    let usual = match serve.charging {
        Mode::Off => 0,
        Mode::Allowlist | Mode::On => USUAL_FREE_REQUESTS,
    };
    let requests = serve.free_requests_per_day.unwrap_or(usual);
    let requests = u32::try_from(requests).unwrap_or(u32::MAX);
    (requests > 0).then_some(requests)
}

fn micro_usd(usd: Usd) -> MicroUsd {
    MicroUsd(i64::try_from(usd.micro).unwrap_or(i64::MAX))
}

/// The prefix of media links, as far as configured.
pub fn base(config: &Config) -> String {
    let serve = &config.serve;
    let scheme = match serve.tls().is_some() || serve.self_signed {
        true => "https",
        false => "http",
    };
    let public = serve.public_url.as_ref().map(|url| url.0.to_string());
    public.unwrap_or_else(|| format!("{scheme}://{}", serve.listen))
}

/// Location of results and source images.
pub fn media(config: &Config) -> MediaSettings {
    let media = &config.media;
    let folder = || {
        let own = config.worker.data_dir.join("media");
        PlaceSettings::Folder(media.folder.clone().unwrap_or(own))
    };
    MediaSettings {
        place: media.bucket().map_or_else(folder, |bucket| {
            PlaceSettings::Bucket(BucketSettings {
                name: bucket.to_owned(),
                region: media.region.clone(),
                endpoint: media
                    .endpoint
                    .as_ref()
                    .map(|address| address.0.as_str().trim_end_matches('/').to_owned()),
                key: media.key(),
            })
        }),
        keep: media.keep,
        largest: media.largest_upload.bytes,
        spare: media.keep_free.bytes,
    }
}

/// Location of the server secret.
pub fn secret(config: &Config, database: &Location) -> SecretSource {
    match &config.serve.secret {
        Some(given) => SecretSource::Given(given.expose().to_owned()),
        None => SecretSource::usual(database, &config.worker.data_dir),
    }
}

/// Location of accounts and the ledger.
pub fn location(config: &Config) -> Result<Location, Failure> {
    match &config.serve.database {
        None => Ok(Location::in_folder(&config.worker.data_dir)),
        Some(named) => Location::parse(named.expose()).map_err(|error| {
            Failure::new(Exit::BadConfiguration, format!("serve.database: {error}"))
        }),
    }
}
