//! `worker account delete`, `suspend` and `export`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde::Serialize;

use super::{account_name, find, last_admin, no_account, shown};
use crate::cli::coordinator::open::CoordinatorStores;
use crate::cli::{Exit, Failure, output};
use crate::coordinator::clock::wall_clock;
use crate::coordinator::erasure::{AccountExport, StoredContents, pieces};
use crate::coordinator::start::is_served;
use crate::coordinator::storage::{AccountChange, AccountRow, Location};

/// Delete an account for good.
///
/// The keys of the account stop working within a second. Stored responses, requests, results, media, styles, shared keys,
/// workers and personal data are deleted; ledger entries stay, without a name. A running coordinator ends the jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker account delete alice")]
pub struct DeleteArgs {
    /// The account: a login, name#id or #id.
    #[arg(value_name = "ACCOUNT", value_parser = account_name)]
    account: String,
}

/// Suspend an account, or lift its suspension.
///
/// The keys of a suspended account are refused with account_suspended, its jobs end and its workers are disconnected.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  worker account suspend alice\n  worker account suspend alice --lift"
)]
pub struct SuspendArgs {
    /// The account: a login, name#id or #id.
    #[arg(value_name = "ACCOUNT", value_parser = account_name)]
    account: String,
    /// Lift the suspension.
    #[arg(long)]
    lift: bool,
}

/// Export all that is stored about an account as JSON.
///
/// The document has the account, keys without their text, ledger entries, jobs, requests, responses, links to media, and
/// all else that names the account.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker account export alice -o alice.json")]
pub struct ExportArgs {
    /// The account: a login, name#id or #id.
    #[arg(value_name = "ACCOUNT", value_parser = account_name)]
    account: String,
    /// Write the document to this new file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct DeletionReport {
    id: i64,
    deleted: bool,
    media_objects: usize,
    /// Copies of the database that may still hold its data.
    copies: Vec<PathBuf>,
}

#[derive(Serialize)]
struct SuspensionReport {
    id: i64,
    suspended: bool,
}

pub async fn delete(
    args: &DeleteArgs,
    opened: &CoordinatorStores<'_>,
    json: bool,
) -> Result<(), Failure> {
    let account = named(&args.account, opened).await?;
    let store = opened.store;
    let deleted = store.delete_account(account.id, wall_clock()).await?;
    check(deleted, &account, "delete")?;
    let media = opened.media().await?;
    let contents = StoredContents {
        store,
        media: &media,
    };
    // A coordinator that runs rewrites the file itself.
    let is_alone = !is_served(opened.location);
    let gone = contents.delete(account.id, is_alone).await;
    let gone = gone.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let report = DeletionReport {
        id: account.id.0,
        deleted: true,
        media_objects: gone.objects,
        copies: copies(opened.location),
    };
    if json {
        return output::json(&report);
    }
    output::line(format!(
        "deleted the account {}: its keys, stored responses, requests, results and {} media objects are gone, its ledger \
         entries stay without a name",
        shown(&account),
        report.media_objects
    ))?;
    for copy in &report.copies {
        output::aside(format!(
            "{} is a copy of the database and may still hold its data: delete the copy when you need it no longer",
            copy.display()
        ));
    }
    Ok(())
}

pub async fn suspend(
    args: &SuspendArgs,
    opened: &CoordinatorStores<'_>,
    json: bool,
) -> Result<(), Failure> {
    let account = named(&args.account, opened).await?;
    let is_suspended = !args.lift;
    let changed = opened
        .store
        .suspend_account(account.id, is_suspended)
        .await?;
    check(changed, &account, "suspend")?;
    if json {
        return output::json(&SuspensionReport {
            id: account.id.0,
            suspended: is_suspended,
        });
    }
    let name = shown(&account);
    output::line(match is_suspended {
        true => format!("{name} is suspended: its keys are refused, and its jobs end"),
        false => format!("{name} is not suspended any more"),
    })
}

pub async fn export(args: &ExportArgs, opened: &CoordinatorStores<'_>) -> Result<(), Failure> {
    let account = named(&args.account, opened).await?;
    let mut file = match &args.output {
        None => None,
        Some(path) => {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let file = options.open(path);
            Some(file.map_err(|error| writing(path, &error))?)
        }
    };
    let (pieces, mut read) = pieces();
    let export = AccountExport {
        store: opened.store.clone(),
        media: opened.media().await?,
        account: account.id,
    };
    let writing_all = async {
        while let Some(piece) = read.recv().await {
            let piece = piece.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
            match (&mut file, &args.output) {
                (Some(file), Some(path)) => {
                    file.write_all(&piece)
                        .map_err(|error| writing(path, &error))?;
                }
                _ => output::bytes(&piece)?,
            }
        }
        Ok(())
    };
    let ((), written) = tokio::join!(export.write(pieces), writing_all);
    written
}

async fn named(name: &str, opened: &CoordinatorStores<'_>) -> Result<AccountRow, Failure> {
    let found = find(name, opened.accounts).await?;
    found.ok_or_else(|| no_account(name))
}

fn check(change: AccountChange, account: &AccountRow, what: &str) -> Result<(), Failure> {
    match change {
        AccountChange::Done => Ok(()),
        AccountChange::Missing => Err(no_account(&shown(account))),
        AccountChange::LastAdmin => Err(last_admin(&shown(account), what)),
    }
}

/// The program's own backup copies of a SQLite database.
fn copies(location: &Location) -> Vec<PathBuf> {
    let Location::Sqlite(path) = location else {
        return Vec::new();
    };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let name = name.to_string_lossy().into_owned();
    let is_copy = |path: &PathBuf| {
        let found = path.file_name().map(|name| name.to_string_lossy());
        let rest = found
            .as_deref()
            .and_then(|found| found.strip_prefix(&*name));
        rest.is_some_and(|rest| rest.starts_with(".schema-") || rest.contains("rescued"))
    };
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut copies: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_copy).collect();
    copies.sort();
    copies
}

fn writing(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("writing {} failed: {error}", path.display()),
    )
}
