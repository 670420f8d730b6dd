//! The configured coordinators, checked: URLs and identities.

use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;
use url::Url;

use super::{DaemonError, OfferTerms, Post, Way};
use crate::link::inquiry::Inquiry;
use crate::link::{Dial, Fingerprint, Permissions, base, endpoint, native_tls, pinned_tls};
use muster_config::{Config, CoordinatorConfig, CoordinatorJobs, CoordinatorKind};

/// A post for each coordinator, in the order of the file.
pub fn posts(config: &Config) -> Result<Vec<Post>, DaemonError> {
    let name = config.worker.name();
    let one = |coordinator| post(coordinator, &name);
    config.coordinators.iter().map(one).collect()
}

fn post(coordinator: &CoordinatorConfig, name: &str) -> Result<Post, DaemonError> {
    let tls = tls(coordinator)?;
    let (url, insecure) = (&coordinator.url, coordinator.insecure);
    let (label, way) = match coordinator.kind {
        CoordinatorKind::Socket => {
            let url = endpoint(url, insecure)?;
            let sockets = coordinator.sockets;
            let label = label(&url);
            let dial = Dial::Url { url, tls };
            (label, Way::Socket { dial, sockets })
        }
        CoordinatorKind::Legacy => {
            let base = base(url, insecure)?;
            let jobs = coordinator.sockets;
            let agent = coordinator.agent.clone();
            let calls = Way::Calls {
                base: base.clone(),
                tls,
                jobs,
                agent,
            };
            (label(&base), calls)
        }
    };
    Ok(Post {
        label,
        way,
        media_hosts: coordinator.media_hosts(),
        terms: OfferTerms {
            models: coordinator.models.clone(),
            permissions: Permissions {
                nsfw: coordinator.takes_nsfw(),
                loras: coordinator.loras,
                hidden_addresses: coordinator.hidden_addresses,
                others: coordinator.jobs == CoordinatorJobs::All,
            },
        },
        key: coordinator.key.expose().to_owned(),
        name: coordinator.name.clone().unwrap_or_else(|| name.to_owned()),
    })
}

/// Settings for checking a coordinator with this worker's name.
pub fn inquiry(coordinator: &CoordinatorConfig, worker: &str) -> Result<Inquiry, DaemonError> {
    Ok(Inquiry {
        url: coordinator.url.clone(),
        insecure: coordinator.insecure,
        tls: tls(coordinator)?,
        is_pinned: coordinator.certificate_sha256.is_some(),
        polls: coordinator.kind == CoordinatorKind::Legacy,
        key: coordinator.key.expose().to_owned(),
        name: coordinator
            .name
            .clone()
            .unwrap_or_else(|| worker.to_owned()),
    })
}

/// The same of all coordinators, with their names in the log; a wrong address has ended the start.
pub fn labelled_inquiries(config: &Config) -> Vec<(String, Inquiry)> {
    let name = config.worker.name();
    let labelled = |coordinator: &CoordinatorConfig| {
        let post = post(coordinator, &name).ok()?;
        Some((post.label, inquiry(coordinator, &name).ok()?))
    };
    config.coordinators.iter().filter_map(labelled).collect()
}

/// Which certificates are accepted there.
pub fn tls(coordinator: &CoordinatorConfig) -> Result<Arc<ClientConfig>, DaemonError> {
    let tls = match coordinator.certificate_sha256 {
        Some(pinned) => pinned_tls(Fingerprint(pinned.0)),
        None => native_tls(),
    };
    tls.map_err(DaemonError::Tls)
}

/// Host and port: one machine may run several.
fn label(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}
