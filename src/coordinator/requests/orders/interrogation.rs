//! Interrogations of an image: each form is a separate job, for workers that support this form.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Nth, Task};
use muster_protocol::job::{Body, FormRequest, Formats, Limits, MediaNeeds, Needs};
use muster_protocol::legacy::interrogation::{
    ModelInterrogationFormImage, ModelInterrogationInputImage,
};
use muster_protocol::legacy::words::Word;
use muster_protocol::legacy::{Body as _, Refusal};

/// Lifetime of an interrogation.
pub const LIFETIME: Duration = Duration::from_secs(20 * 60);
/// Timeout of a polling worker for a form.
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug)]
pub struct FormsAsked {
    /// The source image is a key or a URL.
    request: ModelInterrogationInputImage,
    /// The queue's model names of its forms, in order.
    models: Vec<String>,
    width: u32,
    height: u32,
}

impl FormsAsked {
    pub fn new(request: ModelInterrogationInputImage, (width, height): (u32, u32)) -> Self {
        let forms = request.forms.iter().flatten();
        Self {
            models: forms.map(ModelInterrogationFormImage::model).collect(),
            request,
            width,
            height,
        }
    }

    pub fn read(mut body: Value) -> Result<Self, Refusal> {
        let side = |name: &str| {
            body[name]
                .as_u64()
                .and_then(|side| u32::try_from(side).ok())
        };
        let size = (
            side("width").unwrap_or_default(),
            side("height").unwrap_or_default(),
        );
        let request = ModelInterrogationInputImage::read(body["request"].take())?;
        Ok(Self::new(request, size))
    }

    pub fn stored(&self) -> Value {
        json!({"request": self.request, "width": self.width, "height": self.height})
    }

    pub fn outputs(&self) -> u32 {
        u32::try_from(self.models.len()).unwrap_or(u32::MAX)
    }

    pub fn webhook(&self) -> Option<&str> {
        self.request.webhook.as_deref()
    }

    pub fn source(&self) -> &str {
        &self.request.source_image
    }

    /// The queue treats a form as a model.
    pub fn models(&self) -> &[String] {
        &self.models
    }

    pub(super) fn task(&self, nth: Nth) -> Task {
        let form = self.request.forms.iter().flatten().nth(nth.index as usize);
        let payload = form.and_then(|form| form.payload.clone());
        let name = form.map(|form| form.name.word().to_owned());
        Task {
            body: Body::Form(Box::new(FormRequest {
                form: name.unwrap_or_default(),
                payload,
                image: self.request.source_image.clone(),
                width: self.width,
                height: self.height,
                slow_workers: self.request.slow_workers,
            })),
            limits: Limits {
                formats: Formats::LEGACY.with(Formats::NEUTRAL),
                needs: Needs::Media(MediaNeeds {
                    pixels: tiled(self.width, self.height),
                    ..MediaNeeds::default()
                }),
                patience: Some(PATIENCE),
                ..Limits::default()
            },
            trusted: self.request.trusted_workers,
            original: None,
            price: None,
        }
    }
}

/// Pixels of the covering tiles: workers limit the number of tiles.
fn tiled(width: u32, height: u32) -> u32 {
    const SIDE: u32 = 512;
    let tiles = width.div_ceil(SIDE).saturating_mul(height.div_ceil(SIDE));
    tiles.saturating_mul(SIDE * SIDE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{FormsAsked, Nth};
    use muster_protocol::job::{Body, MediaNeeds, Needs};
    use muster_protocol::legacy::Body as _;
    use muster_protocol::legacy::interrogation::ModelInterrogationInputImage;

    #[test]
    fn each_form_is_a_job_and_is_the_same_again() {
        let body = json!({"source_image": "sources/a.webp", "forms": [
            {"name": "caption"}, {"name": "GFPGAN", "payload": {"strength": 1}},
        ]});
        let request = ModelInterrogationInputImage::read(body).unwrap();
        let asked = FormsAsked::new(request, (513, 512));
        assert_eq!((asked.outputs(), asked.models().len()), (2, 2));
        let nth = Nth { index: 1, seed: 0 };
        let task = asked.task(nth);
        let pixels = 2 * 512 * 512;
        let needs = Needs::Media(MediaNeeds {
            pixels,
            ..MediaNeeds::default()
        });
        assert_eq!(task.limits.needs, needs);
        let Body::Form(form) = &task.body else {
            panic!("a form was asked for");
        };
        assert_eq!((&*form.form, form.payload.is_some()), ("GFPGAN", true));
        let again = FormsAsked::read(asked.stored()).unwrap();
        assert_eq!(again.task(nth).body, task.body);
    }

    #[test]
    fn a_control_map_is_for_workers_that_draw_its_kind() {
        let payload = json!({"control_type": "canny"});
        let forms = json!([{"name": "annotation", "payload": payload}]);
        let body = json!({"source_image": "sources/a.webp", "forms": forms});
        let request = ModelInterrogationInputImage::read(body).unwrap();
        let asked = FormsAsked::new(request, (512, 512));
        assert_eq!(asked.models(), ["annotation:canny"]);
        let Body::Form(form) = asked.task(Nth { index: 0, seed: 0 }).body else {
            panic!("a form was asked for");
        };
        assert_eq!(
            (&*form.form, form.payload.as_ref()),
            ("annotation", payload.as_object())
        );
        let again = FormsAsked::read(asked.stored()).unwrap();
        assert_eq!(again.models(), asked.models());
    }
}
