//! One suite for both engines: every test here runs on SQLite and on PostgreSQL, each with its own database.

mod books;
mod budgets;
mod credits;
mod election;
mod erasures;
mod fees;
mod forgetting;
mod holds;
mod messages;
mod model_names;
mod moderation;
mod modes;
mod opening;
mod outages;
mod people;
mod postings;
mod ratings;
mod requests;
mod rewards;
mod rigs;
pub mod scratch;
mod secrets;
mod settling;
mod shared_keys;
mod stats;
mod styles;
mod survival;
mod teams;
mod workers;

/// One test per engine.
macro_rules! on_both_engines {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[tokio::test]
            async fn on_sqlite() {
                super::$name(crate::storage::tests::scratch::Scratch::sqlite()).await;
            }

            #[tokio::test]
            async fn on_postgres() {
                super::$name(crate::storage::tests::scratch::Scratch::postgres().await).await;
            }
        }
    )+};
}
use on_both_engines;
