//! A coordinator's database, opened by a command beside it or in its place.

use std::time::Duration;

use super::settings;
use crate::cli::load::block_on;
use crate::cli::{Exit, Failure, Root};
use crate::config::{Config, Flag};
use crate::coordinator::accounts::Accounts;
use crate::coordinator::media::{Links, Media};
use crate::coordinator::storage::{Location, Store};
use crate::tasks::Tasks;

/// What commands about accounts and keys have in common.
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    /// Database of the coordinator, as in serve.database: a path or postgres://HOST/NAME.
    #[arg(long, global = true, value_name = "DATABASE")]
    database: Option<String>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

/// Whether a missing database is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Refused,
    Made,
}

/// Stores for commands of the coordinator's operator.
pub struct CoordinatorStores<'a> {
    pub store: &'a Store,
    pub accounts: &'a Accounts,
    pub location: &'a Location,
    config: &'a Config,
    tasks: &'a Tasks,
}

impl CoordinatorStores<'_> {
    /// The media store of the coordinator, with links that it will honour.
    pub async fn media(&self) -> Result<Media, Failure> {
        let links = Links {
            secret: self.accounts.derived_secret("links to media"),
            base: settings::base(self.config),
        };
        let media = Media::open(&settings::media(self.config), &links, self.tasks).await;
        media.map_err(|error| Failure::new(Exit::Failed, error.to_string()))
    }
}

impl StoreArgs {
    /// Does the work on the store that the configuration or the flag names.
    pub fn with<T>(
        &self,
        root: &Root,
        missing: Missing,
        work: impl AsyncFnOnce(&Store, &Accounts) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_opened(root, missing, async |opened| {
            work(opened.store, opened.accounts).await
        })
    }

    pub fn with_opened<T>(
        &self,
        root: &Root,
        missing: Missing,
        work: impl AsyncFnOnce(&CoordinatorStores<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        root.start_log()?;
        let config = self.config(root)?;
        let location = settings::location(&config)?;
        // The flag, else the configuration, else the file in the data folder.
        let secret = settings::secret(&config, &location);
        if missing == Missing::Refused && !location.exists() {
            let message =
                format!("no coordinator has run here: the database {location} does not exist");
            return Err(not_made(message));
        }
        block_on(async move {
            if missing == Missing::Refused && !Store::is_made(&location).await? {
                let message =
                    format!("no coordinator has run here: the database {location} has no tables");
                return Err(not_made(message));
            }
            let tasks = Tasks::default();
            let opened = Store::open(&location, &tasks).await;
            let store = opened.map_err(|error| {
                Failure::from(error).hint(format!(
                    "the database is {location}; choose another with --database"
                ))
            })?;
            let accounts = Accounts::open(store.clone(), &secret, &tasks).await?;
            let done = work(&CoordinatorStores {
                store: &store,
                accounts: &accounts,
                location: &location,
                config: &config,
                tasks: &tasks,
            })
            .await;
            drop((store, accounts));
            tasks.stop(Duration::from_secs(5)).await;
            done
        })
    }

    fn config(&self, root: &Root) -> Result<Config, Failure> {
        let flag = |value| Flag {
            name: "--database",
            setting: "serve.database",
            value,
        };
        let flags = self.database.clone().map(flag).into_iter().collect();
        Ok(root.load_with(flags)?.config)
    }
}

fn not_made(message: String) -> Failure {
    Failure::new(Exit::NotFound, message)
        .hint("`worker serve` and `worker key create` create the database; --database or --data-dir selects another")
}
