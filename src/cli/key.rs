//! `worker key`: makes, lists and revokes the keys of a coordinator, also while it runs.

use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;

use super::account::{account_name, role};
use super::coordinator::open::{Missing, StoreArgs};
use super::table::Table;
use super::{Exit, Failure, Root, key_join, output};
use crate::config::{parse_duration, show_duration};
use crate::coordinator::accounts::{Accounts, KeyOrder, NewKey, Roles, Scopes};
use crate::coordinator::clock::wall_clock;
use crate::coordinator::storage::{KeyRow, Store};
use crate::protocol::job::UnixMillis;

const EXAMPLES: &str = "\
Examples:
  worker key create                           a key of the account admin, to ask for work
  worker key create --account alice --expires 30d
  worker key create --worker rig-1            a key that connects the worker rig-1 and nothing else
  worker key list                             every key but its text, which nobody knows
  worker key revoke 4f1d02a9c3e8              it opens nothing from now on";

/// Make, list and revoke the keys of a coordinator.
///
/// A running coordinator takes notice within a second.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
    Join(key_join::Args),
}

/// Make a key and print it, this one time.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  worker key create --account alice\n  worker key create --worker rig-1"
)]
struct CreateArgs {
    /// Whose key it is; the account is made if it is new.
    #[arg(long, value_name = "NAME", default_value = "admin", value_parser = account_name)]
    account: String,
    /// What you call the key.
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    /// What it is good for: inference.submit, worker.connect, account.read, account.manage; repeat for several
    /// (default: inference.submit and account.read, or worker.connect with --worker).
    #[arg(long = "scope", value_name = "SCOPE", value_parser = scope)]
    scopes: Vec<Scopes>,
    /// Bind it to the worker of this name.
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// What a new account may do: user, moderator, admin, worker_owner; repeat for several (default: user and
    /// worker_owner, and everything for admin).
    #[arg(long = "role", value_name = "ROLE", value_parser = role)]
    roles: Vec<Roles>,
    /// How long it is valid, such as 30d or 12h (default: until it is revoked).
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires: Option<Duration>,
}

/// List the keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  worker key list\n  worker key list --json")]
struct ListArgs {}

/// Revoke a key: it opens nothing from now on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker key revoke 4f1d02a9c3e8")]
struct RevokeArgs {
    /// The key's id, as `worker key list` shows it.
    id: String,
}

#[derive(Serialize)]
struct CreatedReport<'a> {
    key: &'a str,
    id: &'a str,
    account: &'a str,
}

/// Times are seconds since the Unix epoch.
#[derive(Serialize)]
struct KeyReport {
    id: String,
    account: String,
    label: String,
    scopes: Vec<&'static str>,
    worker: Option<String>,
    created_at: i64,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
}

#[derive(Serialize)]
struct RevokedReport<'a> {
    id: &'a str,
    /// False when it was revoked before.
    revoked_now: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let missing = match args.command {
        Command::Create(_) | Command::Join(_) => Missing::Made,
        Command::List(_) | Command::Revoke(_) => Missing::Refused,
    };
    let json = args.store.json;
    args.store
        .with(root, missing, async |store, accounts| match &args.command {
            Command::Create(args) => create(args, store, accounts, json).await,
            Command::List(_) => list(accounts, json).await,
            Command::Revoke(args) => revoke(&args.id, accounts, json).await,
            Command::Join(args) => {
                let name = args.account.as_deref().unwrap_or("admin");
                let account = match store.account_named(name).await? {
                    Some(account) => account.id,
                    None => {
                        let roles = Roles::USER.with(Roles::WORKER_OWNER);
                        accounts.create_account(name, roles).await?
                    }
                };
                key_join::run(args, root, accounts, (account, name), json).await
            }
        })
}

async fn create(
    args: &CreateArgs,
    store: &Store,
    accounts: &Accounts,
    json: bool,
) -> Result<(), Failure> {
    let account = match store.account_named(&args.account).await? {
        Some(account) if args.roles.is_empty() => account.id,
        Some(_) => return Err(roles_of_old_account(&args.account)),
        None => accounts.create_account(&args.account, args.roles()).await?,
    };
    let order = KeyOrder {
        label: args.label.clone(),
        scopes: args.scopes(),
        worker_name: args.worker.clone(),
        lifetime: args.expires,
    };
    let key = accounts.create_key(account, order).await?;
    show_new(&key, &args.account, json)
}

