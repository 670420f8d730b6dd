//! `worker account`: accounts of a coordinator, their roles, credits, suspension, export and deletion, also while it runs.

mod lifecycle;

use clap::Subcommand;
use serde::Serialize;

use super::coordinator::open::{Missing, StoreArgs};
use super::table::Table;
use super::{Exit, Failure, Root, output};
use crate::config::Usd;
use crate::coordinator::accounts::{Accounts, Lookup};
use crate::coordinator::billing::MicroUsd;
use crate::coordinator::clock::wall_clock;
use crate::coordinator::display_name::{FORBIDDEN, is_readable};
use crate::coordinator::storage::{AccountRow, CreditGrant, CreditKind, RoleChange, Store};
use crate::coordinator::values::{Alias, Roles};
use crate::protocol::job::AccountId;

const EXAMPLES: &str = "\
Examples:
  worker account list                         logins, names, roles and kudos of all accounts
  worker account roles alice user moderator   make the account with the login alice a moderator
  worker account roles bob#7 user             the same for account 7, display name bob
  worker account credit alice 5               add 5 USD of paid credits to the account with the login alice
  worker account suspend alice                refuse the keys of alice and end its jobs
  worker account export alice -o alice.json   write all that is stored about alice to a file
  worker account delete alice                 delete the account and all that it has stored, for good";

/// List, suspend, export and delete the accounts of a coordinator, set their roles and add credits.
///
/// An account has a login and a display name. The operator chooses the login, which is unique and never changes. The
/// user may change the display name at any time, and several accounts may share one. Commands take a login, name#id
/// or #id. `worker key create --account LOGIN` creates an account. A running coordinator applies changes within a
/// second.
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
    Credit(CreditArgs),
    Suspend(lifecycle::SuspendArgs),
    Export(lifecycle::ExportArgs),
    Delete(lifecycle::DeleteArgs),
}

/// List all accounts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  worker account list\n  worker account list --json")]
struct ListArgs {}

/// Replace the roles of an account.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker account roles alice user worker_owner")]
struct RolesArgs {
    /// The account: a login, name#id or #id.
    #[arg(value_name = "ACCOUNT", value_parser = account_name)]
    account: String,
    /// All roles of the account: user, moderator, admin, worker_owner.
    #[arg(required = true, value_name = "ROLE", value_parser = role)]
    roles: Vec<Roles>,
}

/// Add credits to an account.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  worker account credit alice 5\n  worker account credit alice 0.50 --promotional"
)]
struct CreditArgs {
    /// The account: a login, name#id or #id.
    #[arg(value_name = "ACCOUNT", value_parser = account_name)]
    account: String,
    /// Amount in USD, with at most six decimal places.
    #[arg(value_name = "USD", value_parser = amount)]
    amount: MicroUsd,
    /// Add promotional credits, which are spent before paid ones.
    #[arg(long)]
    promotional: bool,
}

/// Spendable credits of an account.
#[derive(Serialize)]
struct CreditReport {
    id: i64,
    login: Option<String>,
    paid_usd: f64,
    promotional_usd: f64,
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
        .with_opened(root, Missing::Refused, async |opened| {
            let (store, accounts) = (opened.store, opened.accounts);
            match &args.command {
                Command::List(_) => list(accounts, json).await,
                Command::Roles(args) => change(args, accounts, json).await,
                Command::Credit(args) => credit(args, store, accounts, json).await,
                Command::Suspend(args) => lifecycle::suspend(args, opened, json).await,
                Command::Export(args) => lifecycle::export(args, opened).await,
                Command::Delete(args) => lifecycle::delete(args, opened, json).await,
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
        RoleChange::LastAdmin => Err(last_admin(name, "take the role admin from")),
        RoleChange::Done if json => {
            output::json(&AccountReport::from(AccountRow { roles, ..account }))
        }
        RoleChange::Done => output::line(format!("{name} now has the roles {}", listed(roles))),
    }
}

async fn credit(
    args: &CreditArgs,
    store: &Store,
    accounts: &Accounts,
    json: bool,
) -> Result<(), Failure> {
    let Some(account) = find(&args.account, accounts).await? else {
        return Err(no_account(&args.account));
    };
    let grant = CreditGrant {
        account: account.id,
        amount: args.amount,
        kind: match args.promotional {
            true => CreditKind::Promotional,
            false => CreditKind::Paid,
        },
        now: wall_clock(),
    };
    let now = store.add_credits(grant).await?;
    let report = CreditReport {
        id: account.id.0,
        paid_usd: now.paid.usd(),
        promotional_usd: now.promotional.usd(),
        login: account.login.clone(),
    };
    if json {
        return output::json(&report);
    }
    output::line(format!(
        "{} now has {} USD of paid and {} USD of promotional credits",
        shown(&account),
        report.paid_usd,
        report.promotional_usd
    ))
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
    let message = format!("no account has the login or number {named}");
    Failure::new(Exit::NotFound, message).hint(
        "`worker account list` shows all accounts, `worker key create --account LOGIN` creates one",
    )
}

/// Any user may take any display name, so none of them is taken for the account that is meant.
fn only_names(named: &str, candidates: &[AccountRow]) -> Failure {
    let candidates: Vec<_> = candidates.iter().map(shown).collect();
    let candidates = candidates.join(", ");
    let message = format!("no account has the login {named}; similar accounts: {candidates}");
    Failure::new(Exit::NotFound, message).hint(
        "display names are not unique: give the login or name#id, as `worker account list` shows them",
    )
}

/// `name#id`, with control characters removed, which earlier versions allowed in names.
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

fn last_admin(name: &str, what: &str) -> Failure {
    let message = format!("refusing to {what} {name}, the last administrator");
    Failure::new(Exit::Failed, message).hint("give another account the role admin first")
}

/// A name that a table and a log can show.
pub fn account_name(text: &str) -> Result<String, String> {
    match text.is_empty() || text.len() > LONGEST_NAME || !is_readable(text) {
        false => Ok(text.to_owned()),
        true => Err(format!(
            "an account name must have 1 to {LONGEST_NAME} bytes and no {FORBIDDEN}"
        )),
    }
}

/// Longer ones are cut in the store.
const LONGEST_NAME: usize = 200;

fn amount(text: &str) -> Result<MicroUsd, String> {
    let amount = Usd::parse(text).filter(|amount| amount.micro > 0);
    let micro = amount.and_then(|amount| i64::try_from(amount.micro).ok());
    micro.map(MicroUsd).ok_or_else(|| {
        "must be an amount in USD from 0.000001 to 1000000 with at most six decimal places, such as 2.50"
            .to_owned()
    })
}

pub fn role(text: &str) -> Result<Roles, String> {
    Roles::named(text).ok_or_else(|| format!("known roles: {}", listed(Roles::ALL)))
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
