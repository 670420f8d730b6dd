//! DNS lookups, once per request: the connection goes to the checked addresses.

use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::EgressError;

/// Resolver of names.
#[derive(Debug, Clone)]
pub enum Names {
    /// The system's resolver.
    System(Lookups),
    /// For tests.
    #[cfg(test)]
    Told(Arc<parking_lot::Mutex<Vec<Answer>>>),
}

/// A name and its addresses for the next lookup.
#[cfg(test)]
pub type Answer = (&'static str, Vec<IpAddr>);

/// Always resolves to the checked addresses.
#[derive(Debug)]
pub struct Pinned(pub Vec<SocketAddr>);

/// DNS lookups on blocking threads. A lookup cannot be cancelled and may outlive its request by a minute, so each holds
/// its permit until it returns: slow name servers never occupy more than [`LOOKUPS`] threads.
#[derive(Debug, Clone)]
pub struct Lookups {
    permits: Arc<Semaphore>,
    resolve: fn(&str) -> io::Result<Vec<IpAddr>>,
}

/// Limit of concurrent lookups.
pub const LOOKUPS: usize = 16;

impl Lookups {
    pub fn with(resolve: fn(&str) -> io::Result<Vec<IpAddr>>) -> Self {
        let permits = Arc::new(Semaphore::new(LOOKUPS));
        Self { permits, resolve }
    }

    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, EgressError> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| EgressError::Unreachable)?;
        let (name, resolve) = (name.to_owned(), self.resolve);
        let looking = spawn_blocking(move || {
            let found = resolve(&name);
            drop(permit);
            found
        });
        let found = looking.await.map_err(|_| EgressError::Unreachable)?;
        found.map_err(|_| EgressError::Unreachable)
    }
}

fn resolve_by_system(name: &str) -> io::Result<Vec<IpAddr>> {
    let found = (name, 0).to_socket_addrs()?;
    Ok(found.map(|address| address.ip()).collect())
}

impl Default for Names {
    fn default() -> Self {
        Self::System(Lookups::with(resolve_by_system))
    }
}

impl Names {
    pub async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, EgressError> {
        match self {
            Self::System(lookups) => lookups.addresses(name).await,
            #[cfg(test)]
            Self::Told(answers) => {
                let mut answers = answers.lock();
                let at = answers.iter().position(|(known, _)| *known == name);
                at.map(|at| answers.remove(at).1)
                    .ok_or(EgressError::Unreachable)
            }
        }
    }
}

impl Resolve for Pinned {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(ready(Ok(addresses)))
    }
}
