//! Waits for the results of one request, for as long as there may be any.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use tokio::time::timeout;

use super::Webhooks;
use crate::coordinator::clock::wall_clock;
use crate::coordinator::requests::{Ended, Made, Output, Request};
use crate::protocol::job::{JobId, Kind, Kudos};
use crate::protocol::legacy::text::format;
use crate::protocol::legacy::webhook::WebhookText;
use crate::protocol::legacy::words::ResultState;

/// What has come before is not told of: it was, or it went with the process that should have.
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
            for output in &request.outputs {
                if output.ended().is_some() && told.insert(output.job) {
                    tell(&webhooks, &request, output, &address).await;
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

async fn tell(webhooks: &Webhooks, request: &Request, output: &Output, address: &Arc<str>) {
    let Some(Ended::Made(made)) = output.ended() else {
        return;
    };
    if request.is_cancelled() || request.kind != Kind::Text {
        return;
    }
    let charged = webhooks.store.charged_for(output.job).await;
    let body = text(request, output, made, charged.unwrap_or_default());
    webhooks.tell(address, &body);
}

fn text(request: &Request, output: &Output, made: &Made, charged: Kudos) -> WebhookText {
    let wanted = output.legacy().cloned().unwrap_or_default();
    WebhookText {
        text: format::output(made.product.text(), &wanted),
        seed: output.seed.map(u64::cast_signed),
        state: ResultState::of(made.hidden),
        worker_id: made.worker_id,
        worker_name: made.worker.to_string(),
        model: made.model.to_string(),
        id: output.job,
        gen_metadata: Vec::new(),
        request: request.id,
        kudos: (charged.0 as f64 / 1000.0).round(),
    }
}
