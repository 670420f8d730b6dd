//! A question about an image, or work upon it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::request::work_of_text;
use super::{JobRequest, KindFacts, OutputForm};
use crate::job::Limits;

pub(super) const FACTS: KindFacts = KindFacts {
    name: "form",
    word: "interrogation",
    ability: "interrogation",
    job_type: "text",
    task: Some("form"),
    is_relayed: false,
    modality: Some("text"),
    route: None,
    limits: &[],
    rate: None,
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FormRequest {
    /// Name of the form.
    pub form: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Map<String, Value>>,
    /// Key in the media store, or URL; on the link to a worker, a signed link.
    pub image: String,
    pub width: u32,
    pub height: u32,
    /// Slow workers may do it.
    pub slow_workers: bool,
}

impl FormRequest {
    /// Earlier versions left an image at its address.
    fn has_address(&self) -> bool {
        self.image.contains("://")
    }
}

impl JobRequest for FormRequest {
    fn output(&self) -> OutputForm {
        OutputForm::Form
    }

    fn work(&self, limits: &Limits) -> u64 {
        work_of_text(limits)
    }

    fn size(&self) -> u64 {
        1
    }

    fn sources(&self) -> Vec<&str> {
        match self.has_address() {
            true => Vec::new(),
            false => vec![&self.image],
        }
    }

    fn sources_mut(&mut self) -> Vec<&mut String> {
        match self.has_address() {
            true => Vec::new(),
            false => vec![&mut self.image],
        }
    }
}
