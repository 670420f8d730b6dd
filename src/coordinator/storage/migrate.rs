//! The schema and its versions: forward only, embedded, one text for both engines.
//!
//! A database newer than the program is refused unchanged. An older one is migrated in one transaction; a SQLite file
//! is copied beside itself first.

use std::fs::{OpenOptions, remove_file};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sqlx::AnyConnection;
use sqlx::{AssertSqlSafe, Executor, Row};
use tracing::info;

use super::StorageError;
use super::dialect::Dialect;
use super::file;
use super::location::Location;

/// Every migration, oldest first. A released migration never changes.
pub const ALL: &[&str] = &[
    include_str!("migrations/0001_start.sql"),
    include_str!("migrations/0002_retention.sql"),
    include_str!("migrations/0003_requests.sql"),
    include_str!("migrations/0004_postings.sql"),
    include_str!("migrations/0005_people.sql"),
    include_str!("migrations/0006_styles.sql"),
    include_str!("migrations/0007_modes.sql"),
    include_str!("migrations/0008_stats.sql"),
    include_str!("migrations/0009_rigs.sql"),
    include_str!("migrations/0010_moderation.sql"),
    include_str!("migrations/0011_ratings.sql"),
    include_str!("migrations/0012_shared_keys.sql"),
    include_str!("migrations/0013_holds.sql"),
    include_str!("migrations/0014_messages.sql"),
    include_str!("migrations/0015_style_keys.sql"),
    include_str!("migrations/0016_tallies.sql"),
    include_str!("migrations/0017_fees.sql"),
    include_str!("migrations/0018_leftovers.sql"),
    include_str!("migrations/0019_key_holds.sql"),
    include_str!("migrations/0020_forgiven.sql"),
    include_str!("migrations/0021_worker_numbers.sql"),
    include_str!("migrations/0022_logins.sql"),
    include_str!("migrations/0023_seals.sql"),
    include_str!("migrations/0024_credits.sql"),
    include_str!("migrations/0025_responses.sql"),
    include_str!("migrations/0026_job_figures.sql"),
    include_str!("migrations/0027_join_keys.sql"),
    include_str!("migrations/0028_response_quotas.sql"),
    include_str!("migrations/0029_erasures.sql"),
    include_str!("migrations/0030_coordinators.sql"),
    include_str!("migrations/0031_addresses.sql"),
    include_str!("migrations/0032_replies.sql"),
    include_str!("migrations/0033_model_names.sql"),
];

/// Creates the file with permissions for its owner only: it holds the hashes of keys.
pub fn prepare_file(path: &Path) -> Result<(), StorageError> {
    if path.exists() {
        return Ok(file::set_foreign_log_aside(path)?);
    }
    // A new empty database would hide that a copy of the lost one exists.
    if let Some(copy) = file::rescued(path) {
        return Err(StorageError::Rescued(copy));
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match make_private(path) {
        // Another process created it first, with the same permissions.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => Ok(made?),
    }
}

/// Creates an empty file that only its owner can ever read.
fn make_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map(drop)
}

/// Migrates the database to the last of `migrations`, or refuses it.
pub async fn migrate(
    mut connection: AnyConnection,
    location: &Location,
    migrations: &[&str],
) -> Result<AnyConnection, StorageError> {
    let dialect = Dialect::of(location);
    let known = migrations.len() as i64;
    let found = version(&mut connection, dialect).await?;
    if found > known {
        return Err(StorageError::Newer { found, known });
    }
    if found == known {
        return Ok(connection);
    }
    if let (Location::Sqlite(path), true) = (location, found > 0) {
        keep_copy(&mut connection, path, found).await?;
    }
    apply_or_undo(&mut connection, dialect, migrations).await?;
    Ok(connection)
}

/// Migrates a server's database to the newest schema.
pub async fn migrate_server(connection: &mut AnyConnection) -> Result<(), StorageError> {
    apply_or_undo(connection, Dialect::Postgres, ALL).await
}

