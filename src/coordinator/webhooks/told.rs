//! A result to report. The body is built when the call is made: an image sent inline takes memory only during the call.

use std::sync::Arc;

use serde::Serialize;

use super::Call;
use crate::media::Media;
use crate::requests::results::{self, Shape};
use crate::requests::{Ended, Made, Output, Request};
use muster_protocol::job::Kind;
use muster_protocol::legacy::interrogation::FormState;
use muster_protocol::legacy::webhook::{WebhookAlchemy, WebhookImage, WebhookText};
use muster_protocol::legacy::words::named;

/// An output of a request, and its charge.
#[derive(Debug)]
pub struct Told {
    pub address: Arc<str>,
    pub request: Arc<Request>,
    pub index: usize,
    pub kudos: f64,
}

impl Told {
    /// The call for the result; `None` if there is nothing to report.
    pub async fn call(&self, media: &Media) -> Option<Call> {
        let output = self.request.outputs.get(self.index)?;
        let Some(Ended::Made(made)) = output.ended() else {
            return None;
        };
        let body = match self.request.kind {
            Kind::Text => written(&self.text(output, made)),
            Kind::Image => written(&self.image(output, made, media).await),
            Kind::Form => written(&self.form(output, made, media).await?),
            _ => None,
        };
        Some(Call {
            address: self.address.clone(),
            body: body?.into(),
        })
    }

    fn text(&self, output: &Output, made: &Made) -> WebhookText {
        let text = results::text(output, made);
        WebhookText {
            text: text.text,
            seed: Some(text.seed),
            state: text.state,
            worker_id: text.worker_id,
            worker_name: text.worker_name,
            model: text.model,
            id: output.job,
            gen_metadata: text.gen_metadata,
            request: self.request.id,
            kudos: self.kudos,
        }
    }

    async fn image(&self, output: &Output, made: &Made, media: &Media) -> WebhookImage {
        let shape = match self.request.wishes.links {
            true => Shape::Links,
            false => Shape::Inline,
        };
        let image = results::image(output, made, |_| shape, media).await;
        WebhookImage {
            img: image.img,
            seed: results::drawn_seed(output, made).cast_signed(),
            censored: image.censored,
            worker_id: image.worker_id,
            worker_name: image.worker_name,
            model: image.model,
            id: output.job,
            gen_metadata: image.gen_metadata,
            request: self.request.id,
            kudos: self.kudos,
        }
    }

    async fn form(&self, output: &Output, made: &Made, media: &Media) -> Option<WebhookAlchemy> {
        Some(WebhookAlchemy {
            form: output.form().and_then(named)?,
            state: FormState::Done,
            result: results::found(made, media).await,
            worker_id: made.worker_id,
            worker_name: Some(made.worker.to_string()),
            id: output.job,
            request: self.request.id,
            kudos: self.kudos,
        })
    }
}

fn written(body: &impl Serialize) -> Option<Vec<u8>> {
    serde_json::to_vec(body).ok()
}
