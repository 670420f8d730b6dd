//! Metrics in Prometheus' text format: the public network's names, and own names for the rest.

use std::fmt::Write;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use crate::condition::{Condition, Phase};
use crate::media::Media;
use crate::storage::Store;
use crate::switchboard::{BUCKETS, Figures, Histogram, Switchboard};

use super::nodes::NodeFigures;

pub async fn show(
    State(board): State<Switchboard>,
    (State(store), State(media)): (State<Store>, State<Media>),
    State(condition): State<Condition>,
    node: Option<Extension<NodeFigures>>,
) -> impl IntoResponse {
    let mut page = page(&board.figures(), board.overview().models.len());
    put_condition(
        &mut page,
        &condition,
        store.is_reachable(),
        media.problem().is_none(),
    );
    if let Some(Extension(node)) = node {
        put_node(&mut page, &node);
    }
    ([(CONTENT_TYPE, TEXT)], page)
}

pub const TEXT: &str = "text/plain; version=0.0.4";

/// Metrics of a follower; the leader's metrics have the rest.
#[rustfmt::skip]
pub fn of_follower(node: &NodeFigures, is_ready: bool) -> String {
    let mut page = String::new();
    put(&mut page, "gauge", ("muster_ready", READY, is_ready.into()));
    put_node(&mut page, node);
    page
}

#[rustfmt::skip]
fn put_node(page: &mut String, node: &NodeFigures) {
    put(page, "gauge", ("muster_cluster_leader", "Role in the cluster: 1 for the coordinator that leads.", node.is_leader.into()));
    put(page, "gauge", ("muster_cluster_epoch", "Number of the election that the leader won; 0 without a leader.", node.epoch.try_into().unwrap_or(0)));
    if let Some(age) = node.lease_age {
        put_seconds(page, ("muster_cluster_lease_age_seconds", "Time since the leader renewed its lease, as this node knows.", age));
    }
    if let Some(nodes) = node.nodes {
        put(page, "gauge", ("muster_cluster_nodes", "Nodes that the leader hears of, itself included.", nodes.heard));
        put(page, "gauge", ("muster_cluster_nodes_cut_off", "Nodes that the leader has not heard of for 3 s.", nodes.cut_off));
    }
    if let Some(round_trip) = node.round_trip {
        put_seconds(page, ("muster_cluster_round_trip_seconds", "Duration of the last probe of the leader.", round_trip));
    }
    put(page, "counter", ("muster_cluster_requests_total", "Requests of clients that came to this node.", node.received));
    put(page, "counter", ("muster_cluster_forwarded_total", "Requests passed on to the leader and answered.", node.forwarded));
    put(page, "counter", ("muster_cluster_forward_failures_total", "Attempts to pass a request on that failed.", node.failed));
    put(page, "counter", ("muster_cluster_continued_streams_total", "Streamed texts that went on at another leader.", node.continued));
    put(page, "counter", ("muster_cluster_forged_total", "Requests refused because their header of a coordinator is not signed.", node.forged));
}

const READY: &str = "Readiness: 1 if /health/ready returns 200.";

/// Name, description and value of a metric.
type Line = (&'static str, &'static str, u64);

#[rustfmt::skip]
fn page(figures: &Figures, models: usize) -> String {
    let mut page = String::new();
    let counters: [Line; 15] = [
        ("grid_requests_total", "Jobs requested: accepted and rejected.", figures.accepted + figures.refused),
        ("grid_tokens_generated_total", "Tokens sent to clients.", figures.tokens),
        ("grid_jobs_completed_total", "Jobs delivered.", figures.delivered),
        ("grid_jobs_failed_total", "Jobs failed or expired.", figures.failed + figures.expired),
        ("muster_jobs_accepted_total", "Jobs accepted into the queue.", figures.accepted),
        ("muster_jobs_refused_total", "Jobs rejected on arrival.", figures.refused),
        ("muster_jobs_cancelled_total", "Jobs cancelled by the client.", figures.cancelled),
        ("muster_jobs_expired_total", "Jobs expired.", figures.expired),
        ("muster_slow_clients_total", "Jobs cancelled because the client read too slowly.", figures.slow_clients),
        ("muster_events_relayed_total", "Events sent to clients.", figures.events),
        ("muster_settlement_failures_total", "Settlement failures that were retried.", figures.settlement_failures),
        ("muster_worker_evictions_total", "Workers suspended after repeated failures.", figures.evictions),
        ("muster_worker_silences_total", "Worker connections closed: heartbeat missed.", figures.silences),
        ("muster_jobs_delivered_total", "Jobs delivered.", figures.delivered),
        ("muster_jobs_failed_total", "Jobs failed.", figures.failed),
    ];
    for line in counters {
        put(&mut page, "counter", line);
    }
    let gauges: [Line; 5] = [
        ("grid_workers_connected", "Workers connected.", figures.workers),
        ("grid_queue_depth", "Jobs waiting for a worker.", figures.queued),
        ("grid_models_available", "Models served by an online worker.", models as u64),
        ("muster_jobs_running", "Jobs running on a worker.", figures.running),
        ("muster_worker_sessions", "Open worker connections.", figures.sessions),
    ];
    for line in gauges {
        put(&mut page, "gauge", line);
    }
    put_times(&mut page, "grid_generation_duration_seconds", "Job duration from acceptance to the end.", &figures.total);
    put_times(&mut page, "muster_first_output_seconds", "Time from job acceptance to the first output.", &figures.first_output);
    put_times(&mut page, "muster_settlement_seconds", "Settlement duration.", &figures.settlement);
    page
}

