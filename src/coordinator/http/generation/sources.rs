//! Source images of a request, stored until its jobs have ended.

use super::endpoint::MediaEndpoint;
use crate::error::ApiError;
use crate::media::{Area, Holding, Key, MediaType};
use crate::pictures::{Role, Source, SourceError};
use crate::sender::Sender;
use muster_protocol::job::{FailureKind, RequestId, SourceImage};
use muster_protocol::openai::Problem;
use muster_protocol::openai::images::inputs::{ImageInput, ImageInputs};
use tracing::warn;

/// The weight of each further image; clients have no field for it.
const WEIGHT: f64 = 1.0;

/// The images of a request.
pub struct TakenSources {
    pub source: SourceImage,
    pub holding: Holding,
}

impl MediaEndpoint {
    /// Loads the images within limits. Empty without images.
    pub async fn take_sources(
        &self,
        inputs: ImageInputs,
    ) -> Result<Option<TakenSources>, ApiError> {
        let ImageInputs { images, mask } = inputs;
        let mut taking = Taking {
            endpoint: self,
            request: RequestId::random(),
            holding: self.sources().holding(),
            count: 0,
        };
        let mut taken = Vec::new();
        for image in images {
            taken.push(taking.take("image", image, Role::Edited).await?);
        }
        let mut taken = taken.into_iter();
        let Some(first) = taken.next() else {
            return Ok(None);
        };
        let mask = match mask {
            Some(mask) => {
                let mask = taking.take("mask", mask, Role::Mask).await?;
                check_mask(mask, first)?;
                Some(mask.key.to_string())
            }
            None => None,
        };
        Ok(Some(TakenSources {
            source: SourceImage {
                image: first.key.to_string(),
                mask,
                extra: taken.map(|more| (more.key.to_string(), WEIGHT)).collect(),
                size: Some((first.width, first.height)),
            },
            holding: taking.holding,
        }))
    }
}

/// The images of one request, one after the other.
struct Taking<'a> {
    endpoint: &'a MediaEndpoint,
    request: RequestId,
    holding: Holding,
    count: u32,
}

impl Taking<'_> {
    async fn take(
        &mut self,
        field: &'static str,
        input: ImageInput,
        role: Role,
    ) -> Result<Source, ApiError> {
        let key = Key::new(Area::Sources, self.request.0, self.count, MediaType::Webp);
        self.count += 1;
        let caller = self.endpoint.asker();
        let sender = Sender::of(caller.account, caller.address);
        let sources = self.endpoint.sources();
        let place = (key, &mut self.holding);
        let taken = match input {
            ImageInput::File(bytes) => sources.take_in_bytes(sender, bytes, role, place).await,
            ImageInput::Text(text) => sources.take_in(sender, &text, role, place).await,
        };
        taken.map_err(|error| refused_source(field, &error))
    }
}

fn check_mask(mask: Source, image: Source) -> Result<(), Problem> {
    if (mask.width, mask.height) == (image.width, image.height) {
        return Ok(());
    }
    let message = format!(
        "mask must have the size of image, {}x{}, found {}x{}",
        image.width, image.height, mask.width, mask.height
    );
    Err(Problem::invalid("mask", message))
}

pub fn refused_source(field: &str, error: &SourceError) -> ApiError {
    if let SourceError::Store(error) = error {
        warn!("storing a source image failed: {error}");
        let message = "storing the image failed; retry later";
        return ApiError::new(FailureKind::StoreUnavailable, message);
    }
    if let SourceError::Quota(error) = error {
        return ApiError::new(FailureKind::InFlightLimit, error.to_string());
    }
    Problem::invalid(field.to_owned(), format!("{field}: {error}")).into()
}
