//! `worker key`: makes, lists and revokes the keys of a coordinator, also while it runs.

use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;

use super::account::{account_name, find, name_and_number, no_account, role, shown};
use super::coordinator::open::{Missing, StoreArgs};
use super::table::Table;
use super::{Exit, Failure, Root, key_join, output};
use crate::config::{parse_duration, show_duration};
use crate::coordinator::accounts::{Accounts, KeyOrder, Lookup, NewKey};
use crate::coordinator::clock::wall_clock;
use crate::coordinator::storage::{AccountRow, KeyRow};
use crate::coordinator::values::{Login, Roles, Scopes};
use crate::protocol::job::{AccountId, UnixMillis};

const EXAMPLES: &str = "\
Examples:
  worker key create                           create a key of the administrator for requests
  worker key create --account alice --expires 30d
  worker key create --account alice --full    create a key with every scope
  worker key create --worker rig-1            create a key that only connects the worker rig-1
  worker key list                             list all keys, without their secret text
  worker key revoke 4f1d02a9c3e8              revoke a key within a second
  worker key join                             create a token for a new worker";

const SCOPES: &str = "\
Scopes:
  inference.submit   submit, read and cancel requests
  worker.connect     connect workers, by socket and by polling
  account.read       read the account: balance, workers, shared keys, requests
  account.manage     manage the account: transfer kudos, rename or delete the account,
                     create shared keys, teams, styles and messages, change workers,
                     and use the roles moderator and admin
  full               all scopes

Clients of the AI Horde API use one key for everything: create their keys with --full.

Examples:
  worker key create --account alice
  worker key create --account alice --full
  worker key create --worker rig-1";

/// Create, list and revoke the keys of a coordinator.
///
/// A running coordinator applies changes within a second.
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

/// Create a key and print it once.
#[derive(Debug, clap::Args)]
#[command(after_help = SCOPES)]
struct CreateArgs {
    /// The account of the key: a login, name#id or #id. A new login creates the account (default: the administrator).
    #[arg(long, value_name = "ACCOUNT", value_parser = account_name)]
    account: Option<String>,
    /// Create the account even if another account has this display name.
    #[arg(long, requires = "account")]
    new: bool,
    /// Label of the key in `worker key list`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    /// Scope of the key: inference.submit, worker.connect, account.read, account.manage, full; repeat for several
    /// (default: inference.submit and account.read, or worker.connect with --worker).
    #[arg(long = "scope", value_name = "SCOPE", value_parser = scope)]
    scopes: Vec<Scopes>,
    /// Give the key every scope.
    #[arg(long, conflicts_with_all = ["scopes", "worker"])]
    full: bool,
    /// Bind the key to the worker of this name.
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Role of a new account: user, moderator, admin, worker_owner; repeat for several (default: user and
    /// worker_owner).
    #[arg(long = "role", value_name = "ROLE", value_parser = role, requires = "account")]
    roles: Vec<Roles>,
    /// How long the key is valid, such as 30d or 12h (default: until revoked).
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires: Option<Duration>,
}

/// List all keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  worker key list\n  worker key list --json")]
struct ListArgs {}

/// Revoke a key; takes effect within a second.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker key revoke 4f1d02a9c3e8")]
struct RevokeArgs {
    /// The id of the key, as `worker key list` shows it.
    id: String,
}

#[derive(Serialize)]
struct CreatedReport<'a> {
    key: &'a str,
    id: &'a str,
    /// `name#id`
    account: &'a str,
    account_id: i64,
}

/// Times are seconds since the Unix epoch.
#[derive(Serialize)]
struct KeyReport {
    id: String,
    /// `name#id`
    account: String,
    account_id: i64,
    login: Option<String>,
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
        .with(root, missing, async |_, accounts| match &args.command {
            Command::Create(args) => create(args, accounts, json).await,
            Command::List(_) => list(accounts, json).await,
            Command::Revoke(args) => revoke(&args.id, accounts, json).await,
            Command::Join(args) => {
                let holder = Holder {
                    named: args.account.as_deref(),
                    new: false,
                    roles: None,
                };
                let account = holder.find_or_make(accounts).await?;
                let name = shown_by_number(account, accounts).await?;
                key_join::run(args, root, accounts, (account, &name), json).await
            }
        })
}

async fn create(args: &CreateArgs, accounts: &Accounts, json: bool) -> Result<(), Failure> {
    let holder = Holder {
        named: args.account.as_deref(),
        new: args.new,
        roles: args.given_roles(),
    };
    let account = holder.find_or_make(accounts).await?;
    let order = KeyOrder {
        label: args.label.clone(),
        scopes: args.scopes(),
        worker_name: args.worker.clone(),
        lifetime: args.expires,
        joins: false,
    };
    let key = accounts.create_key(account, order).await?;
    show_new(&key, &shown_by_number(account, accounts).await?, json)
}

/// `name#id`
async fn shown_by_number(account: AccountId, accounts: &Accounts) -> Result<String, Failure> {
    let all = accounts.list().await?;
    let name = all.iter().find(|row| row.id == account).map(shown);
    Ok(name.unwrap_or_else(|| format!("#{}", account.0)))
}

/// The account that a new key is for.
struct Holder<'a> {
    /// The administrator, if none.
    named: Option<&'a str>,
    /// Only a login counts, and it must be free.
    new: bool,
    /// For a new account, if they were given.
    roles: Option<Roles>,
}

