//! Reads of the ledger, which is append-only: settlements of jobs and postings. Older entries are summed up in opening
//! balances (`retention`).

use std::collections::HashMap;

use sqlx::Row;
use sqlx::any::AnyRow;

use crate::values::Means;
use muster_protocol::job::{AccountId, JobId, Kudos};

use super::rows::Stored;
use super::{StorageError, Store};

/// Invariants of the whole ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerSums {
    /// Sum of all entries and opening balances: zero.
    pub entries: Kudos,
    /// Sum of all balances: zero.
    pub balances: Kudos,
    /// Number of jobs and postings whose entries do not sum to zero, and of entries without a settled job or a posting:
    /// 0.
    pub wrong_jobs: i64,
    /// Number of accounts whose balance is not the sum of their entries and their opening balance: 0.
    pub wrong_balances: i64,
}

impl Store {
    pub async fn balance(&self, account: AccountId) -> Result<Kudos, StorageError> {
        let row = sqlx::query("SELECT kudos FROM balances WHERE account = $1").bind(account.0);
        let row = row.fetch_optional(&self.readers).await?;
        Ok(Kudos(row.map_or(Ok(0), |row| row.try_get(0))?))
    }

    /// Balance of an account above its floor, less holds.
    pub async fn spendable(&self, account: AccountId) -> Result<Kudos, StorageError> {
        let row = sqlx::query(
            "SELECT kudos - held - COALESCE(floor, 0) FROM balances WHERE account = $1",
        );
        let row = row.bind(account.0).fetch_optional(&self.readers).await?;
        Ok(Kudos(row.map_or(Ok(0), |row| row.try_get(0))?))
    }

    /// Balances of these accounts, if they have one.
    pub async fn means(
        &self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, Means>, StorageError> {
        let mut means = HashMap::new();
        for some in accounts.chunks(AT_ONCE) {
            let mut query = sqlx::query(SOME_MEANS);
            // Unused parameters repeat the last one.
            for place in 0..AT_ONCE {
                query = query.bind(some[place.min(some.len() - 1)].0);
            }
            for row in query.fetch_all(&self.readers).await? {
                means.insert(AccountId(row.try_get("account")?), Means::load(&row)?);
            }
        }
        Ok(means)
    }

    /// The entries of one job: account and amount.
    pub async fn entries(&self, job: JobId) -> Result<Vec<(AccountId, Kudos)>, StorageError> {
        let rows = sqlx::query("SELECT account, amount FROM ledger WHERE job = $1 ORDER BY id");
        let rows = rows.bind(job.to_string()).fetch_all(&self.readers).await?;
        let entry = |row: &AnyRow| {
            Ok::<_, sqlx::Error>((AccountId(row.try_get(0)?), Kudos(row.try_get(1)?)))
        };
        Ok(rows.iter().map(entry).collect::<Result<_, _>>()?)
    }

    /// Sums up the whole ledger, reading every row.
    pub async fn ledger_sums(&self) -> Result<LedgerSums, StorageError> {
        let number = async |text: &'static str| {
            let row = sqlx::query(text).fetch_one(&self.readers).await?;
            Ok::<i64, StorageError>(row.try_get(0)?)
        };
        Ok(LedgerSums {
            entries: Kudos(number(ENTRIES).await?),
            balances: Kudos(number(BALANCES).await?),
            wrong_jobs: number(WRONG_JOBS).await?,
            wrong_balances: number(WRONG_BALANCES).await?,
        })
    }
}

impl Stored for Means {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            kudos: Kudos(row.try_get("kudos")?),
            spare: Kudos(row.try_get("spare")?),
        })
    }
}

const AT_ONCE: usize = 8;
const SOME_MEANS: &str = "SELECT account, kudos, kudos - held - COALESCE(floor, 0) AS spare FROM balances \
                          WHERE account IN ($1, $2, $3, $4, $5, $6, $7, $8)";
const ENTRIES: &str = "SELECT CAST((SELECT COALESCE(SUM(amount), 0) FROM ledger) \
                       + (SELECT COALESCE(SUM(kudos), 0) FROM openings) AS BIGINT)";
const BALANCES: &str = "SELECT CAST(COALESCE(SUM(kudos), 0) AS BIGINT) FROM balances";
const WRONG_JOBS: &str = "SELECT COUNT(*) FROM (\
                          SELECT ledger.job FROM ledger LEFT JOIN settled ON settled.job = ledger.job \
                          LEFT JOIN postings ON postings.id = ledger.job GROUP BY ledger.job \
                          HAVING SUM(amount) <> 0 OR COUNT(settled.job) + COUNT(postings.id) = 0) AS wrong";
const WRONG_BALANCES: &str = "SELECT COUNT(*) FROM (\
                              SELECT account FROM (\
                              SELECT account, amount FROM ledger \
                              UNION ALL SELECT account, kudos FROM openings \
                              UNION ALL SELECT account, -kudos FROM balances) AS amounts \
                              GROUP BY account HAVING SUM(amount) <> 0) AS wrong";
