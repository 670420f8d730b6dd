//! The database's location: a file, or a PostgreSQL server.

use std::fmt;
use std::path::{Path, PathBuf};

use sqlx::ConnectOptions;
use sqlx::any::AnyConnectOptions;
use url::Url;

use super::StorageError;

#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    Sqlite(PathBuf),
    Postgres(Url),
}

/// Known URL parameters of a server. The driver would log any other with its value, which may be a password.
const PARAMETERS: [&str; 11] = [
    "application_name",
    "dbname",
    "host",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

/// The name of the SQLite file in the data folder.
const FILE: &str = "coordinator.sqlite";

impl Location {
    /// The default file.
    pub fn in_folder(folder: &Path) -> Self {
        Self::Sqlite(folder.join(FILE))
    }

    /// `postgres://…`, `sqlite:PATH`, or a path.
    pub fn parse(text: &str) -> Result<Self, StorageError> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            // The URL may contain a password, so the error does not quote it.
            let url = Url::parse(text).map_err(|error| {
                StorageError::Misnamed(format!("the database address is not a valid URL: {error}"))
            })?;
            return match url.query_pairs().all(|(name, _)| is_parameter(&name)) {
                true => Ok(Self::Postgres(url)),
                false => Err(unknown_parameter()),
            };
        }
        let path = text.strip_prefix("sqlite:").unwrap_or(text);
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.contains("://") {
            return Err(StorageError::Misnamed(
                "invalid database address: use PATH, sqlite:PATH or postgres://HOST/NAME"
                    .to_owned(),
            ));
        }
        Ok(Self::Sqlite(PathBuf::from(path)))
    }

    /// Whether the database may exist; only a missing file is certain.
    pub fn exists(&self) -> bool {
        match self {
            Self::Sqlite(path) => path.exists(),
            Self::Postgres(_) => true,
        }
    }

    pub(super) fn options(&self) -> Result<AnyConnectOptions, StorageError> {
        let url = match self {
            Self::Postgres(url) => url.clone(),
            Self::Sqlite(path) => sqlite_url(path)?,
        };
        let options = AnyConnectOptions::from_url(&url).map_err(StorageError::from)?;
        Ok(options.disable_statement_logging())
    }
}

fn is_parameter(name: &str) -> bool {
    PARAMETERS.contains(&name) || name.starts_with("options[")
}

/// Does not quote the parameter, which may be a part of a password.
fn unknown_parameter() -> StorageError {
    StorageError::Misnamed(format!(
        "unknown parameter in the database address, allowed are {}",
        PARAMETERS.join(", ")
    ))
}

/// The path is percent-encoded as a whole, since a folder may be called `what?#`. Only [`super::migrate`] creates the
/// file: a connection opened after the file was deleted must fail, not find an empty database.
fn sqlite_url(path: &Path) -> Result<Url, StorageError> {
    let text = path.to_str().ok_or_else(|| {
        StorageError::Misnamed(format!(
            "the database path {} is not valid UTF-8",
            path.display()
        ))
    })?;
    let escaped: String = text.bytes().map(escape).collect();
    Url::parse(&format!("sqlite://{escaped}?mode=rw"))
        .map_err(|error| StorageError::Misnamed(format!("invalid database path {text}: {error}")))
}

fn escape(byte: u8) -> String {
    match byte {
        b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Postgres(url) => {
                let host = url.host_str().unwrap_or("localhost");
                let port = url.port().map(|port| format!(":{port}"));
                write!(
                    f,
                    "postgres://{host}{}{}",
                    port.unwrap_or_default(),
                    url.path()
                )
            }
        }
    }
}

/// As [`fmt::Display`], since the URL of a server may contain a password.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Location;

    #[test]
    fn a_location_is_a_path_or_a_url() {
        let parse = |text| Location::parse(text).unwrap().to_string();
        assert_eq!(parse("/var/lib/x.sqlite"), "/var/lib/x.sqlite");
        assert_eq!(parse("sqlite:x.sqlite"), "x.sqlite");
        assert_eq!(parse("sqlite:///var/x.sqlite"), "/var/x.sqlite");
        assert_eq!(
            parse("postgres://me:secret@db:5432/muster"),
            "postgres://db:5432/muster"
        );
        assert!(Location::parse("postgres://db/x?sslmode=require&options[geqo]=off").is_ok());
        assert!(Location::parse("mysql://db/x").is_err());
        assert!(Location::parse("").is_err());
    }

    #[test]
    fn a_password_is_not_shown() {
        let location = Location::parse("postgres://me:secret@db/muster?password=secret").unwrap();
        assert!(!format!("{location:?} {location}").contains("secret"));
    }

    #[test]
    fn a_parameter_that_the_driver_would_log_is_refused_unseen() {
        for address in [
            "postgres://db/muster?sslpassword=secret",
            "postgres://me:1234?secret@db/muster",
            "postgres://db/muster?secret",
        ] {
            let error = Location::parse(address).unwrap_err().to_string();
            assert!(
                error.contains("sslmode") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
