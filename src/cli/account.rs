//! `worker account`: who has accounts with a coordinator and what they may do, also while it runs.

use clap::Subcommand;
use serde::Serialize;

use super::coordinator::open::{Missing, StoreArgs};
use super::table::Table;
use super::{Exit, Failure, Root, output};
use crate::coordinator::accounts::{Accounts, Roles};
use crate::coordinator::storage::{AccountRow, RoleChange, Store};

const EXAMPLES: &str = "\
Examples:
  worker account list                         who there is, what they may do, what they have
  worker account roles alice user moderator   alice moderates from now on
  worker account roles alice user             and no longer";

/// List the accounts of a coordinator and change what they may do.
///
/// `worker key create --account NAME` makes an account. A running coordinator takes notice within a second.
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
    List(ListArgs),
    Roles(RolesArgs),
}

/// List the accounts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  worker account list\n  worker account list --json")]
struct ListArgs {}

/// Say what an account may do, instead of what it might before.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker account roles alice user worker_owner")]
struct RolesArgs {
    /// Whose roles these are.
    #[arg(value_name = "NAME", value_parser = account_name)]
    account: String,
    /// All of its roles: user, moderator, admin, worker_owner.
    #[arg(required = true, value_name = "ROLE", value_parser = role)]
    roles: Vec<Roles>,
}

#[derive(Serialize)]
struct AccountReport {
    id: i64,
    name: String,
    roles: Vec<&'static str>,
    /// In kudos, as the ledger has it.
    kudos: f64,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let json = args.store.json;
    args.store.with(
        root,
        Missing::Refused,
        async |store, accounts| match &args.command {
            Command::List(_) => list(accounts, json).await,
            Command::Roles(args) => change(args, store, accounts, json).await,
        },
    )
}

async fn list(accounts: &Accounts, json: bool) -> Result<(), Failure> {
    let accounts = accounts.list().await?.into_iter().map(AccountReport::from);
    if json {
        return output::json(&accounts.collect::<Vec<_>>());
    }
    let mut table = Table::new(["id", "account", "roles", "kudos"]);
    for account in accounts {
        let kudos = format!("{:.3}", account.kudos);
        let roles = account.roles.join(",");
        table.row([account.id.to_string(), account.name, roles, kudos]);
    }
    output::text(table)
}

async fn change(
    args: &RolesArgs,
    store: &Store,
    accounts: &Accounts,
    json: bool,
) -> Result<(), Failure> {
    let name = &args.account;
    let Some(account) = store.account_named(name).await? else {
        let message = format!("there is no account called {name}");
        return Err(Failure::new(Exit::NotFound, message)
            .hint("`worker account list` shows them, `worker key create` makes one"));
    };
    let roles: Roles = args.roles.iter().copied().collect();
    match accounts.set_roles(account.id, roles).await? {
        RoleChange::LastAdmin => Err(last_admin(name)),
        RoleChange::Done if json => {
            output::json(&AccountReport::from(AccountRow { roles, ..account }))
        }
        RoleChange::Done => output::line(format!("{name} may now act as {}", listed(roles))),
    }
}

fn last_admin(name: &str) -> Failure {
    let message = format!("{name} is the last administrator: nobody could manage anything");
    Failure::new(Exit::Failed, message).hint("make somebody else an admin first")
}

/// A name that a table and a log can show.
pub fn account_name(text: &str) -> Result<String, String> {
    match text.is_empty() || text.len() > LONGEST_NAME || text.contains(char::is_control) {
        false => Ok(text.to_owned()),
        true => Err(format!(
            "an account's name has 1 to {LONGEST_NAME} bytes and no control characters"
        )),
    }
}

/// Longer ones are cut in the store.
const LONGEST_NAME: usize = 200;

pub fn role(text: &str) -> Result<Roles, String> {
    Roles::named(text).ok_or_else(|| format!("the roles are {}", listed(Roles::ALL)))
}

fn listed(roles: Roles) -> String {
    roles.names().collect::<Vec<_>>().join(", ")
}

impl From<AccountRow> for AccountReport {
    fn from(account: AccountRow) -> Self {
        Self {
            id: account.id.0,
            name: account.name,
            roles: account.roles.names().collect(),
            kudos: account.means.kudos.0 as f64 / 1000.0,
        }
    }
}
