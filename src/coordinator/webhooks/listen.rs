//! Waits for the results of one request while there may be any.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use tokio::time::timeout;

use super::Webhooks;
use super::told::Told;
use crate::clock::wall_clock;
use crate::requests::{Ended, Request};
use muster_protocol::job::JobId;

/// Outputs that have ended already: they were reported, or lost with the process that should have.
pub fn known(request: &Request) -> HashSet<JobId> {
    let outputs = request.outputs.iter();
    let ended = outputs.filter(|output| output.ended().is_some());
    ended.map(|output| output.job).collect()
}

pub async fn listen(
    webhooks: Webhooks,
    request: Arc<Request>,
    address: Arc<str>,
    mut told: HashSet<JobId>,
) {
    let mut news = request.news();
    let mut listening = pin!(async {
        while told.len() < request.outputs.len() {
            for (index, output) in request.outputs.iter().enumerate() {
                if output.ended().is_some() && told.insert(output.job) {
                    tell(&webhooks, &request, index, &address).await;
                }
            }
            if told.len() < request.outputs.len() && news.changed().await.is_err() {
                return;
            }
        }
    });
    loop {
        let left = request.expires_at().since(wall_clock());
        if left.is_zero() || timeout(left, &mut listening).await.is_ok() {
            return;
        }
    }
}

async fn tell(webhooks: &Webhooks, request: &Arc<Request>, index: usize, address: &Arc<str>) {
    let output = &request.outputs[index];
    if request.is_given_up() || !matches!(output.ended(), Some(Ended::Made(_))) {
        return;
    }
    let charged = webhooks.store.charged_for(output.job).await;
    let charged = charged.unwrap_or_default().0 as f64 / 1000.0;
    webhooks.tell(Told {
        address: address.clone(),
        request: request.clone(),
        index,
        kudos: charged.round(),
    });
}
