//! The client's view of a text request.

use uuid::Uuid;

use crate::legacy::requests::RequestStatusCheck;
use crate::legacy::tables::reply;
use crate::legacy::words::ResultState;

use super::metadata::GenerationMetadataText;

reply! {
    /// `GET` and `DELETE /v2/generate/text/status/{id}`
    pub struct RequestStatusText {
        always {
            generations: Vec<GenerationText>,
            #[serde(flatten)]
            progress: RequestStatusCheck,
        }
    }

    /// A finished text. Unlike an image it does not name its job.
    pub struct GenerationText {
        always {
            text: String,
            seed: i64,
            gen_metadata: Vec<GenerationMetadataText>,
            worker_id: Uuid,
            worker_name: String,
            model: String,
            state: ResultState,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{GenerationText, RequestStatusText};
    use crate::legacy::requests::RequestStatusCheck;
    use crate::legacy::schemas::assert_fits;
    use crate::legacy::text::metadata::{GenerationMetadataText, MetadataType, MetadataValue};
    use crate::legacy::words::ResultState;

    #[test]
    fn a_status_is_what_the_contract_says() {
        let remark = GenerationMetadataText {
            r#type: MetadataType::Censorship,
            value: MetadataValue::Csam,
            r#ref: None,
        };
        let generation = GenerationText {
            text: "once upon a time".to_owned(),
            seed: 0,
            gen_metadata: vec![remark],
            worker_id: Uuid::nil(),
            worker_name: "w".to_owned(),
            model: "m".to_owned(),
            state: ResultState::Censored,
        };
        let mut status = RequestStatusText {
            generations: Vec::new(),
            progress: RequestStatusCheck::default(),
        };
        assert_fits("RequestStatusText", &status);
        status.generations.push(generation);
        assert_fits("RequestStatusText", &status);
    }
}
