//! Interrogations: questions about an image that was sent, or work upon it, one form each.

use serde_json::{Map, Value};

use crate::job::{JobId, RequestId};

use super::rules::{flag, inner, list, object, text, text_or_object, word};
use super::tables::{body, reply, words};
use super::words::{self, PostProcessor, Word};

words! {
    /// The operation on the image: questions first, then a control map, then the post-processors.
    pub enum Form {
        Caption = "caption",
        Interrogation = "interrogation",
        Nsfw = "nsfw",
        Vectorize = "vectorize",
        Palette = "palette",
        Describe = "describe",
        Aesthetic = "aesthetic",
        Annotation = "annotation",
        Gfpgan = "GFPGAN",
        RealEsrganX4 = "RealESRGAN_x4plus",
        RealEsrganX2 = "RealESRGAN_x2plus",
        RealEsrganX4Anime = "RealESRGAN_x4plus_anime_6B",
        NmkdSiax = "NMKD_Siax",
        AnimeSharp = "4x_AnimeSharp",
        CodeFormers = "CodeFormers",
        StripBackground = "strip_background",
        Nomos8kSc = "4xNomos8kSC",
        LsdirPlus = "4xLSDIRplus",
        NomosWebPhoto = "4xNomosWebPhoto_RealPLKSR",
        Nomos2RealPlksr = "4xNomos2_realplksr_dysample",
        Nomos2HqDat2 = "4xNomos2_hq_dat2",
        ModernSpanimation = "2xModernSpanimationV1",
        Gfpgan13 = "GFPGANv1.3",
        RestoreFormer = "RestoreFormer",
    }

    /// How one form is doing.
    pub enum FormState {
        Waiting = "waiting",
        Processing = "processing",
        Done = "done",
        Cancelled = "cancelled",
        Faulted = "faulted",
    }

    /// How they are doing together.
    pub enum InterrogationState {
        Waiting = "waiting",
        Processing = "processing",
        Done = "done",
        Faulted = "faulted",
        Partial = "partial",
    }
}

body! {
    /// `POST /v2/interrogate/async`
    pub struct ModelInterrogationInputImage {
        needs { source_image: String = text(..), }
        fills {
            slow_workers: bool = flag() => true,
            trusted_workers: bool = flag() => false,
        }
        may {
            /// A name may occur twice.
            forms: Vec<ModelInterrogationFormImage> = list(inner()),
            webhook: String = text(10..=1024),
        }
    }
}

body! {
    pub struct ModelInterrogationFormImage {
        needs { name: Form = word(), }
        may { payload: Map<String, Value> = object(), }
    }
}

body! {
    /// `POST /v2/interrogate/submit`
    pub struct InterrogationSubmitInput {
        needs {
            id: String = text(..=255),
            /// The specification says a string, public workers send an object: both are stored and returned unchanged.
            result: Value = text_or_object(),
        }
        fills {
            /// `faulted` queues the form again; anything else is a delivery.
            state: String = text(..=255) => "ok".to_owned(),
        }
    }
}

reply! {
    pub struct RequestInterrogationResponse {
        always { id: RequestId, }
        known { message: String, }
    }

    /// `GET` and `DELETE /v2/interrogate/status/{id}`
    pub struct InterrogationStatus {
        always {
            state: InterrogationState,
            forms: Vec<InterrogationFormStatus>,
        }
    }

    pub struct InterrogationFormStatus {
        always {
            form: Form,
            state: FormState,
        }
        known { result: Value, }
    }

    /// `POST /v2/interrogate/pop`
    pub struct InterrogationPopPayload {
        always {
            /// `None` is null: there is nothing to do.
            forms: Option<Vec<InterrogationPopFormPayload>>,
            skipped: NoValidInterrogationsFound,
        }
    }

    pub struct InterrogationPopFormPayload {
        always {
            id: JobId,
            form: Form,
            source_image: String,
        }
        known {
            payload: Map<String, Value>,
            /// For forms that end in an image.
            r2_upload: String,
        }
    }

    #[derive(Default)]
    pub struct NoValidInterrogationsFound {
        known {
            worker_id: u64,
            untrusted: u64,
            bridge_version: u64,
        }
    }
}

impl Form {
    /// The post-processor it is, if it is one.
    pub fn post_processor(self) -> Option<PostProcessor> {
        words::named(self.word())
    }

