//! `worker account`: who has accounts with a coordinator and what they may do, also while it runs.

use clap::Subcommand;
use serde::Serialize;

use super::coordinator::open::{Missing, StoreArgs};
use super::table::Table;
use super::{Exit, Failure, Root, output};
use crate::coordinator::accounts::{Accounts, Lookup, Roles};
use crate::coordinator::display_name::{FORBIDDEN, is_readable};
use crate::coordinator::people::Alias;
use crate::coordinator::storage::{AccountRow, RoleChange};
use crate::protocol::job::AccountId;

const EXAMPLES: &str = "\
Examples:
  worker account list                         logins, names, roles and kudos of all accounts
  worker account roles alice user moderator   make the account with the login alice a moderator
  worker account roles bob#7 user             the same for account 7, which calls itself bob";

/// List the accounts of a coordinator and change what they may do.
///
/// An account has a login, which the operator chose and which never changes, and a display name, which its user may
/// change at any time and which several accounts may share. Commands take the login, name#id or #id.
/// `worker key create --account LOGIN` makes an account. A running coordinator takes notice within a second.
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
    /// Whose roles these are: a login, name#id or #id.
    #[arg(value_name = "ACCOUNT", value_parser = account_name)]
    account: String,
    /// All of its roles: user, moderator, admin, worker_owner.
    #[arg(required = true, value_name = "ROLE", value_parser = role)]
    roles: Vec<Roles>,
}

#[derive(Serialize)]
struct AccountReport {
    id: i64,
    login: Option<String>,
    name: String,
    roles: Vec<&'static str>,
    /// In kudos, as the ledger has it.
    kudos: f64,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let json = args.store.json;
    args.store
        .with(root, Missing::Refused, async |_, accounts| {
            match &args.command {
                Command::List(_) => list(accounts, json).await,
                Command::Roles(args) => change(args, accounts, json).await,
            }
        })
}

async fn list(accounts: &Accounts, json: bool) -> Result<(), Failure> {
    let accounts = accounts.list().await?.into_iter();
    if json {
        return output::json(&accounts.map(AccountReport::from).collect::<Vec<_>>());
    }
    let mut table = Table::new(["login", "account", "roles", "kudos"]);
    for account in accounts {
        let shown = shown(&account);
        let report = AccountReport::from(account);
        let kudos = format!("{:.3}", report.kudos);
        let login = report.login.unwrap_or_default();
        table.row([login, shown, report.roles.join(","), kudos]);
    }
    output::text(table)
}

async fn change(args: &RolesArgs, accounts: &Accounts, json: bool) -> Result<(), Failure> {
    let Some(account) = find(&args.account, accounts).await? else {
        return Err(no_account(&args.account));
    };
    let name = &shown(&account);
    let roles: Roles = args.roles.iter().copied().collect();
    match accounts.set_roles(account.id, roles).await? {
        RoleChange::LastAdmin => Err(last_admin(name)),
        RoleChange::Done if json => {
            output::json(&AccountReport::from(AccountRow { roles, ..account }))
        }
        RoleChange::Done => output::line(format!("{name} may now act as {}", listed(roles))),
    }
}

/// The account that was named, none if there is none, and a refusal where only a display name was given.
pub async fn find(named: &str, accounts: &Accounts) -> Result<Option<AccountRow>, Failure> {
    match accounts.find(named).await? {
        Lookup::Found(account) => Ok(Some(*account)),
        Lookup::Missing => Ok(None),
        Lookup::Refused(candidates) => Err(only_names(named, &candidates)),
    }
}

pub fn no_account(named: &str) -> Failure {
    let message = format!("there is no account with the login or number {named}");
    Failure::new(Exit::NotFound, message)
        .hint("`worker account list` shows them, `worker key create --account LOGIN` makes one")
}

/// Any user may take any display name, so none of them is taken for the account that is meant.
fn only_names(named: &str, candidates: &[AccountRow]) -> Failure {
    let candidates: Vec<_> = candidates.iter().map(shown).collect();
    let candidates = candidates.join(", ");
    let message =
        format!("no account has the login {named}; accounts that come near: {candidates}");
    Failure::new(Exit::NotFound, message).hint(
        "a display name may be anybody's: name the account by its login or as name#id, as `worker account list` \
         shows them",
    )
}

/// `name#id`. What an earlier version let into a name is not let onto a terminal.
pub fn shown(account: &AccountRow) -> String {
    name_and_number(&account.name, account.id)
}

pub fn name_and_number(name: &str, account: AccountId) -> String {
    let name = match is_readable(name) {
        true => name.to_owned(),
        false => name.escape_debug().to_string(),
    };
    Alias {
        name: &name,
        account,
    }
    .to_string()
}

fn last_admin(name: &str) -> Failure {
    let message = format!("{name} is the last administrator: nobody could manage anything");
    Failure::new(Exit::Failed, message).hint("make somebody else an admin first")
}

/// A name that a table and a log can show.
pub fn account_name(text: &str) -> Result<String, String> {
    match text.is_empty() || text.len() > LONGEST_NAME || !is_readable(text) {
        false => Ok(text.to_owned()),
        true => Err(format!(
            "an account's name has 1 to {LONGEST_NAME} bytes and no {FORBIDDEN}"
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
            login: account.login,
            name: account.name,
            roles: account.roles.names().collect(),
            kudos: account.means.kudos.0 as f64 / 1000.0,
        }
    }
}
