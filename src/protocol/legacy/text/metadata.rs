//! Workers' remarks about a text.

use crate::job::{Hidden, Note, Remark};
use crate::legacy::rules::{text, word};
use crate::legacy::tables::{body, words};
use crate::legacy::words::{Word, named};

words! {
    pub enum MetadataType {
        Censorship = "censorship",
    }

    pub enum MetadataValue {
        Csam = "csam",
    }
}

body! {
    pub struct GenerationMetadataText {
        needs {
            r#type: MetadataType = word(),
            value: MetadataValue = word(),
        }
        may { r#ref: String = text(..=255), }
    }
}

impl GenerationMetadataText {
    /// The worker's remarks about a text, or the default remark of this censorship.
    pub fn about(note: Option<&Note>, hidden: Option<Hidden>) -> Vec<Self> {
        let remarks = note.map_or(&[][..], |note| &note.remarks);
        let told: Vec<_> = remarks.iter().filter_map(Self::read).collect();
        match hidden {
            Some(Hidden::Unlawful) if told.is_empty() => vec![Self {
                r#type: MetadataType::Censorship,
                value: MetadataValue::Csam,
                r#ref: None,
            }],
            _ => told,
        }
    }

    fn read(remark: &Remark) -> Option<Self> {
        Some(Self {
            r#type: named(&remark.r#type)?,
            value: named(&remark.value)?,
            r#ref: remark.r#ref.clone(),
        })
    }
}

impl From<&GenerationMetadataText> for Remark {
    fn from(remark: &GenerationMetadataText) -> Self {
        Self {
            r#type: remark.r#type.word().to_owned(),
            value: remark.value.word().to_owned(),
            r#ref: remark.r#ref.clone(),
        }
    }
}
