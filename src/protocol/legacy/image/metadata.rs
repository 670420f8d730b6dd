//! Workers' remarks about an image, which clients read unchanged.

use crate::job::Hidden;
use crate::legacy::rules::{text, word};
use crate::legacy::tables::{body, words};

words! {
    /// Subject of a remark.
    pub enum MetadataType {
        Lora = "lora",
        TextualInversion = "ti",
        Censorship = "censorship",
        SourceImage = "source_image",
        SourceMask = "source_mask",
        ExtraSourceImages = "extra_source_images",
        BatchIndex = "batch_index",
        Information = "information",
        AestheticScore = "aesthetic_score",
    }

    /// The remark itself.
    pub enum MetadataValue {
        DownloadFailed = "download_failed",
        ParseFailed = "parse_failed",
        BaselineMismatch = "baseline_mismatch",
        Csam = "csam",
        Nsfw = "nsfw",
        SeeRef = "see_ref",
    }
}

body! {
    pub struct GenerationMetadataImage {
        needs {
            r#type: MetadataType = word(),
            value: MetadataValue = word(),
        }
        may {
            /// Which of them: a LoRA's id, or a place in the batch.
            r#ref: String = text(..=255),
        }
    }
}

/// Censorship of an image is reported in its remarks only.
pub fn hidden(remarks: &[GenerationMetadataImage]) -> Option<Hidden> {
    let mut remarks = remarks.iter();
    let told = remarks.find(|remark| remark.r#type == MetadataType::Censorship)?;
    Some(match told.value {
        MetadataValue::Csam => Hidden::Unlawful,
        _ => Hidden::Censored,
    })
}
