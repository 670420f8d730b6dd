//! A question about an image, or work upon it.

use serde_json::{Map, Value};

use super::request::work_of_text;
use super::{JobRequest, KindFacts, OutputForm};
use crate::job::Limits;

pub(super) const FACTS: KindFacts = KindFacts {
    name: "form",
    word: "interrogation",
    ability: "interrogation",
    job_type: "text",
    task: None,
    is_relayed: false,
    modality: Some("text"),
    route: None,
};

#[derive(Debug, Clone, PartialEq)]
pub struct FormRequest {
    /// What is to be done.
    pub form: String,
    pub payload: Option<Map<String, Value>>,
    /// Its key in the media store, or its address.
    pub image: String,
    pub width: u32,
    pub height: u32,
    /// Slow workers may do it.
    pub slow_workers: bool,
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
}
