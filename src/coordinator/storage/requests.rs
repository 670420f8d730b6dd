//! Durable requests: accepted means stored. Results of their jobs are written at settlement ([`super::settlements`]);
//! both are deleted when the request expires ([`super::expiry`]).

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};
use uuid::Uuid;

use crate::values::styles::Use;
use muster_protocol::job::{AccountId, JobId, Kind, Kudos, RequestId, SharedKeyId, UnixMillis};

use super::fees::Fee;
use super::script::{Column, Script, Table, Verb};
use super::values::Values;
use super::write::{Change, Write};
use super::{StorageError, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRow {
    pub id: RequestId,
    pub account: AccountId,
    pub kind: Kind,
    /// Enough to run the request again.
    pub body: String,
    pub accepted_at: UnixMillis,
    pub expires_at: UnixMillis,
    pub wanted: Wanted,
    /// Fee of the request, besides its jobs.
    pub fee: Kudos,
}

/// The part of a request that is still wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The whole request.
    #[default]
    Everything,
    /// Only the jobs that workers had begun when the request was stopped.
    Begun,
    /// The client cancelled the request.
    Nothing,
}

/// Payments due when a request is accepted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dues {
    /// The style of the request, whose use is counted and paid.
    pub style: Option<Use>,
    /// The shared key that pays.
    pub shared_key: Option<SharedKeyId>,
}

/// The result of a job, which may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRow {
    pub job: JobId,
    /// Name and public id.
    pub worker: Option<(String, Uuid)>,
    pub model: String,
    pub state: String,
    pub reason: String,
    pub output: String,
    pub charge: Kudos,
}

/// An unexpired request, as loaded by a new process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRequest {
    pub request: RequestRow,
    pub results: Vec<ResultRow>,
}

impl Store {
    /// Stores the request and pays its dues. On disk when this returns.
    pub async fn accept(&self, request: RequestRow, dues: Dues) -> Result<(), StorageError> {
        let owner = self.owner();
        let accept = Box::new(Accept {
            request,
            dues,
            owner,
        });
        self.write(|answer| Write::accept(accept, answer)).await
    }

    /// Marks the request as cancelled by its client.
    pub async fn cancel_request(&self, id: RequestId) -> Result<(), StorageError> {
        let text = "UPDATE requests SET cancelled = $2 WHERE id = $1";
        let wanted = Wanted::Nothing;
        self.change(Lessen { id, wanted, text }).await
    }

    /// Deletes the request for its client: later processes skip it, and the cleanup removes it.
    pub async fn expire_request(&self, id: RequestId) -> Result<(), StorageError> {
        let text = "UPDATE requests SET expires_at = 0, cancelled = $2 WHERE id = $1";
        let wanted = Wanted::Nothing;
        self.change(Lessen { id, wanted, text }).await
    }

    /// Stops a request: its queued jobs are given to no worker. Does not undo a cancellation.
    pub async fn end_waiting(&self, id: RequestId) -> Result<(), StorageError> {
        let text = "UPDATE requests SET cancelled = $2 WHERE id = $1 AND cancelled = 0";
        let wanted = Wanted::Begun;
        self.change(Lessen { id, wanted, text }).await
    }

    /// Unexpired requests of this coordinator, the oldest first.
    pub async fn open_requests(&self, now: UnixMillis) -> Result<Vec<OpenRequest>, StorageError> {
        let owner = self.owner();
        let rows = sqlx::query(OPEN).bind(now.0).bind(owner);
        let rows = rows.fetch_all(&self.readers);
        let requests: Vec<RequestRow> = rows
            .await?
            .iter()
            .map(request)
            .collect::<Result<_, StorageError>>()?;
        let rows = sqlx::query(RESULTS_OF_OPEN).bind(now.0).bind(owner);
        let mut results: HashMap<RequestId, Vec<ResultRow>> = HashMap::new();
        for row in rows.fetch_all(&self.readers).await? {
            let of = RequestId(uuid(&row, "request")?);
            results.entry(of).or_default().push(result(&row)?);
        }
        let open = requests.into_iter().map(|request| OpenRequest {
            results: results.remove(&request.id).unwrap_or_default(),
            request,
        });
        Ok(open.collect())
    }

    /// The stored body, `None` if the request does not exist.
    pub async fn request_body(&self, id: RequestId) -> Result<Option<String>, StorageError> {
        let row = sqlx::query("SELECT body FROM requests WHERE id = $1").bind(id.to_string());
        let row = row.fetch_optional(&self.readers).await?;
        row.map_or(Ok(None), |row| Ok(Some(row.try_get("body")?)))
    }

    /// Charges of a request's settled jobs.
    pub async fn charged(&self, id: RequestId) -> Result<Kudos, StorageError> {
        let text =
            "SELECT CAST(COALESCE(SUM(charge), 0) AS BIGINT) FROM results WHERE request = $1";
        let row = sqlx::query(text).bind(id.to_string());
        Ok(Kudos(row.fetch_one(&self.readers).await?.try_get(0)?))
    }

    /// Amount paid for a request so far: charges of its jobs, less the forgiven part. The fee counts only if nothing
    /// was forgiven.
    pub async fn paid(&self, id: RequestId) -> Result<Kudos, StorageError> {
        let text = "SELECT CAST(COALESCE(SUM(charge - forgiven), 0) + CASE WHEN SUM(forgiven) > 0 THEN 0 \
                    ELSE COALESCE((SELECT fee FROM requests WHERE id = $1), 0) END AS BIGINT) \
                    FROM results WHERE request = $1";
        let row = sqlx::query(text).bind(id.to_string());
        Ok(Kudos(row.fetch_one(&self.readers).await?.try_get(0)?))
    }

