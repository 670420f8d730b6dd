//! What a worker remarks about a text it made.

use crate::protocol::job::Hidden;
use crate::protocol::legacy::rules::{text, word};
use crate::protocol::legacy::tables::{body, words};

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
    /// What there is to remark about a text that is hidden for this reason.
    pub fn about(hidden: Option<Hidden>) -> Vec<Self> {
        let remark = Self {
            r#type: MetadataType::Censorship,
            value: MetadataValue::Csam,
            r#ref: None,
        };
        match hidden {
            Some(Hidden::Unlawful) => vec![remark],
            Some(Hidden::Censored) | None => Vec::new(),
        }
    }
}
