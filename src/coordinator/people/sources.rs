//! Sources and uses of a user's kudos. Postings are tallied by cause; the rest of the balance comes from jobs.

use std::collections::HashMap;

use crate::kudos::{Cause, DONATED, GIFTED, RECEIVED};
use muster_protocol::job::Kudos;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sources {
    /// Earned by jobs and spent on them.
    pub accumulated: Kudos,
    /// Sent to other users, so negative.
    pub gifted: Kudos,
    /// Sent to classes, so negative.
    pub donated: Kudos,
    /// Corrections by an operator.
    pub admin: Kudos,
    pub received: Kudos,
    pub recurring: Kudos,
    pub awarded: Kudos,
    pub styled: Kudos,
}

impl Sources {
    pub fn of(balance: Kudos, tallies: &HashMap<String, Kudos>) -> Self {
        let tally = |name: &str| tallies.get(name).copied().unwrap_or_default();
        let of = |cause: Cause| tally(cause.word());
        // Old tallies hold only the sum of gifts given and received.
        let (transfers, donations) = (of(Cause::Transfer).0, of(Cause::Donation).0);
        let given = |name, before: i64| Kudos(tally(name).0.saturating_add(before.min(0)));
        let received = tally(RECEIVED).0.saturating_add(transfers.max(0));
        let awarded = Kudos(of(Cause::Award).0.saturating_add(of(Cause::Rating).0));
        let mut sources = Self {
            accumulated: Kudos(0),
            gifted: given(GIFTED, transfers),
            donated: given(DONATED, donations),
            admin: of(Cause::Correction),
            received: Kudos(received.saturating_add(donations.max(0))),
            recurring: of(Cause::Monthly),
            awarded,
            styled: of(Cause::Style),
        };
        let others = sources.total().saturating_add(of(Cause::Start).0);
        sources.accumulated = Kudos(balance.0.saturating_sub(others));
        sources
    }

    fn total(&self) -> i64 {
        let parts = [
            self.gifted,
            self.donated,
            self.admin,
            self.received,
            self.recurring,
            self.awarded,
            self.styled,
        ];
        parts.iter().fold(0, |sum, part| sum.saturating_add(part.0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::Sources;
    use muster_protocol::job::Kudos;

    #[test]
    fn what_was_given_does_not_hide_what_was_received() {
        let of = |tallies: &[(&str, i64)]| {
            let tallies = tallies.iter();
            let tallies = tallies.map(|(name, kudos)| ((*name).to_owned(), Kudos(*kudos)));
            let sources = Sources::of(Kudos(0), &tallies.collect());
            [
                sources.gifted.0,
                sources.donated.0,
                sources.received.0,
                sources.accumulated.0,
            ]
        };
        assert_eq!(
            of(&[("gifted", -30), ("donated", -5), ("received", 20)]),
            [-30, -5, 20, 15]
        );
        // Old sums of both stay included.
        assert_eq!(
            of(&[("gifted", -30), ("transfer", -7), ("donation", 4)]),
            [-37, 0, 4, 33]
        );
    }

    #[test]
    fn what_no_cause_explains_is_of_jobs() {
        let tallies = [
            ("start", 25_000),
            ("correction", 5_000),
            ("monthly", 1_000),
            ("award", 200),
            ("rating", 50),
        ];
        let tallies: HashMap<_, _> = tallies
            .into_iter()
            .map(|(cause, kudos)| (cause.to_owned(), Kudos(kudos)))
            .collect();
        let sources = Sources::of(Kudos(40_000), &tallies);
        assert_eq!(
            (sources.admin, sources.recurring),
            (Kudos(5_000), Kudos(1_000))
        );
        assert_eq!(sources.awarded, Kudos(250));
        assert_eq!(sources.accumulated, Kudos(40_000 - 31_250));
    }
}
