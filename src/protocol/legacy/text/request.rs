//! The body of a text request.

use crate::legacy::image::request::ExtraSourceImage;
use crate::legacy::requests::{model_names, targets};
use crate::legacy::rules::{flag, inner, list, text};
use crate::legacy::tables::body;

use super::params::ModelGenerationInputText;

body! {
    /// `POST /v2/generate/text/async`
    pub struct GenerationInputText {
        needs {
            /// An empty one is refused by a code of its own.
            prompt: String = text(..),
        }
        fills {
            params: ModelGenerationInputText = inner() => ModelGenerationInputText::default(),
            trusted_workers: bool = flag() => false,
            validated_backends: bool = flag() => false,
            slow_workers: bool = flag() => true,
            worker_blacklist: bool = flag() => false,
            /// An empty list means any model.
            models: Vec<String> = model_names() => Vec::new(),
            dry_run: bool = flag() => false,
            disable_batching: bool = flag() => false,
            allow_downgrade: bool = flag() => false,
            extra_slow_workers: bool = flag() => false,
        }
        may {
            softprompt: String = text(1..=255),
            workers: Vec<String> = list(text(..=255)),
            proxied_account: String = text(..=255),
            extra_source_images: Vec<ExtraSourceImage> = list(inner()),
            webhook: String = text(..=1024),
            style: String = text(3..=1024),
        }
    }
}

impl GenerationInputText {
    /// The named workers that count.
    pub fn targets(&self) -> &[String] {
        targets(self.workers.as_deref())
    }

    /// How many texts.
    pub fn outputs(&self) -> u32 {
        self.params.n.unwrap_or(1)
    }
}
