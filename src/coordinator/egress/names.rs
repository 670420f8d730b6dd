//! Names to addresses, once for each time something is sent: what was looked at is what is connected to.

use std::future::ready;
use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;

use super::EgressError;

/// Who knows the addresses of names.
#[derive(Debug, Clone, Default)]
pub enum Names {
    /// The machine.
    #[default]
    System,
    /// A test.
    #[cfg(test)]
    Told(std::sync::Arc<std::sync::Mutex<Vec<Answer>>>),
}

/// A name, and what it leads to when it is asked for next.
#[cfg(test)]
pub type Answer = (&'static str, Vec<IpAddr>);

/// The addresses that were looked at, for whatever name the connection asks.
#[derive(Debug)]
pub struct Pinned(pub Vec<SocketAddr>);

impl Names {
    pub async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, EgressError> {
        match self {
            Self::System => {
                let found = lookup_host((name, 0)).await;
                let found = found.map_err(|_| EgressError::Unreachable)?;
                Ok(found.map(|address| address.ip()).collect())
            }
            #[cfg(test)]
            Self::Told(answers) => {
                let mut answers = answers.lock().unwrap();
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
