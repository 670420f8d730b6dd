//! The body of an image request.

use crate::legacy::requests::{model_names, targets};
use crate::legacy::rules::{flag, inner, list, number, text, word};
use crate::legacy::tables::body;
use crate::legacy::words::SourceProcessing;

use super::params::ModelGenerationInputImage;

body! {
    /// `POST /v2/generate/async`
    pub struct GenerationInputImage {
        needs {
            /// The part after the first `###` is the negative prompt.
            prompt: String = text(1..),
        }
        fills {
            params: ModelGenerationInputImage = inner() => ModelGenerationInputImage::default(),
            nsfw: bool = flag() => true,
            trusted_workers: bool = flag() => false,
            validated_backends: bool = flag() => false,
            slow_workers: bool = flag() => true,
            extra_slow_workers: bool = flag() => false,
            censor_nsfw: bool = flag() => true,
            worker_blacklist: bool = flag() => false,
            /// An empty list means any model.
            models: Vec<String> = model_names() => vec!["stable_diffusion".to_owned()],
            source_processing: SourceProcessing = word() => SourceProcessing::Img2Img,
            r2: bool = flag() => true,
            shared: bool = flag() => false,
            replacement_filter: bool = flag() => true,
            dry_run: bool = flag() => false,
            disable_batching: bool = flag() => false,
            allow_downgrade: bool = flag() => false,
        }
        may {
            workers: Vec<String> = list(text(..=255)),
            source_image: String = text(..),
            source_mask: String = text(..),
            extra_source_images: Vec<ExtraSourceImage> = list(inner()),
            proxied_account: String = text(..=255),
            webhook: String = text(10..=1024),
            style: String = text(3..=1024),
        }
    }
}

body! {
    /// A further image to work from: base64 or a URL from clients, a URL towards workers.
    pub struct ExtraSourceImage {
        fills { strength: f64 = number(..) => 1.0, }
        may { image: String = text(1..), }
    }
}

impl GenerationInputImage {
    /// The named workers that count.
    pub fn targets(&self) -> &[String] {
        targets(self.workers.as_deref())
    }

    pub fn extra_source_images(&self) -> &[ExtraSourceImage] {
        self.extra_source_images.as_deref().unwrap_or_default()
    }
}
