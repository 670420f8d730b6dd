//! A request that was read to jobs for the queue: one for each image, with a seed of its own.

use std::hash::BuildHasher;
use std::sync::Arc;

use crate::clock::wall_clock;
use crate::state::DoorSettings;
use muster_protocol::job::{
    AccountId, Body, Formats, ImageRequest, Job, JobId, Kind, Limits, ModelChoice, Privacy,
    RequestId,
};
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::openai::Problem;
use muster_protocol::openai::images::ImagesRequest;

/// The facts of a request that its body does not say.
pub struct ImageOrder<'a> {
    pub request: RequestId,
    pub account: AccountId,
    pub privacy: Privacy,
    pub settings: &'a DoorSettings,
}

impl ImageOrder<'_> {
    /// Settings that the client left unset stay so: the worker knows what suits the model.
    pub fn jobs(
        &self,
        request: &ImagesRequest,
        model: &Arc<str>,
    ) -> Result<Vec<Arc<Job>>, Problem> {
        let polled = GenerationInputImage::of_neutral(&request.image, model);
        let limits = Limits {
            formats: formats(request, polled.formats())?,
            restartable: true,
            ..polled.limits()
        };
        let limits = match request.image.seed {
            // Workers draw the images of a batch from seeds of their own.
            Some(_) => Limits {
                bulk: u64::MAX,
                ..limits
            },
            None => limits,
        };
        let now = wall_clock();
        let job = |index| {
            let image = ImageRequest {
                seed: Some(self.seed(request, index)),
                previews: request.previews,
                ..request.image.clone()
            };
            Arc::new(Job {
                id: JobId::random(),
                request: self.request,
                account: self.account,
                shared_key: None,
                kind: Kind::Image,
                model: ModelChoice(vec![model.clone()]),
                limits,
                body: Body::Image(Box::new(image)),
                privacy: self.privacy,
                deadline: now.after(self.settings.lifetime),
                durable: false,
                prefixes: Vec::new(),
                original: None,
                price: None,
            })
        };
        Ok((0..request.count).map(job).collect())
    }

    /// Below 2^32, where the client named none: every worker takes such a seed.
    fn seed(&self, request: &ImagesRequest, index: u32) -> u64 {
        let drawn = || self.settings.prefixes.hash_one((self.request, index));
        request
            .seed_of(index)
            .unwrap_or_else(|| drawn() & u64::from(u32::MAX))
    }
}

/// The formats of the workers that can honour every field.
fn formats(request: &ImagesRequest, all: Formats) -> Result<Formats, Problem> {
    let (polled, never) = (request.only_polled.first(), request.never_polled.first());
    let without = |left: &[Formats]| {
        let kept = [Formats::NEUTRAL, Formats::LEGACY, Formats::OPENAI_CHAT].into_iter();
        let kept = kept.filter(|one| all.meets(*one) && !left.contains(one));
        kept.fold(Formats::default(), Formats::with)
    };
    let formats = match (polled, never) {
        (None, None) => all,
        (Some(_), None) => without(&[Formats::OPENAI_CHAT]),
        (None, Some(_)) => without(&[Formats::LEGACY]),
        (Some(_), Some(_)) => without(&[Formats::LEGACY, Formats::OPENAI_CHAT]),
    };
    match (polled, never) {
        (Some(polled), Some(never)) if formats == Formats::default() => {
            let message = format!("{never} has a value that no worker with {polled} supports");
            Err(Problem::unsupported(*never, message))
        }
        _ => Ok(formats),
    }
}