impl Holder<'_> {
    async fn find_or_make(&self, accounts: &Accounts) -> Result<AccountId, Failure> {
        let Some(named) = self.named else {
            return Ok(accounts.administrator_or_new().await?);
        };
        let found = match self.new {
            true => match accounts.find(named).await? {
                Lookup::Found(account) => Some(*account),
                Lookup::Missing | Lookup::Refused(_) => None,
            },
            false => find(named, accounts).await?,
        };
        match found {
            Some(account) if self.roles.is_none() && !self.new => Ok(account.id),
            Some(account) => Err(exists(&account)),
            None if named.contains('#') => Err(no_account(named)),
            None => self.make(named, accounts).await,
        }
    }

    async fn make(&self, named: &str, accounts: &Accounts) -> Result<AccountId, Failure> {
        let login = Login::parse(named).map_err(|error| {
            Failure::new(Exit::Usage, format!("--account {named}: {error}"))
                .hint("choose a valid login; the user may set any display name later")
        })?;
        match (login.is_admin(), self.roles) {
            (true, None) => return first_administrator(accounts).await,
            (true, Some(_)) => {
                let message = "the login admin is reserved for the administrator with every role";
                return Err(Failure::new(Exit::Usage, message).hint("leave out --role"));
            }
            (false, _) => {}
        }
        let roles = self.roles.unwrap_or(Roles::USER.with(Roles::WORKER_OWNER));
        let made = accounts.create_with_login(&login, roles).await?;
        made.ok_or_else(|| {
            let message =
                format!("creating the account {login} failed: another process took the login");
            Failure::new(Exit::Failed, message).hint("run the command again")
        })
    }
}

/// The login admin is made for an administrator, and only where there is none.
async fn first_administrator(accounts: &Accounts) -> Result<AccountId, Failure> {
    match accounts.administrator().await? {
        None => Ok(accounts.administrator_or_new().await?),
        Some(other) => {
            let other = shown(&other);
            let message = format!("no account has the login admin: the administrator is {other}");
            Err(Failure::new(Exit::NotFound, message).hint(format!("use --account {other}")))
        }
    }
}

fn show_new(key: &NewKey, account: &str, json: bool) -> Result<(), Failure> {
    let (text, id) = (key.text.expose(), &*key.public_id);
    if json {
        return output::json(&CreatedReport {
            key: text,
            id,
            account,
            account_id: key.account.0,
        });
    }
    output::line(text)?;
    output::aside(format!("key {id} of {account}; not shown again"));
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
        let account = name_and_number(&key.account_name, key.account);
        let worker = key.worker_name.unwrap_or_default();
        table.row([key.public_id, account, state, scopes, worker, key.label]);
    }
    output::text(table)
}

async fn revoke(id: &str, accounts: &Accounts, json: bool) -> Result<(), Failure> {
    let keys = accounts.list_keys().await?;
    if !keys.iter().any(|key| key.public_id == id) {
        return Err(Failure::new(Exit::NotFound, "no key has this id")
            .hint("`worker key list` shows the ids; do not give the key itself"));
    }
    let revoked_now = accounts.revoke_key(id).await?;
    if json {
        return output::json(&RevokedReport { id, revoked_now });
    }
    output::line(match revoked_now {
        true => format!("revoked {id}"),
        false => format!("{id} was already revoked"),
    })
}

impl CreateArgs {
    fn scopes(&self) -> Scopes {
        if self.full {
            return Scopes::ALL;
        }
        match (self.scopes.is_empty(), &self.worker) {
            (false, _) => self.scopes.iter().copied().collect(),
            (true, Some(_)) => Scopes::WORKER_CONNECT,
            (true, None) => Scopes::INFERENCE_SUBMIT.with(Scopes::ACCOUNT_READ),
        }
    }

    fn given_roles(&self) -> Option<Roles> {
        let roles = &self.roles;
        (!roles.is_empty()).then(|| roles.iter().copied().collect())
    }
}

fn exists(account: &AccountRow) -> Failure {
    let name = shown(account);
    let message = format!("the account {name} exists: --role and --new are for new accounts");
    Failure::new(Exit::Usage, message).hint("`worker account roles` sets the roles of an account")
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

/// Rounded up to the largest unit, for display.
fn rounded(secs: u64) -> Duration {
    let unit = [86_400, 3_600, 60].into_iter().find(|unit| secs >= *unit);
    let unit = unit.unwrap_or(1);
    Duration::from_secs(secs.div_ceil(unit) * unit)
}

/// Every scope.
const FULL: &str = "full";

fn scope(text: &str) -> Result<Scopes, String> {
    let known = || Scopes::ALL.names().collect::<Vec<_>>().join(", ") + ", full";
    let full = (text == FULL).then_some(Scopes::ALL);
    full.or_else(|| Scopes::named(text))
        .ok_or_else(|| format!("known scopes: {}", known()))
}

pub fn lifetime(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "must be a duration such as 30d or 12h".to_owned())
}

impl From<KeyRow> for KeyReport {
    fn from(key: KeyRow) -> Self {
        let seconds = |at: UnixMillis| at.0 / 1000;
        Self {
            id: key.public_id,
            account: name_and_number(&key.account_name, key.account),
            account_id: key.account.0,
            login: key.account_login,
            label: key.label,
            scopes: key.scopes.names().collect(),
            worker: key.worker_name,
            created_at: seconds(key.created_at),
            expires_at: key.expires_at.map(seconds),
            revoked_at: key.revoked_at.map(seconds),
        }
    }
}
