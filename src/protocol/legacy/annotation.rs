//! Control maps as requests of their own: the form `annotation`, whose payload names the kind of map. Workers support
//! some of the kinds, so each kind is a model to the queue.

use serde_json::{Map, Value};

use crate::openai::nearest::shortened;
use crate::openai::shape;

use super::body::MOST_ERRORS;
use super::error::{Code, Refusal};
use super::interrogation::{Form, ModelInterrogationFormImage, ModelInterrogationInputImage};
use super::words::{ControlType, Word, named};

/// The payload's key for the kind.
const KIND: &str = "control_type";
/// Between the form and the kind, in the name that the queue knows.
const MARK: char = ':';

/// The kind of map that a payload asks for.
pub fn kind_in(payload: Option<&Map<String, Value>>) -> Option<ControlType> {
    let name = payload?.get(KIND)?.as_str()?;
    named(name).filter(|kind: &ControlType| kind.is_annotation())
}

/// The queue's model name for control maps of this kind.
pub fn model_of(kind: ControlType) -> String {
    format!("{}{MARK}{}", Form::Annotation.word(), kind.word())
}

/// The kind of map that the queue calls this.
pub fn kind_of(model: &str) -> Option<ControlType> {
    match model.split_once(MARK)? {
        (form, kind) if form == Form::Annotation.word() => named(kind),
        _ => None,
    }
}

/// The form of a queue's model name.
pub fn form_of(model: &str) -> Option<Form> {
    match kind_of(model) {
        Some(_) => Some(Form::Annotation),
        None => named(model),
    }
}

impl ModelInterrogationFormImage {
    /// The queue's model name of the form. A control map of unspecified kind has no worker.
    pub fn model(&self) -> String {
        match (self.name, kind_in(self.payload.as_ref())) {
            (Form::Annotation, Some(kind)) => model_of(kind),
            (form, _) => form.word().to_owned(),
        }
    }

    /// The error in the kind of control map, if any.
    fn complaint(&self) -> Option<String> {
        let payload = self.payload.as_ref();
        if self.name != Form::Annotation || kind_in(payload).is_some() {
            return None;
        }
        let found = match payload.and_then(|payload| payload.get(KIND)) {
            None => None,
            Some(Value::String(name)) => Some(format!("{:?}", shortened(name))),
            Some(other) => Some(shape::kind(other)),
        };
        let known = ControlType::ALL.iter().filter(|kind| kind.is_annotation());
        let known: Vec<_> = known.map(|kind| kind.word()).collect();
        let wanted = format!("must be one of {}", known.join(", "));
        Some(match found {
            None => format!("missing: {wanted}"),
            Some(found) => format!("{wanted}, found {found}"),
        })
    }
}

impl ModelInterrogationInputImage {
    /// Every control map is of a known kind.
    pub fn check(&self) -> Result<(), Refusal> {
        let forms = self.forms.iter().flatten().enumerate();
        let errors = forms.filter_map(|(index, form)| {
            let path = format!("forms.{index}.payload.{KIND}");
            Some((path, form.complaint()?))
        });
        let errors: Vec<_> = errors.take(MOST_ERRORS).collect();
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Refusal::Unfit {
                code: Code::InvalidControlType,
                errors,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{form_of, kind_of, model_of};
    use crate::legacy::interrogation::{Form, ModelInterrogationInputImage};
    use crate::legacy::words::{ControlType, Word};
    use crate::legacy::{Body, Code, Refusal};

    fn asked(forms: Value) -> ModelInterrogationInputImage {
        let body = json!({"source_image": "x", "forms": forms});
        ModelInterrogationInputImage::read(body).unwrap()
    }

    fn drawn(kind: &str) -> Value {
        json!({"name": "annotation", "payload": {"control_type": kind}})
    }

    #[test]
    fn every_kind_is_a_model_of_its_own_and_known_by_its_name() {
        for kind in ControlType::ALL.iter().copied() {
            let model = model_of(kind);
            assert_eq!(kind_of(&model), Some(kind));
            assert_eq!(form_of(&model), Some(Form::Annotation));
        }
        assert_eq!(form_of("GFPGAN"), Some(Form::Gfpgan));
        for model in ["canny", "caption:canny", "annotation:x", "annotation:"] {
            assert_eq!((kind_of(model), form_of(model)), (None, None), "{model}");
        }
        let forms =
            json!([drawn("canny"), {"name": "caption", "payload": {"control_type": "canny"}}]);
        let models = asked(forms).forms.unwrap();
        let models: Vec<String> = models.iter().map(|form| form.model()).collect();
        assert_eq!(models, ["annotation:canny", "caption"]);
    }

    #[test]
    fn a_map_of_no_kind_is_refused_where_it_stands() {
        let known = ControlType::ALL.iter().filter(|kind| kind.is_annotation());
        let known: Vec<_> = known.map(|kind| drawn(kind.word())).collect();
        assert_eq!(known.len(), 33);
        assert_eq!(asked(json!(known)).check(), Ok(()));
        assert_eq!(asked(json!([{"name": "caption"}])).check(), Ok(()));
        for (payload, start, end) in [
            (json!({}), "missing: must be one of canny, hed, ", ""),
            (
                json!({"control_type": "hough"}),
                "must be one of canny, ",
                ", found \"hough\"",
            ),
            (
                json!({"control_type": 5}),
                "must be one of canny, ",
                ", found 5",
            ),
        ] {
            let forms = json!([drawn("canny"), {"name": "annotation", "payload": payload}]);
            let Err(Refusal::Unfit { code, errors }) = asked(forms).check() else {
                panic!("{payload} was taken");
            };
            assert_eq!((code, errors.len()), (Code::InvalidControlType, 1));
            let (path, why) = &errors[0];
            assert_eq!(path, "forms.1.payload.control_type");
            assert!(why.starts_with(start) && why.ends_with(end), "{why}");
        }
    }
}