    /// Charge of an ended job; zero otherwise.
    pub async fn charged_for(&self, id: JobId) -> Result<Kudos, StorageError> {
        let row = sqlx::query("SELECT charge FROM results WHERE job = $1").bind(id.to_string());
        let row = row.fetch_optional(&self.readers).await?;
        row.map_or(Ok(Kudos(0)), |row| Ok(Kudos(row.try_get(0)?)))
    }
}

const OPEN: &str = "SELECT id, account, kind, body, accepted_at, expires_at, cancelled, fee FROM requests \
     WHERE expires_at > $1 AND ($2 = 0 OR owner = $2) ORDER BY accepted_at, id";
const RESULTS_OF_OPEN: &str = "SELECT results.job, results.request, results.model, results.state, results.reason, \
     results.output, results.charge, workers.name, workers.public_id FROM results \
     JOIN requests ON requests.id = results.request LEFT JOIN workers ON workers.id = results.worker \
     WHERE requests.expires_at > $1 AND ($2 = 0 OR requests.owner = $2)";

static REQUESTS: Table = Table {
    verb: Verb::Insert("requests"),
    columns: &[
        Column::Text("id"),
        Column::Number("account"),
        Column::Text("kind"),
        Column::Text("body"),
        Column::Number("accepted_at"),
        Column::Number("expires_at"),
        Column::Number("cancelled"),
        Column::Number("fee"),
        Column::Number("owner"),
    ],
    tail: "",
};

/// A new request.
#[derive(Debug)]
pub struct Accept {
    request: RequestRow,
    dues: Dues,
    owner: i64,
}

impl Accept {
    pub fn id(&self) -> RequestId {
        self.request.id
    }

    pub fn fee(&self) -> Fee {
        Fee {
            account: self.request.account,
            amount: self.request.fee,
            at: self.request.accepted_at,
        }
    }

    pub fn dues(&self) -> &Dues {
        &self.dues
    }
}

pub fn insert_requests(accepted: &[&Accept], script: &mut Script) {
    script.add(&REQUESTS, accepted, row);
}

fn row(accepted: &&Accept, values: &mut Values) {
    let request = &accepted.request;
    values.text(&request.id.to_string());
    values.number(request.account.0);
    values.text(request.kind.word());
    values.whole_text(&request.body);
    values.number(request.accepted_at.0);
    values.number(request.expires_at.0);
    values.number(request.wanted.number());
    values.number(request.fee.0);
    values.number(accepted.owner);
}

/// A cancellation or stop of a request.
#[derive(Debug)]
struct Lessen {
    id: RequestId,
    wanted: Wanted,
    text: &'static str,
}

impl Change for Lessen {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let done = sqlx::query(self.text).bind(self.id.to_string());
            let done = done.bind(self.wanted.number());
            done.execute(connection).await?;
            Ok(())
        })
    }
}

impl Wanted {
    /// The value of the column `cancelled`, in which earlier versions knew only 0 and 1.
    fn number(self) -> i64 {
        match self {
            Self::Everything => 0,
            Self::Nothing => 1,
            Self::Begun => 2,
        }
    }

    /// A number written by a later version must not prevent a start: such a request is stopped, and its begun jobs are
    /// kept.
    fn of(number: i64) -> Self {
        let all = [Self::Everything, Self::Nothing];
        let found = all.into_iter().find(|it| it.number() == number);
        found.unwrap_or(Self::Begun)
    }
}

fn request(row: &AnyRow) -> Result<RequestRow, StorageError> {
    let kind: String = row.try_get("kind")?;
    Ok(RequestRow {
        id: RequestId(uuid(row, "id")?),
        account: AccountId(row.try_get("account")?),
        kind: Kind::listed(&kind).ok_or_else(|| {
            StorageError::Broken(format!("a request has the unknown kind {kind}"))
        })?,
        body: row.try_get("body")?,
        accepted_at: UnixMillis(row.try_get("accepted_at")?),
        expires_at: UnixMillis(row.try_get("expires_at")?),
        wanted: Wanted::of(row.try_get("cancelled")?),
        fee: Kudos(row.try_get("fee")?),
    })
}

fn result(row: &AnyRow) -> Result<ResultRow, StorageError> {
    let name: Option<String> = row.try_get("name")?;
    let worker = match name {
        Some(name) => Some((name, uuid(row, "public_id")?)),
        None => None,
    };
    Ok(ResultRow {
        job: JobId(uuid(row, "job")?),
        worker,
        model: row.try_get("model")?,
        state: row.try_get("state")?,
        reason: row.try_get("reason")?,
        output: row.try_get("output")?,
        charge: Kudos(row.try_get("charge")?),
    })
}

fn uuid(row: &AnyRow, column: &str) -> Result<Uuid, StorageError> {
    let text: String = row.try_get(column)?;
    text.parse()
        .map_err(|_| StorageError::Broken(format!("{column} is not a UUID: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::Wanted;

    #[test]
    fn of_a_request_that_is_cancelled_in_an_unknown_way_nobody_is_given_any_more() {
        for wanted in [Wanted::Everything, Wanted::Nothing, Wanted::Begun] {
            assert_eq!(Wanted::of(wanted.number()), wanted);
        }
        for unknown in [-1, 3, i64::MAX] {
            assert_eq!(Wanted::of(unknown), Wanted::Begun);
        }
    }
}
