//! What a worker remarks about a text it made.

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