fn show_new(key: &NewKey, account: &str, json: bool) -> Result<(), Failure> {
    let (text, id) = (key.text.expose(), &*key.public_id);
    if json {
        return output::json(&CreatedReport {
            key: text,
            id,
            account,
        });
    }
    output::line(text)?;
    output::aside(format!(
        "this is key {id} of {account}; it is not shown again"
    ));
    Ok(())
}

async fn list(accounts: &Accounts, json: bool) -> Result<(), Failure> {
    let keys = accounts.list_keys().await?;
    if json {
        let reports: Vec<KeyReport> = keys.into_iter().map(KeyReport::from).collect();
        return output::json(&reports);
    }
    let mut table = Table::new(["id", "account", "state", "scopes", "worker", "label"]);
    for key in keys {
        let scopes = key.scopes.names().collect::<Vec<_>>().join(",");
        let state = state(&key);
        let worker = key.worker_name.unwrap_or_default();
        table.row([
            key.public_id,
            key.account_name,
            state,
            scopes,
            worker,
            key.label,
        ]);
    }
    output::text(table)
}

async fn revoke(id: &str, accounts: &Accounts, json: bool) -> Result<(), Failure> {
    let keys = accounts.list_keys().await?;
    if !keys.iter().any(|key| key.public_id == id) {
        return Err(Failure::new(Exit::NotFound, "there is no key of this id")
            .hint("`worker key list` shows the ids; the key itself is not one"));
    }
    let revoked_now = accounts.revoke_key(id).await?;
    if json {
        return output::json(&RevokedReport { id, revoked_now });
    }
    output::line(match revoked_now {
        true => format!("{id} is revoked"),
        false => format!("{id} was revoked before"),
    })
}

impl CreateArgs {
    fn scopes(&self) -> Scopes {
        match (self.scopes.is_empty(), &self.worker) {
            (false, _) => self.scopes.iter().copied().collect(),
            (true, Some(_)) => Scopes::WORKER_CONNECT,
            (true, None) => Scopes::INFERENCE_SUBMIT.with(Scopes::ACCOUNT_READ),
        }
    }

    fn roles(&self) -> Roles {
        match (self.roles.is_empty(), &*self.account) {
            (false, _) => self.roles.iter().copied().collect(),
            (true, "admin") => Roles::ADMINISTRATOR,
            (true, _) => Roles::USER.with(Roles::WORKER_OWNER),
        }
    }
}

fn roles_of_old_account(name: &str) -> Failure {
    let message = format!("the account {name} exists, and --role is for new ones");
    Failure::new(Exit::Usage, message).hint("`worker account roles` changes what an account may do")
}

fn state(key: &KeyRow) -> String {
    if key.revoked_at.is_some() {
        return "revoked".to_owned();
    }
    let left = key.expires_at.map(|at| at.since(wall_clock()));
    match left.map(|left| left.as_secs()) {
        None => "valid".to_owned(),
        Some(0) => "expired".to_owned(),
        Some(secs) => format!("valid for {}", show_duration(rounded(secs))),
    }
}

/// To its largest unit: nobody wants to read milliseconds of a month.
fn rounded(secs: u64) -> Duration {
    let unit = [86_400, 3_600, 60].into_iter().find(|unit| secs >= *unit);
    let unit = unit.unwrap_or(1);
    Duration::from_secs(secs.div_ceil(unit) * unit)
}

fn scope(text: &str) -> Result<Scopes, String> {
    let known = || Scopes::ALL.names().collect::<Vec<_>>().join(", ");
    Scopes::named(text).ok_or_else(|| format!("the scopes are {}", known()))
}

fn lifetime(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a time such as 30d or 12h is wanted".to_owned())
}

impl From<KeyRow> for KeyReport {
    fn from(key: KeyRow) -> Self {
        let seconds = |at: UnixMillis| at.0 / 1000;
        Self {
            id: key.public_id,
            account: key.account_name,
            label: key.label,
            scopes: key.scopes.names().collect(),
            worker: key.worker_name,
            created_at: seconds(key.created_at),
            expires_at: key.expires_at.map(seconds),
            revoked_at: key.revoked_at.map(seconds),
        }
    }
}
