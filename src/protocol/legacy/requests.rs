//! Common parts of image and text requests: the reply, and the progress.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::job::{NEGATIVE, RequestId};

use super::image::request::GenerationInputImage;
use super::rules::{List, Text, list, text};
use super::tables::{reply, words};
use super::text::request::GenerationInputText;

/// Named workers that count; further ones are ignored.
const MOST_TARGETS: usize = 5;
/// Models that one request may name. Each is looked up, counted and held against the workers that are here.
const MOST_MODELS: usize = 100;

reply! {
    /// 202 of an async request; of a dry run 200, with `kudos` and, if a style is named, the resulting request.
    pub struct RequestAsync {
        always { kudos: f64, }
        known {
            id: RequestId,
            /// A notice, such as that no worker can serve it now.
            message: String,
            warnings: Vec<RequestSingleWarning>,
            resolved: ResolvedRequest,
        }
    }

    /// The request after its style is applied.
    pub struct ResolvedRequest {
        always {
            /// In the form for workers.
            prompt: String,
            params: Value,
            models: Vec<String>,
            style: ResolvedRequestStyle,
        }
        known {
            /// The negative prompt, as a part of `prompt`.
            negative_prompt: String,
        }
    }

    pub struct ResolvedRequestStyle {
        always {
            id: Uuid,
            name: String,
        }
    }

    pub struct RequestSingleWarning {
        always {
            code: Warning,
            message: String,
        }
    }

    /// `GET /v2/generate/check/{id}`, and a part of every status.
    #[derive(Default)]
    pub struct RequestStatusCheck {
        always {
            finished: u32,
            processing: u32,
            /// Jobs that timed out or failed, and were queued again.
            restarted: u32,
            waiting: u32,
            done: bool,
            faulted: bool,
            /// Seconds.
            wait_time: u64,
            /// 1 is next, 0 is not in the queue.
            queue_position: u64,
            kudos: f64,
            is_possible: bool,
        }
        known {
            /// Progress of the whole request, while a worker reports any.
            progress_percent: u8,
            /// Of the first running image whose worker counts steps.
            current_step: u32,
            total_steps: u32,
        }
    }
}

words! {
    /// Possible surprises in the output; never a refusal.
    pub enum Warning {
        NoAvailableWorker = "NoAvailableWorker",
        ClipSkipMismatch = "ClipSkipMismatch",
        StepsTooFew = "StepsTooFew",
        StepsTooMany = "StepsTooMany",
        CfgScaleMismatch = "CfgScaleMismatch",
        CfgScaleTooSmall = "CfgScaleTooSmall",
        CfgScaleTooLarge = "CfgScaleTooLarge",
        SamplerMismatch = "SamplerMismatch",
        SchedulerMismatch = "SchedulerMismatch",
    }
}

impl RequestAsync {
    pub fn accepted(id: RequestId, kudos: f64) -> Self {
        Self {
            kudos,
            id: Some(id),
            message: None,
            warnings: None,
            resolved: None,
        }
    }

    pub fn priced(kudos: f64) -> Self {
        Self {
            kudos,
            id: None,
            message: None,
            warnings: None,
            resolved: None,
        }
    }
}

impl ResolvedRequest {
    pub fn image(asked: &GenerationInputImage, style: ResolvedRequestStyle) -> Self {
        let parts = asked.prompt.split_once(NEGATIVE);
        Self {
            prompt: asked.prompt.clone(),
            params: json!(asked.params),
            models: asked.models.clone(),
            style,
            negative_prompt: parts.map(|(_, negative)| negative.to_owned()),
        }
    }

    pub fn text(asked: &GenerationInputText, style: ResolvedRequestStyle) -> Self {
        Self {
            prompt: asked.prompt.clone(),
            params: json!(asked.params),
            models: asked.models.clone(),
            style,
            negative_prompt: None,
        }
    }
}

/// The models that a request names.
pub fn model_names() -> List<Text> {
    list(text(..=255)).at_most(MOST_MODELS)
}

pub fn targets(workers: Option<&[String]>) -> &[String] {
    let workers = workers.unwrap_or_default();
    &workers[..workers.len().min(MOST_TARGETS)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{RequestAsync, RequestSingleWarning, RequestStatusCheck, Warning, targets};
    use crate::job::RequestId;
    use crate::legacy::image::request::GenerationInputImage;
    use crate::legacy::schemas::assert_fits;
    use crate::legacy::text::request::GenerationInputText;
    use crate::legacy::{Body, Refusal};

    #[test]
    fn a_dry_run_without_a_style_is_answered_with_its_price_alone() {
        let priced = serde_json::to_value(RequestAsync::priced(11.0)).unwrap();
        assert_eq!(priced, json!({"kudos": 11.0}));
        assert_fits("RequestAsync", &priced);
    }

    #[test]
    fn an_accepted_request_may_come_with_notices() {
        let mut accepted = RequestAsync::accepted(RequestId::random(), 11.0);
        assert_fits("RequestAsync", &accepted);
        accepted.message = Some("nobody serves this now".to_owned());
        accepted.warnings = Some(vec![RequestSingleWarning {
            code: Warning::NoAvailableWorker,
            message: "nobody serves this now".to_owned(),
        }]);
        assert_fits("RequestAsync", &accepted);
        assert_fits("RequestStatusCheck", &RequestStatusCheck::default());
    }

    #[test]
    fn the_first_five_workers_count() {
        let seven: Vec<_> = (0..7).map(|number| number.to_string()).collect();
        assert_eq!(targets(Some(&seven)).len(), 5);
        assert_eq!(targets(Some(&seven[..2])).len(), 2);
        assert!(targets(None).is_empty());
    }

    #[test]
    fn a_request_names_so_many_models() {
        fn check<B: Body>() {
            let read = |count: usize| B::read(json!({"prompt": "p", "models": vec!["m"; count]}));
            assert!(read(100).is_ok());
            let many = "must be an array of at most 100 items, found 101 items";
            assert_eq!(read(101).err(), Some(Refusal::invalid("models", many)));
        }
        check::<GenerationInputText>();
        check::<GenerationInputImage>();
    }
}