    /// Whether the result is an image.
    pub fn makes_image(self) -> bool {
        self == Self::Annotation || self.post_processor().is_some()
    }
}

impl InterrogationState {
    /// A request without forms has nothing that could go right.
    pub fn of(forms: &[FormState]) -> Self {
        let any = |state| forms.contains(&state);
        let all = |state| forms.iter().all(|one| *one == state);
        if all(FormState::Faulted) {
            Self::Faulted
        } else if all(FormState::Done) {
            Self::Done
        } else if any(FormState::Processing) {
            Self::Processing
        } else if any(FormState::Waiting) {
            Self::Waiting
        } else {
            Self::Partial
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::{
        Form, FormState, InterrogationFormStatus, InterrogationPopFormPayload,
        InterrogationPopPayload, InterrogationState, InterrogationStatus, InterrogationSubmitInput,
        ModelInterrogationFormImage, ModelInterrogationInputImage, NoValidInterrogationsFound,
        RequestInterrogationResponse,
    };
    use crate::job::{JobId, RequestId};
    use crate::legacy::schemas::{assert_fits, assert_reads, assert_reads_but};
    use crate::legacy::words::{PostProcessor, Word};
    use crate::legacy::{Body, Refusal};

    #[test]
    fn interrogations_are_read_as_the_contract_says() {
        assert_reads::<ModelInterrogationInputImage>("ModelInterrogationInputImage");
        assert_reads::<ModelInterrogationFormImage>("ModelInterrogationFormImage");
        assert_reads_but::<InterrogationSubmitInput>("InterrogationSubmitInput", &["result"]);
    }

    #[test]
    fn a_result_is_a_string_or_an_object() {
        for result in [json!("a cat"), json!({"caption": "a cat"})] {
            let body = json!({"id": "x", "result": result});
            assert_eq!(InterrogationSubmitInput::read(body).unwrap().result, result);
        }
        let refusal =
            InterrogationSubmitInput::read(json!({"id": "x", "result": [1]})).unwrap_err();
        assert!(matches!(refusal, Refusal::Invalid(errors) if errors[0].0 == "result"));
    }

    #[test]
    fn every_post_processor_is_a_form() {
        let forms: Vec<_> = Form::ALL
            .iter()
            .filter_map(|form| form.post_processor())
            .collect();
        assert_eq!(forms, PostProcessor::ALL);
    }

    #[test]
    fn replies_are_what_the_contract_says() {
        let id = RequestId::random();
        assert_fits(
            "RequestInterrogationResponse",
            &RequestInterrogationResponse { id, message: None },
        );
        let form = |state, result| InterrogationFormStatus {
            form: Form::Caption,
            state,
            result,
        };
        let status = InterrogationStatus {
            state: InterrogationState::Processing,
            forms: vec![
                form(FormState::Waiting, None),
                form(FormState::Done, Some(json!({"caption": "a cat"}))),
            ],
        };
        assert_fits("InterrogationStatus", &status);
        let skipped = NoValidInterrogationsFound {
            untrusted: Some(2),
            ..Default::default()
        };
        let mut pop = InterrogationPopPayload {
            forms: None,
            skipped,
        };
        assert_fits("InterrogationPopPayload", &pop);
        pop.forms = Some(vec![InterrogationPopFormPayload {
            id: JobId::random(),
            form: Form::Gfpgan,
            source_image: "https://example.org/cat.webp".to_owned(),
            payload: Some(Map::new()),
            r2_upload: Some("https://example.org/up".to_owned()),
        }]);
        assert_fits("InterrogationPopPayload", &pop);
    }

    #[test]
    fn the_worst_of_the_forms_does_not_decide_alone() {
        use FormState::{Cancelled, Done, Faulted, Processing, Waiting};
        let check =
            |forms: &[FormState], expected| assert_eq!(InterrogationState::of(forms), expected);
        check(&[], InterrogationState::Faulted);
        check(&[Faulted, Faulted], InterrogationState::Faulted);
        check(&[Done, Done], InterrogationState::Done);
        check(&[Done, Processing, Waiting], InterrogationState::Processing);
        check(&[Done, Waiting], InterrogationState::Waiting);
        check(&[Done, Faulted], InterrogationState::Partial);
        check(&[Cancelled], InterrogationState::Partial);
    }
}
