//! The coordinators of the configuration: whether each can be reached, is who it should be, and accepts this worker.

use super::Check;
use crate::config::Config;
use crate::daemon::inquiry;
use crate::link::inquiry::{Finding, Step, Verdict};

/// Everything about every one of them, in the order of the file.
pub async fn checks(config: &Config, is_offline: bool) -> Vec<Check> {
    const NAME: &str = "coordinators";
    if config.coordinators.is_empty() {
        return vec![Check::warn(
            NAME,
            "no coordinator configured, so no jobs will arrive",
            "run `worker join TOKEN` with a token of `worker key join`, or add a [[coordinator]] with url and key",
        )];
    }
    if is_offline {
        return vec![Check::warn(
            NAME,
            "not checked because of --offline",
            "run without --offline",
        )];
    }
    let mut checks = Vec::new();
    for coordinator in &config.coordinators {
        match inquiry(coordinator, &config.worker.name()) {
            Ok(inquiry) => {
                let findings = inquiry.run().await.into_iter();
                checks.extend(findings.map(|finding| check(&coordinator.url, finding)));
            }
            Err(failure) => checks.push(Check::fail(
                NAME,
                failure,
                "install the CA certificates of the system",
            )),
        }
    }
    checks
}

fn check(url: &url::Url, finding: Finding) -> Check {
    let name = match finding.step {
        Step::Name => "coordinator DNS",
        Step::Connection => "coordinator port",
        Step::Encryption => "coordinator TLS",
        Step::Key => "coordinator key",
        Step::Clock => "coordinator time",
        Step::Cluster => "coordinator nodes",
        Step::Jobs => "coordinator jobs",
    };
    let found = format!("{}: {}", url.as_str().trim_end_matches('/'), finding.found);
    let remedy = finding.remedy.unwrap_or_default();
    match finding.verdict {
        Verdict::Good => Check::ok(name, found),
        Verdict::Odd => Check::warn(name, found, remedy),
        Verdict::Bad => Check::fail(name, found, remedy),
    }
}
