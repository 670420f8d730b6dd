//! The configured coordinators, checked: whom to dial, as whom.

use super::{DaemonError, Post, Way};
use crate::config::{Config, CoordinatorConfig, CoordinatorKind};
use crate::link::{Dial, base, endpoint, native_tls};

/// One post for each coordinator, in the order of the file.
pub fn posts(config: &Config) -> Result<Vec<Post>, DaemonError> {
    let name = config.worker.name();
    let one = |coordinator| post(coordinator, &name);
    config.coordinators.iter().map(one).collect()
}

fn post(coordinator: &CoordinatorConfig, name: &str) -> Result<Post, DaemonError> {
    let label = coordinator.url.host_str().unwrap_or_default().to_owned();
    let tls = native_tls().map_err(DaemonError::Tls)?;
    let (url, insecure) = (&coordinator.url, coordinator.insecure);
    let way = match coordinator.kind {
        CoordinatorKind::Socket => Way::Socket {
            dial: Dial::Url {
                url: endpoint(url, insecure)?,
                tls,
            },
            sockets: coordinator.sockets,
        },
        CoordinatorKind::Legacy => Way::Calls {
            base: base(url, insecure)?,
            tls,
            jobs: coordinator.sockets,
        },
    };
    Ok(Post {
        label,
        way,
        key: coordinator.key.expose().to_owned(),
        name: coordinator.name.clone().unwrap_or_else(|| name.to_owned()),
    })
}
