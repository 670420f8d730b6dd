//! The body of a webhook call with a result. Like a status, except for a numeric seed and the two ids.

use serde_json::Value;
use uuid::Uuid;

use crate::job::{JobId, RequestId};

use super::error::{Code, Refusal};
use super::image::metadata::GenerationMetadataImage;
use super::interrogation::{Form, FormState};
use super::tables::reply;
use super::text::metadata::GenerationMetadataText;
use super::words::ResultState;

/// Addresses start with this, and with nothing else.
const SCHEME: &str = "https://";

/// Checks the URL of a webhook or a style's example; DNS is checked when it is called.
pub fn check_address(name: &str, address: &str) -> Result<(), Refusal> {
    match address.starts_with(SCHEME) {
        true => Ok(()),
        false => Err(Refusal::new(
            Code::BadRequest,
            format!("{name} must start with {SCHEME}"),
        )),
    }
}

reply! {
    pub struct WebhookImage {
        always {
            img: String,
            seed: i64,
            censored: bool,
            worker_id: Uuid,
            worker_name: String,
            model: String,
            id: JobId,
            gen_metadata: Vec<GenerationMetadataImage>,
            request: RequestId,
            kudos: f64,
        }
    }

    pub struct WebhookText {
        always {
            text: String,
            seed: Option<i64>,
            state: ResultState,
            worker_id: Uuid,
            worker_name: String,
            model: String,
            id: JobId,
            gen_metadata: Vec<GenerationMetadataText>,
            request: RequestId,
            kudos: f64,
        }
    }

    pub struct WebhookAlchemy {
        always {
            form: Form,
            state: FormState,
            result: Option<Value>,
            worker_id: Uuid,
            worker_name: Option<String>,
            id: JobId,
            request: RequestId,
            kudos: f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::{WebhookAlchemy, WebhookImage, WebhookText, check_address};
    use crate::job::{JobId, RequestId};
    use crate::legacy::interrogation::{Form, FormState};
    use crate::legacy::schemas::assert_fits;
    use crate::legacy::words::ResultState;

    #[test]
    fn an_address_is_https() {
        assert!(check_address("webhook", "https://example.org/hook").is_ok());
        for wrong in [
            "http://example.org",
            "HTTPS://example.org",
            "",
            "file:///etc/passwd",
        ] {
            assert!(check_address("webhook", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_result_is_told_as_the_contract_says() {
        let (id, request) = (JobId::random(), RequestId::random());
        let image = WebhookImage {
            img: "https://example.org/cat.webp".to_owned(),
            seed: 77,
            censored: false,
            worker_id: Uuid::nil(),
            worker_name: "w".to_owned(),
            model: "m".to_owned(),
            id,
            gen_metadata: Vec::new(),
            request,
            kudos: 10.0,
        };
        assert_fits("WebhookImage", &image);
        let text = WebhookText {
            text: "once".to_owned(),
            seed: None,
            state: ResultState::Ok,
            worker_id: Uuid::nil(),
            worker_name: "w".to_owned(),
            model: "m".to_owned(),
            id,
            gen_metadata: Vec::new(),
            request,
            kudos: 10.0,
        };
        assert_fits("WebhookText", &text);
        let form = WebhookAlchemy {
            form: Form::Caption,
            state: FormState::Done,
            result: Some(json!({"caption": "a cat"})),
            worker_id: Uuid::nil(),
            worker_name: None,
            id,
            request,
            kudos: 2.0,
        };
        assert_fits("WebhookAlchemy", &form);
    }
}
