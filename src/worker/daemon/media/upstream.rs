//! Images that another program makes: judged, encoded and uploaded as our own.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;

use super::file::{MediaDesk, bodies, deliver, failed};
use super::image::{decoded, fetch_file};
use crate::daemon::blame;
use crate::daemon::registration::small;
use crate::link::session::Work;
use crate::link::{Reply, Said, Transfers};
use crate::upstream::{ImageSettings, UpstreamModel};
use muster_protocol::job::{Body, Failure, FailureKind, ImageRequest};
use muster_protocol::link::{MediaResult, Payload};

/// Between two questions for the steps of an image.
const STEPS: Duration = Duration::from_secs(1);

/// Executes the job; returns the final report. Dropping the future does not cancel the program's work, which needs
/// [`interrupt`](UpstreamModel::interrupt).
pub async fn draw_upstream(mut work: Work, model: &UpstreamModel, mut desk: MediaDesk<'_>) -> Said {
    let payload = std::mem::replace(&mut work.payload, Payload::Unreadable);
    match draw_all(&work, payload, model, &mut desk).await {
        Ok(results) => Said::Uploaded(results),
        Err(said) => said,
    }
}

async fn draw_all(
    work: &Work,
    payload: Payload,
    model: &UpstreamModel,
    desk: &mut MediaDesk<'_>,
) -> Result<Vec<MediaResult>, Said> {
    let bodies = bodies(work.kind, payload).map_err(Said::Failed)?;
    if bodies.len() != work.upload.len() {
        let (wanted, links) = (bodies.len(), work.upload.len());
        return Err(failed(format!(
            "the job has {wanted} outputs and {links} upload links"
        )));
    }
    let mut results = Vec::new();
    for (index, (body, slot)) in bodies.into_iter().zip(&work.upload).enumerate() {
        let seed = body.seed();
        let Body::Image(request) = body else {
            let message = format!("{} makes images alone", model.name);
            let failure = Failure::new(FailureKind::UnsupportedValue, message);
            return Err(Said::Failed(failure));
        };
        let settings = settings(&request, desk.transfers).await?;
        let drawn = tokio::select! {
            drawn = model.draw(&settings) => drawn,
            never = tell_steps(model, desk.reply) => match never {},
        };
        let file = drawn.map_err(|error| blame::said_of_program(model, &error))?;
        let pixels = decoded(file).await?;
        let pixels = pixels.map_err(|error| {
            failed(format!(
                "the program that serves the model made no image: {error}"
            ))
        })?;
        let result = deliver(pixels, None, (work, slot), desk).await?;
        results.push(MediaResult {
            index: small(index),
            seed,
            ..result
        });
    }
    Ok(results)
}

async fn settings<'a>(
    request: &'a ImageRequest,
    transfers: &Transfers,
) -> Result<ImageSettings<'a>, Said> {
    let mut settings = ImageSettings {
        request,
        source: None,
        mask: None,
    };
    if let Some(source) = &request.source {
        settings.source = Some(fetch_file("source image", &source.image, transfers).await?);
        if let Some(mask) = &source.mask {
            settings.mask = Some(fetch_file("mask", mask, transfers).await?);
        }
    }
    Ok(settings)
}

/// Tells the steps of an image until it is dropped.
async fn tell_steps(model: &UpstreamModel, reply: &mut Reply) -> Infallible {
    let mut told = None;
    loop {
        sleep(STEPS).await;
        let steps = model.progress().await;
        if let Some((at, of)) = steps.filter(|steps| told != Some(*steps)) {
            told = steps;
            let preview = None;
            reply.say(Said::Progress { at, of, preview }).await;
        }
    }
}
