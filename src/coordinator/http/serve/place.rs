//! Connection limits: in total, and per household, so that one client network cannot take every connection.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Connections;
use crate::address::Network;

#[derive(Debug)]
pub struct Places {
    free: Arc<Semaphore>,
    households: Households,
    most_of_household: HouseholdLimit,
    of_many: Vec<Network>,
}

/// Limit of a household's connections, 0 if unlimited. Clones share the value.
#[derive(Debug, Clone)]
pub struct HouseholdLimit(Arc<LimitState>);

#[derive(Debug)]
struct LimitState {
    most: AtomicUsize,
    /// Addresses of nodes, which forward many clients, found at runtime.
    exempt: RwLock<HashSet<IpAddr>>,
}

impl HouseholdLimit {
    fn new(most: Option<usize>) -> Self {
        Self(Arc::new(LimitState {
            most: AtomicUsize::new(most.unwrap_or(0)),
            exempt: RwLock::default(),
        }))
    }

    /// Changes the limit for new connections.
    pub fn change(&self, most: Option<usize>) {
        self.0.most.store(most.unwrap_or(0), Ordering::Relaxed);
    }

    /// Exempts this address from the limit of connections.
    pub fn exempt(&self, address: IpAddr) {
        if !self.is_exempt(address) {
            self.0.exempt.write().insert(address.to_canonical());
        }
    }

    fn is_exempt(&self, address: IpAddr) -> bool {
        self.0.exempt.read().contains(&address.to_canonical())
    }

    fn most(&self) -> Option<usize> {
        Some(self.0.most.load(Ordering::Relaxed)).filter(|most| *most > 0)
    }
}

/// The place of one connection, until dropped.
#[derive(Debug)]
pub struct Place {
    _one: OwnedSemaphorePermit,
    _of_household: Option<OfHousehold>,
}

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    #[error("too many open connections; retry later")]
    All,
    #[error("too many open connections from your address; close some")]
    Household,
}

/// Open connections of each household.
#[derive(Debug, Clone, Default)]
struct Households(Arc<Mutex<HashMap<Network, usize>>>);

#[derive(Debug)]
struct OfHousehold {
    households: Households,
    network: Network,
}

impl Places {
    pub fn new(connections: &Connections) -> Self {
        let most = connections.most.min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(most)),
            households: Households::default(),
            most_of_household: HouseholdLimit::new(connections.most_of_household),
            of_many: connections.of_many.clone(),
        }
    }

    pub fn household_limit(&self) -> HouseholdLimit {
        self.most_of_household.clone()
    }

    /// Takes a place for a connection; an unknown address counts towards the total only.
    pub fn take(&self, address: Option<IpAddr>) -> Result<Place, Full> {
        let counted = address.filter(|address| !self.is_of_many(*address));
        let counted = counted.zip(self.most_of_household.most());
        let of_household = counted.map(|(address, most)| self.of_household(address, most));
        let of_household = of_household.transpose()?;
        let one = self.free.clone().try_acquire_owned();
        Ok(Place {
            _one: one.map_err(|_| Full::All)?,
            _of_household: of_household,
        })
    }

    fn is_of_many(&self, address: IpAddr) -> bool {
        let of_many = self.of_many.iter();
        self.most_of_household.is_exempt(address)
            || of_many.into_iter().any(|network| network.contains(address))
    }

    fn of_household(&self, address: IpAddr, most: usize) -> Result<OfHousehold, Full> {
        let network = Network::around(address);
        let mut open = self.households.open();
        let count = open.entry(network).or_default();
        if *count >= most {
            return Err(Full::Household);
        }
        *count += 1;
        Ok(OfHousehold {
            households: self.households.clone(),
            network,
        })
    }
}

impl Households {
    fn open(&self) -> MutexGuard<'_, HashMap<Network, usize>> {
        self.0.lock()
    }
}

impl Drop for OfHousehold {
    fn drop(&mut self) {
        let mut open = self.households.open();
        if let Some(count) = open.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Full, Place, Places};
    use crate::address::Network;
    use crate::http::serve::Connections;

    fn places() -> Places {
        let proxy = Network::parse("10.0.0.0/8").unwrap();
        Places::new(&Connections {
            most: 6,
            most_of_household: Some(2),
            ..Connections::behind(&[proxy])
        })
    }

    fn take(places: &Places, address: &str) -> Result<Place, Full> {
        places.take(Some(address.parse().unwrap()))
    }

    #[test]
    fn one_household_does_not_take_the_places_of_others() {
        let places = places();
        let one = take(&places, "192.0.2.1").unwrap();
        let _other = take(&places, "::ffff:192.0.2.1").unwrap();
        assert_eq!(take(&places, "192.0.2.1").unwrap_err(), Full::Household);
        let _neighbour = take(&places, "192.0.2.2").unwrap();
        drop(one);
        let _again = take(&places, "192.0.2.1").unwrap();
        assert!(take(&places, "192.0.2.1").is_err());
    }

    #[test]
    fn addresses_of_one_customer_are_counted_together() {
        let places = places();
        let _kept = ["2001:db8::1", "2001:db8::2"].map(|address| take(&places, address).unwrap());
        assert_eq!(take(&places, "2001:db8::3").unwrap_err(), Full::Household);
        assert!(take(&places, "2001:db8:0:1::3").is_ok());
    }

    #[test]
    fn where_nobody_is_counted_one_address_takes_as_many_as_there_are() {
        let places = Places::new(&Connections {
            most: 6,
            most_of_household: None,
            ..Connections::default()
        });
        let _kept = [(); 6].map(|()| take(&places, "192.0.2.1").unwrap());
        assert_eq!(take(&places, "192.0.2.1").unwrap_err(), Full::All);
    }

    #[test]
    fn proxies_and_this_machine_take_as_many_as_there_are() {
        for address in ["10.1.2.3", "127.0.0.1", "::1"] {
            let places = places();
            let kept: Vec<Place> = (0..6).map(|_| take(&places, address).unwrap()).collect();
            assert_eq!(take(&places, "192.0.2.1").unwrap_err(), Full::All);
            assert_eq!(take(&places, address).unwrap_err(), Full::All);
            drop(kept);
            assert!(places.households.open().is_empty());
        }
    }
}
