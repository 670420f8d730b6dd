//! Blocked addresses and the ends of their blocks. In memory, because every request checks them.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use crate::address::Network;
use crate::storage::TimeoutRow;
use muster_protocol::job::UnixMillis;

/// A snapshot of all blocks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    until: HashMap<Network, UnixMillis>,
    /// Prefix lengths in use: an address is looked up once for each.
    sizes: BTreeSet<u8>,
}

/// A blocked network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptOut {
    pub network: Network,
    pub left: Duration,
}

const MINUTE: i64 = 60_000;
/// The longest block: a month.
const LONGEST: i64 = 30 * 24 * 60 * MINUTE;

/// Timeout of a prompt after earlier ones within a day: 3 minutes, then 9, then 15.
pub fn penalty(earlier: u32) -> i64 {
    let minutes = (2 * i64::from(earlier) + 1) * 3;
    (minutes * MINUTE).min(LONGEST)
}

impl Timeouts {
    pub fn of(rows: &[TimeoutRow]) -> Self {
        let networks = rows
            .iter()
            .filter_map(|row| Some((Network::parse(&row.network)?, row.until)));
        let until: HashMap<_, _> = networks.collect();
        let sizes = until.keys().map(Network::bits).collect();
        Self { until, sizes }
    }

    /// The rest of the address's block.
    pub fn left(&self, address: IpAddr, now: UnixMillis) -> Option<Duration> {
        let around = self.sizes.iter().map(|bits| Network::of(address, *bits));
        let left = around.filter_map(|network| left(*self.until.get(&network)?, now));
        left.max()
    }

    /// Timeouts that cover all of this network.
    pub fn holding(&self, network: Network, now: UnixMillis) -> Vec<KeptOut> {
        let mut found = self.all(now);
        found.retain(|kept_out| kept_out.network.holds(network));
        found
    }

    /// All blocks, in the order of their addresses.
    pub fn all(&self, now: UnixMillis) -> Vec<KeptOut> {
        let all = self.until.iter().filter_map(|(network, until)| {
            let left = left(*until, now)?;
            Some(KeptOut {
                network: *network,
                left,
            })
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|kept_out| kept_out.network);
        all
    }
}

fn left(until: UnixMillis, now: UnixMillis) -> Option<Duration> {
    let left = u64::try_from(until.0.saturating_sub(now.0)).ok()?;
    (left > 0).then(|| Duration::from_millis(left))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Timeouts, penalty};
    use crate::address::Network;
    use crate::storage::TimeoutRow;
    use muster_protocol::job::UnixMillis;

    fn timeouts() -> Timeouts {
        let row = |network: &str, until| TimeoutRow {
            network: network.to_owned(),
            until: UnixMillis(until),
        };
        Timeouts::of(&[
            row("192.0.2.7", 10_000),
            row("10.0.0.0/8", 20_000),
            row("10.1.0.0/16", 5_000),
            row("2001:db8::/64", 10_000),
            row("nonsense", 10_000),
        ])
    }

    #[test]
    fn an_address_is_kept_out_by_the_longest_timeout_around_it() {
        let check = |address: &str, now, expected: Option<u64>| {
            let left = timeouts().left(address.parse().unwrap(), UnixMillis(now));
            assert_eq!(
                left,
                expected.map(Duration::from_secs),
                "{address} at {now}"
            );
        };
        check("192.0.2.7", 0, Some(10));
        check("::ffff:192.0.2.7", 0, Some(10));
        check("192.0.2.8", 0, None);
        check("10.1.2.3", 0, Some(20));
        check("10.1.2.3", 19_000, Some(1));
        check("10.1.2.3", 20_000, None);
        check("2001:db8::1:2", 0, Some(10));
        check("2001:db8:0:1::", 0, None);
    }

    #[test]
    fn networks_that_hold_another_are_found() {
        let check = |network: &str, expected: &[&str]| {
            let network = Network::parse(network).unwrap();
            let found = timeouts().holding(network, UnixMillis(0));
            let found: Vec<_> = found.iter().map(|it| it.network.to_string()).collect();
            assert_eq!(found, expected);
        };
        check("10.1.2.3", &["10.0.0.0/8", "10.1.0.0/16"]);
        check("10.2.0.0/16", &["10.0.0.0/8"]);
        check("0.0.0.0/0", &[]);
        check("192.0.2.7", &["192.0.2.7"]);
    }

    #[test]
    fn every_prompt_costs_six_minutes_more_than_the_last() {
        let minutes = |earlier| penalty(earlier) / 60_000;
        assert_eq!([minutes(0), minutes(1), minutes(2)], [3, 9, 15]);
        assert_eq!(minutes(u32::MAX), 30 * 24 * 60);
    }
}
