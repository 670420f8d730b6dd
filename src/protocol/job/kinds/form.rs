//! A question about an image, or work upon it.

use serde_json::{Map, Value};

use super::{JobRequest, OutputForm};

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

    fn size(&self) -> u64 {
        1
    }
}
