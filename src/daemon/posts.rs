//! The configured coordinators, checked: whom to dial, as whom.

use super::{DaemonError, Post};
use crate::config::{Config, CoordinatorConfig, CoordinatorKind};
use crate::link::{Dial, endpoint, native_tls};

/// One post for each coordinator, in the order of the file.
pub fn posts(config: &Config) -> Result<Vec<Post>, DaemonError> {
    let name = config.worker.name();
    let one = |coordinator| post(coordinator, &name);
    config.coordinators.iter().map(one).collect()
}

fn post(coordinator: &CoordinatorConfig, name: &str) -> Result<Post, DaemonError> {
    let label = coordinator.url.host_str().unwrap_or_default().to_owned();
    if coordinator.kind == CoordinatorKind::Legacy {
        return Err(DaemonError::Legacy { host: label });
    }
    let Some(key) = &coordinator.key else {
        return Err(DaemonError::NoKey { host: label });
    };
    let url = endpoint(&coordinator.url, coordinator.insecure)?;
    let tls = native_tls().map_err(DaemonError::Tls)?;
    Ok(Post {
        label,
        dial: Dial::Url { url, tls },
        key: key.expose().to_owned(),
        name: coordinator.name.clone().unwrap_or_else(|| name.to_owned()),
        sockets: coordinator.sockets,
    })
}
