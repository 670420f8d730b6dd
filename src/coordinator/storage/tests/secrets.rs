//! Secrets in a stolen database: no server secret, no shared key, no passkey.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sqlx::{AnyConnection, AssertSqlSafe, Executor, Row};

use super::on_both_engines;
use super::scratch::Scratch;
use crate::accounts::{Accounts, OpenError, SecretError, SecretSource};
use crate::people::People;
use crate::sharing::Sharing;
use crate::storage::connect;
use crate::values::Roles;
use muster_protocol::job::UnixMillis;

on_both_engines! {
    the_secret_of_an_older_database_moves_to_a_file_and_what_lay_open_is_sealed,
    a_database_opens_with_its_own_secret_only,
}

const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef";
const KEY: &str = "6f1d1c2e-7a4b-4c53-9d0e-2b8a5f3c1e77";
const PASSKEY: &str = "an-open-passkey-of-old";

/// All columns that may contain a secret.
const PLACES: [(&str, &str); 9] = [
    ("settings", "value"),
    ("shared_keys", "id"),
    ("shared_keys", "sealed"),
    ("styles", "shared_key"),
    ("key_holds", "shared_key"),
    ("requests", "body"),
    ("postings", "about"),
    ("postings", "terms"),
    ("people", "proxy_passkey"),
];

/// The contents of these columns.
async fn everything(connection: &mut AnyConnection) -> String {
    let mut all = String::new();
    for (table, column) in PLACES {
        let rows = AssertSqlSafe(format!("SELECT {column} FROM {table}"));
        for row in sqlx::query(rows).fetch_all(&mut *connection).await.unwrap() {
            let text: Option<String> = row.try_get(0).unwrap();
            all.push_str(&format!("{table}.{column}: {}\n", text.unwrap_or_default()));
        }
    }
    all
}

async fn the_secret_of_an_older_database_moves_to_a_file_and_what_lay_open_is_sealed(
    scratch: Scratch,
) {
    let store = scratch.open().await;
    let now = UnixMillis(1);
    let owner = store.create_account("alice", Roles::SERVICE, now).await;
    let owner = owner.unwrap();
    let mut older = connect(&scratch.location).await.unwrap();
    for row in [
        format!("INSERT INTO settings (name, value) VALUES ('secret', '{SECRET}')"),
        format!(
            "INSERT INTO shared_keys (id, owner, utilized, max_image_pixels, max_image_steps, max_text_tokens, \
             created_at) VALUES ('{KEY}', {}, 0, -1, -1, -1, 1)",
            owner.0
        ),
        format!(
            "UPDATE people SET proxy_passkey = '{PASSKEY}' WHERE account = {}",
            owner.0
        ),
        format!(
            "INSERT INTO key_holds (request, shared_key, amount, at) VALUES ('r', '{KEY}', 1, 1)"
        ),
        format!(
            "INSERT INTO requests (id, account, kind, body, accepted_at, expires_at, cancelled) VALUES ('r', 1, \
             'text', '{{\"by\":{{\"shared_key\":\"{KEY}\"}},\"shared_key\":\"{KEY}\"}}', 1, 1, 0)"
        ),
        format!(
            "INSERT INTO postings (id, cause, about, terms, at) VALUES ('p', 'transfer', '1 to 2 by {KEY}', \
             'transfer 1 to 2 by {KEY}', 1)"
        ),
    ] {
        older.execute(AssertSqlSafe(row)).await.unwrap();
    }
    assert!(everything(&mut older).await.contains(KEY));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept/coordinator.secret");
    let source = SecretSource::File(file.clone());
    let accounts = Accounts::open(store.clone(), &source, &scratch.tasks).await;
    let accounts = accounts.unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), SECRET);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(file.parent().unwrap().read_dir().unwrap().count(), 1);
    let left = everything(&mut older).await;
    for open in [SECRET, KEY, PASSKEY] {
        assert!(!left.contains(open), "{left}");
    }

    // The owner sees the key as before, its holders can use it, and the id in the database grants no access.
    let people = People::new(store.clone(), accounts.clone());
    let keys = people.shared_keys(owner).await.unwrap();
    assert_eq!(
        keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [KEY]
    );
    let person = people.find(owner).await.unwrap().unwrap();
    assert_eq!(person.proxy_passkey.as_deref(), Some(PASSKEY));
    let sharing = Sharing::new(store.clone(), accounts.seal().clone());
    let found = sharing.find(KEY).await.unwrap().unwrap();
    assert_eq!(sharing.find(&found.id.to_string()).await, Ok(None));
    let named = left.matches(&found.id.to_string()).count();
    assert_eq!(named, 6, "{left}");

    let again = Accounts::open(store, &source, &scratch.tasks).await;
    assert!(again.is_ok());
}

async fn a_database_opens_with_its_own_secret_only(scratch: Scratch) {
    let store = scratch.open().await;
    let open = async |source: SecretSource| {
        let opened = Accounts::open(store.clone(), &source, &scratch.tasks).await;
        opened.map(|_| ()).map_err(|error| match error {
            OpenError::Secret(error) => error,
            OpenError::Storage(error) => panic!("{error}"),
        })
    };
    let given = |text: &str| SecretSource::Given(text.to_owned());
    assert_eq!(open(given("short")).await, Err(SecretError::TooShort(5)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let source = SecretSource::File(file.clone());
    assert_eq!(open(source.clone()).await, Ok(()));
    let made = fs::read_to_string(&file).unwrap();
    assert_eq!(open(given(made.trim())).await, Ok(()));
    let other = given(SECRET);
    let refused = open(other.clone()).await;
    assert_eq!(refused, Err(SecretError::Other(other.clone())));
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("serve.secret") && !said.contains(SECRET),
        "{said}"
    );
    fs::remove_file(&file).unwrap();
    assert_eq!(open(source.clone()).await, Err(SecretError::Missing(file)));
    assert!(folder.path().read_dir().unwrap().next().is_none());

    let older = format!("INSERT INTO settings (name, value) VALUES ('secret', '{SECRET}')");
    let mut connection = connect(&scratch.location).await.unwrap();
    connection.execute(AssertSqlSafe(older)).await.unwrap();
    let made = given(made.trim());
    let refused = open(made.clone()).await;
    assert_eq!(refused, Err(SecretError::StillInDatabase(made)));
}
