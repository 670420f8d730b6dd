//! Waits for the results of one request, for as long as there may be any.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use tokio::time::timeout;

use super::Webhooks;
use crate::coordinator::clock::wall_clock;
use crate::coordinator::media::Media;
use crate::coordinator::requests::results::{self, Shape};
use crate::coordinator::requests::{Ended, Made, Output, Request};
use crate::protocol::job::{JobId, Kind};
use crate::protocol::legacy::interrogation::FormState;
use crate::protocol::legacy::webhook::{WebhookAlchemy, WebhookImage, WebhookText};
use crate::protocol::legacy::words::named;

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
    if request.is_given_up() {
        return;
    }
    let charged = webhooks.store.charged_for(output.job).await;
    let charged = charged.unwrap_or_default().0 as f64 / 1000.0;
    let told = Told {
        request,
        output,
        made,
        kudos: charged.round(),
    };
    match request.kind {
        Kind::Text => webhooks.tell(address, &told.text()),
        Kind::Image => webhooks.tell(address, &told.image(&webhooks.media).await),
        Kind::Interrogation => match told.form(&webhooks.media).await {
            Some(form) => webhooks.tell(address, &form),
            None => false,
        },
        _ => false,
    };
}

/// A result, and what it has cost.
struct Told<'a> {
    request: &'a Request,
    output: &'a Output,
    made: &'a Made,
    kudos: f64,
}

impl Told<'_> {
    fn text(&self) -> WebhookText {
        let text = results::text(self.output, self.made);
        WebhookText {
            text: text.text,
            seed: Some(text.seed),
            state: text.state,
            worker_id: text.worker_id,
            worker_name: text.worker_name,
            model: text.model,
            id: self.output.job,
            gen_metadata: text.gen_metadata,
            request: self.request.id,
            kudos: self.kudos,
        }
    }

    async fn image(&self, media: &Media) -> WebhookImage {
        let shape = match self.request.wishes.links {
            true => Shape::Links,
            false => Shape::Inline,
        };
        let image = results::image(self.output, self.made, shape, media).await;
        WebhookImage {
            img: image.img,
            seed: results::drawn_seed(self.output, self.made).cast_signed(),
            censored: image.censored,
            worker_id: image.worker_id,
            worker_name: image.worker_name,
            model: image.model,
            id: self.output.job,
            gen_metadata: image.gen_metadata,
            request: self.request.id,
            kudos: self.kudos,
        }
    }

    async fn form(&self, media: &Media) -> Option<WebhookAlchemy> {
        Some(WebhookAlchemy {
            form: self.output.form().and_then(named)?,
            state: FormState::Done,
            result: results::found(self.made, media).await,
            worker_id: self.made.worker_id,
            worker_name: Some(self.made.worker.to_string()),
            id: self.output.job,
            request: self.request.id,
            kudos: self.kudos,
        })
    }
}
