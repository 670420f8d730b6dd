//! A coordinator's store, opened by a command that runs beside it or in its place.

use std::time::Duration;

use super::settings;
use crate::cli::load::block_on;
use crate::cli::{Exit, Failure, Root};
use crate::config::Flag;
use crate::coordinator::accounts::{Accounts, SecretSource};
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

/// What to do where there is no database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Refused,
    Made,
}

impl StoreArgs {
    /// Does the work on the store that the configuration or the flag names.
    pub fn with<T>(
        &self,
        root: &Root,
        missing: Missing,
        work: impl AsyncFnOnce(&Store, &Accounts) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        root.start_log()?;
        let (location, secret) = self.location(root)?;
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
            let done = work(&store, &accounts).await;
            drop((store, accounts));
            tasks.stop(Duration::from_secs(5)).await;
            done
        })
    }

    /// With where its server secret is: the flag, else the configuration, else the file in the data folder.
    fn location(&self, root: &Root) -> Result<(Location, SecretSource), Failure> {
        let flag = |value| Flag {
            name: "--database",
            setting: "serve.database",
            value,
        };
        let flags = self.database.clone().map(flag).into_iter().collect();
        let config = root.load_with(flags)?.config;
        let location = settings::location(&config)?;
        let secret = settings::secret(&config, &location);
        Ok((location, secret))
    }
}

fn not_made(message: String) -> Failure {
    Failure::new(Exit::NotFound, message)
        .hint("`worker serve` and `worker key create` create the database; --database or --data-dir selects another")
}