/// Metrics for an operator's alerts.
#[rustfmt::skip]
fn put_condition(page: &mut String, condition: &Condition, store: bool, media: bool) {
    let is_ready = condition.phase() == Phase::Serving && store && media;
    put(page, "gauge", ("muster_ready", READY, is_ready.into()));
    put(page, "gauge", ("muster_store_available", "Database availability: 1 if readable and writable.", store.into()));
    put(page, "gauge", ("muster_media_available", "Media folder availability: 1 if present.", media.into()));
    if let Some(expiry) = condition.certificate_expiry() {
        let seconds = u64::try_from(expiry.0 / 1000).unwrap_or(0);
        put(page, "gauge", ("muster_tls_certificate_expiry_timestamp_seconds", "Expiry time of the TLS certificate.", seconds));
    }
}

fn put_seconds(page: &mut String, (name, about, value): (&str, &str, Duration)) {
    let value = value.as_secs_f64();
    let _ = write!(
        page,
        "# HELP {name} {about}\n# TYPE {name} gauge\n{name} {value:.6}\n"
    );
}

fn put(page: &mut String, kind: &str, (name, about, value): Line) {
    let _ = write!(
        page,
        "# HELP {name} {about}\n# TYPE {name} {kind}\n{name} {value}\n"
    );
}

fn put_times(page: &mut String, name: &str, about: &str, times: &Histogram) {
    let _ = write!(page, "# HELP {name} {about}\n# TYPE {name} histogram\n");
    let mut so_far = 0;
    for (bound, count) in BUCKETS.iter().zip(times.counts) {
        so_far += count;
        let bound = Duration::from_millis(*bound).as_secs_f64();
        let _ = writeln!(page, "{name}_bucket{{le=\"{bound}\"}} {so_far}");
    }
    let all: u64 = times.counts.iter().sum();
    let _ = writeln!(page, "{name}_bucket{{le=\"+Inf\"}} {all}");
    let sum = times.sum.as_secs_f64();
    let _ = writeln!(page, "{name}_sum {sum}\n{name}_count {all}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{page, put_condition};
    use crate::condition::{Condition, Phase};
    use crate::switchboard::Figures;
    use muster_protocol::job::UnixMillis;

    #[test]
    fn a_coordinator_that_is_not_ready_says_so_and_when_its_certificate_expires() {
        let condition = Condition::default();
        let says = |store, line: &str| {
            let mut page = String::new();
            put_condition(&mut page, &condition, store, true);
            page.lines().any(|found| found == line)
        };
        assert!(says(true, "muster_ready 1"));
        assert!(says(false, "muster_ready 0") && says(false, "muster_store_available 0"));
        condition.note_certificate_expiry(UnixMillis(1_800_000_000_000));
        let expiry = "muster_tls_certificate_expiry_timestamp_seconds 1800000000";
        assert!(says(true, expiry));
        condition.enter(Phase::Draining);
        condition.enter(Phase::Serving);
        assert!(says(true, "muster_ready 0"), "draining is the last phase");
    }

    #[test]
    fn buckets_add_up_as_prometheus_wants_them() {
        let mut figures = Figures {
            delivered: 3,
            ..Figures::default()
        };
        figures.total.counts[0] = 2;
        figures.total.counts[14] = 1;
        figures.total.sum = Duration::from_millis(1500);
        let page = page(&figures, 4);
        for line in [
            "grid_jobs_completed_total 3",
            "grid_models_available 4",
            "grid_generation_duration_seconds_bucket{le=\"0.001\"} 2",
            "grid_generation_duration_seconds_bucket{le=\"300\"} 2",
            "grid_generation_duration_seconds_bucket{le=\"+Inf\"} 3",
            "grid_generation_duration_seconds_sum 1.5",
            "grid_generation_duration_seconds_count 3",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
