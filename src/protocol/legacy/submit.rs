//! Workers' submits and progress reports.

use super::image::metadata::GenerationMetadataImage;
use super::rules::{flag, inner, list, text, whole, word};
use super::tables::{body, reply};
use super::text::metadata::GenerationMetadataText;
use super::words::SubmitState;

/// Remarks one result may come with.
pub const MOST_REMARKS: usize = 50;
/// Value in place of an uploaded image.
pub const UPLOADED: &str = "R2";

body! {
    /// `POST /v2/generate/submit`
    pub struct SubmitInputImage {
        needs {
            seed: i64 = whole(..),
            id: String = text(..=255),
            /// [`UPLOADED`], or base64.
            generation: String = text(..),
        }
        fills {
            /// From older workers; `gen_metadata` replaces it.
            censored: bool = flag() => false,
            state: SubmitState = word() => SubmitState::Ok,
        }
        may { gen_metadata: Vec<GenerationMetadataImage> = list(inner()), }
    }
}

body! {
    /// `POST /v2/generate/text/submit`
    pub struct SubmitInputText {
        needs {
            id: String = text(..=255),
            generation: String = text(..),
        }
        fills {
            state: SubmitState = word() => SubmitState::Ok,
        }
        may {
            seed: i64 = whole(..),
            gen_metadata: Vec<GenerationMetadataText> = list(inner()),
        }
    }
}

body! {
    /// `POST /v2/generate/progress`
    pub struct ProgressInput {
        needs {
            id: String = text(..=255),
            current_step: i64 = whole(..),
            total_steps: i64 = whole(..),
        }
    }
}

reply! {
    /// The reply to a submit or a rating.
    pub struct GenerationSubmitted {
        always { reward: f64, }
    }
}

#[cfg(test)]
mod tests {
    use super::{GenerationSubmitted, ProgressInput, SubmitInputImage, SubmitInputText};
    use crate::legacy::image::metadata::GenerationMetadataImage;
    use crate::legacy::schemas::{assert_fits, assert_reads};
    use crate::legacy::text::metadata::GenerationMetadataText;

    #[test]
    fn results_are_read_as_the_contract_says() {
        assert_reads::<SubmitInputImage>("SubmitInputImage");
        assert_reads::<SubmitInputText>("SubmitInputText");
        assert_reads::<ProgressInput>("ProgressInput");
        assert_reads::<GenerationMetadataImage>("GenerationMetadataImage");
        assert_reads::<GenerationMetadataText>("GenerationMetadataText");
        assert_fits("GenerationSubmitted", &GenerationSubmitted { reward: 10.0 });
    }
}