/// The schema's columns for the leader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseSchema {
    #[default]
    Unknown,
    Lease,
    /// Also the address for other coordinators.
    LeaseAndAddress,
}

/// The first schema version with addresses of leaders.
const ADDRESSES: i64 = 31;

/// Refuses a schema that is newer than the program.
pub async fn lease_schema(connection: &mut AnyConnection) -> Result<LeaseSchema, StorageError> {
    let dialect = Dialect::spoken_by(connection);
    let (found, known) = (version(connection, dialect).await?, ALL.len() as i64);
    match found {
        found if found > known => Err(StorageError::Newer { found, known }),
        ADDRESSES.. => Ok(LeaseSchema::LeaseAndAddress),
        _ => match has_table("coordinators", connection, dialect).await? {
            true => Ok(LeaseSchema::Lease),
            false => Ok(LeaseSchema::Unknown),
        },
    }
}

async fn apply_or_undo(
    connection: &mut AnyConnection,
    dialect: Dialect,
    migrations: &[&str],
) -> Result<(), StorageError> {
    let applied = apply(connection, dialect, migrations).await;
    if applied.is_err() {
        let _ = connection.execute("ROLLBACK").await;
    }
    applied
}

/// Reads the version again inside the transaction: another process may have migrated first.
async fn apply(
    connection: &mut AnyConnection,
    dialect: Dialect,
    migrations: &[&str],
) -> Result<(), StorageError> {
    connection.execute(dialect.begin()).await?;
    if let Some(lock) = dialect.lock_schema() {
        connection.execute(lock).await?;
    }
    let found = version(connection, dialect).await?;
    let done = usize::try_from(found).unwrap_or(0);
    for migration in migrations.iter().skip(done) {
        let text = AssertSqlSafe(dialect.spell(migration));
        sqlx::raw_sql(text).execute(&mut *connection).await?;
    }
    sqlx::query("UPDATE counters SET value = $1 WHERE name = 'schema'")
        .bind(migrations.len() as i64)
        .execute(&mut *connection)
        .await?;
    connection.execute("COMMIT").await?;
    Ok(())
}

/// Whether the database has this program's tables.
pub async fn is_made(
    connection: &mut AnyConnection,
    location: &Location,
) -> Result<bool, StorageError> {
    Ok(version(connection, Dialect::of(location)).await? > 0)
}

/// Schema version; 0 without this program's tables.
async fn version(connection: &mut AnyConnection, dialect: Dialect) -> Result<i64, StorageError> {
    if !has_table("counters", connection, dialect).await? {
        return Ok(0);
    }
    let row = sqlx::query("SELECT value FROM counters WHERE name = 'schema'");
    Ok(row.fetch_one(&mut *connection).await?.try_get(0)?)
}

async fn has_table(
    name: &'static str,
    connection: &mut AnyConnection,
    dialect: Dialect,
) -> Result<bool, StorageError> {
    let tables = sqlx::query(dialect.count_tables()).bind(name);
    let tables: i64 = tables.fetch_one(&mut *connection).await?.try_get(0)?;
    Ok(tables > 0)
}

/// Copies the whole database, including its journal.
async fn keep_copy(
    connection: &mut AnyConnection,
    path: &Path,
    found: i64,
) -> Result<(), StorageError> {
    let copy = make_copy(path, found)?;
    let copied = sqlx::query("VACUUM INTO $1")
        .bind(copy.to_string_lossy().into_owned())
        .execute(connection)
        .await;
    if let Err(error) = copied {
        let _ = remove_file(&copy);
        return Err(error.into());
    }
    info!(
        "copied the database with schema {found} to {} before the migration",
        copy.display()
    );
    Ok(())
}

/// Creates an empty file beside the database, never overwriting one.
fn make_copy(path: &Path, found: i64) -> Result<PathBuf, StorageError> {
    let again = (1_u32..).map(|number| format!("-{number}"));
    for suffix in std::iter::once(String::new()).chain(again) {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".schema-{found}{suffix}"));
        match make_private(Path::new(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok(made.map(|()| name.into())?),
        }
    }
    Err(StorageError::Full)
}
