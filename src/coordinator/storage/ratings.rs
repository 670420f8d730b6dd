//! Clients' ratings of their images. A request is rated once, and the reward paid in the same transaction.

use futures_util::future::BoxFuture;
use sqlx::AnyConnection;

use crate::kudos::{Posted, Posting};
use muster_protocol::job::JobId;

use super::postings::post;
use super::write::Change;
use super::{StorageError, Store};

/// The rating of one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RatingRow {
    pub job: JobId,
    /// 1 to 10.
    pub rating: Option<u32>,
    /// 0 is without flaws, 5 is unusable.
    pub artifacts: Option<u32>,
    /// The best output of its request.
    pub best: bool,
}

impl Store {
    /// Stores the ratings of a request and pays for them, unless they were paid before.
    pub async fn rate(
        &self,
        posting: Posting,
        ratings: Vec<RatingRow>,
    ) -> Result<Posted, StorageError> {
        self.change(Rate { posting, ratings }).await
    }
}

#[derive(Debug)]
struct Rate {
    posting: Posting,
    ratings: Vec<RatingRow>,
}

impl Change for Rate {
    type Answer = Posted;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Posted, StorageError>> {
        Box::pin(async move {
            let posted = post(&self.posting, connection).await?;
            if posted == Posted::Done {
                for row in &self.ratings {
                    self.keep(row, connection).await?;
                }
            }
            Ok(posted)
        })
    }
}

impl Rate {
    async fn keep(
        &self,
        row: &RatingRow,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        let new = sqlx::query(
            "INSERT INTO ratings (job, rating, artifacts, best, at) VALUES ($1, $2, $3, $4, $5)",
        );
        let new = new
            .bind(row.job.to_string())
            .bind(row.rating.map(i64::from))
            .bind(row.artifacts.map(i64::from))
            .bind(i64::from(row.best))
            .bind(self.posting.at.0);
        new.execute(connection).await?;
        Ok(())
    }
}
