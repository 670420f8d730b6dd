//! Media and transcripts of `/v1` in neutral form, with the client's options. Source images and audio are keys of the
//! media store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Nth, Task, Unreadable};
use crate::media::MediaType;
use crate::requests::Wishes;
use muster_protocol::job::{
    Body, Formats, JobPrice, JobRequest, Kind, Limits, MediaNeeds, MicroUsd, Needs,
};
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::openai::hearing::reply::{TranscriptDocument, TranscriptForm};
use muster_protocol::openai::hearing::speech::KeptSpeech;
use muster_protocol::openai::images::LARGEST_SEED;

/// Lifetime from acceptance, and again from every job taken or submitted.
pub const LIFETIME: Duration = Duration::from_secs(3600);

/// Outputs of one kind from one model, with different seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaWork {
    body: Body,
    /// A single model id.
    model: [String; 1],
    pub count: u32,
    /// Formats that carry every field.
    formats: Formats,
    /// Only for workers that the operator trusts.
    trusted: bool,
    notes: Arc<MediaNotes>,
    pub price: Option<JobPrice>,
}

/// The client's fields of a durable media request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MediaNotes {
    /// The type of an image; `None` for outputs without conversion.
    pub image_type: Option<MediaType>,
    /// The client's own name of the request.
    pub client_ref: Option<Arc<str>>,
    /// For `/v1/progress`.
    pub progress_token: Option<Arc<str>>,
    /// The format of a transcript.
    pub document: Option<TranscriptDocument>,
    /// The settings of a video for its routes, computed from the work and not stored.
    pub video: Option<VideoFacts>,
}

/// The settings of a video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoFacts {
    pub model: Arc<str>,
    pub prompt: Arc<str>,
    /// `None` if the client leaves the size to the model.
    pub size: Option<(u32, u32)>,
    pub millis: Option<u64>,
}

impl MediaWork {
    pub fn new(request: impl Into<Body>, model: &str, count: u32) -> Self {
        let mut work = Self {
            body: request.into(),
            model: [model.to_owned()],
            count,
            formats: Formats::NEUTRAL,
            trusted: false,
            notes: Arc::default(),
            price: None,
        };
        work.formats = work.usual_limits().formats;
        work
    }

    /// Restricts the request to workers of formats with all its fields.
    #[must_use]
    pub fn in_formats(self, formats: Formats) -> Self {
        Self { formats, ..self }
    }

    #[must_use]
    pub fn for_trusted(self, trusted: bool) -> Self {
        Self { trusted, ..self }
    }

    #[must_use]
    pub fn noted(self, notes: MediaNotes) -> Self {
        let notes = Arc::new(notes);
        Self { notes, ..self }
    }

    pub fn formats(&self) -> Formats {
        self.formats
    }

    pub fn kind(&self) -> Kind {
        self.body.kind()
    }

    pub fn models(&self) -> &[String] {
        &self.model
    }

    pub fn model(&self) -> &str {
        &self.model[0]
    }

    pub fn notes(&self) -> &MediaNotes {
        &self.notes
    }

    /// The job of one output. `seed` is used unless the client sets one.
    pub fn output(&self, index: u32, seed: u64) -> (Body, Limits) {
        let drawn = (seed as u32).wrapping_add(index.wrapping_mul(0x9e37_79b9));
        let seed_of = |named: Option<u64>| {
            named.map_or(u64::from(drawn), |named| {
                named.wrapping_add(index.into()) % (LARGEST_SEED.cast_unsigned() + 1)
            })
        };
        let mut body = self.body.clone();
        let seed = seed_of(body.seed());
        body.set_seed(seed);
        (body, self.limits())
    }

    fn limits(&self) -> Limits {
        let limits = Limits {
            formats: self.formats,
            restartable: true,
            ..self.usual_limits()
        };
        match &self.body {
            // In a batch, workers choose the seeds themselves.
            Body::Image(image) if image.seed.is_some() => Limits {
                bulk: u64::MAX,
                ..limits
            },
            _ => limits,
        }
    }

    fn usual_limits(&self) -> Limits {
        match &self.body {
            Body::Image(image) => {
                let limits = GenerationInputImage::of_neutral(image, self.model()).limits();
                match limits.needs {
                    // Every model has its own default size.
                    Needs::Media(needs) if image.is_unbound() => Limits {
                        needs: Needs::Media(MediaNeeds { pixels: 0, ..needs }),
                        ..limits
                    },
                    _ => limits,
                }
            }
            body => body.limits(),
        }
    }

    pub fn wishes(&self) -> Wishes {
        let notes = MediaNotes {
            video: self.facts(),
            ..MediaNotes::clone(&self.notes)
        };
        Wishes {
            links: true,
            media: Some(Arc::new(notes)),
            ..Wishes::default()
        }
    }

    fn facts(&self) -> Option<VideoFacts> {
        let Body::Video(video) = &self.body else {
            return None;
        };
        Some(VideoFacts {
            model: self.model().into(),
            prompt: video.prompt.as_str().into(),
            size: (video.width > 0).then_some((video.width, video.height)),
            millis: (video.seconds > 0.0).then(|| video.millis()),
        })
    }

    pub fn sources(&self) -> Vec<&str> {
        self.body.sources()
    }

    pub(super) fn task(&self, nth: Nth) -> Task {
        let (body, limits) = self.output(nth.index, nth.seed);
        Task {
            body,
            limits,
            trusted: self.trusted,
            original: None,
            price: self.price,
        }
    }

    /// Under a key that requests of other APIs lack.
    pub fn stored(&self) -> Value {
        let price = self.price.map(|price| {
            [
                price.input_per_mtok,
                price.output_per_mtok,
                price.fixed,
                price.held,
            ]
            .map(|amount| amount.0)
        });
        let notes = &self.notes;
        json!({
            MEDIA: self.body.stored(),
            "model": self.model[0],
            "count": self.count,
            "formats": self.formats.names().collect::<Vec<_>>(),
            "trusted": self.trusted,
            "price": price,
            "image_type": notes.image_type.map(MediaType::extension),
            "client_ref": notes.client_ref.as_deref(),
            "progress_token": notes.progress_token.as_deref(),
            "document": notes.document.as_ref().map(stored_document),
        })
    }

    /// Whether [`Self::stored`] wrote this body.
    pub fn is_in(body: &Value) -> bool {
        body[MEDIA].is_object()
    }

    pub fn read(mut body: Value) -> Result<Self, Unreadable> {
        let broken = |what: &str| Unreadable(format!("invalid {what}"));
        let work = Body::read_stored(body[MEDIA].take()).ok_or_else(|| broken(MEDIA))?;
        let model = body["model"].as_str().ok_or_else(|| broken("model"))?;
        let count = body["count"].as_u64().and_then(|it| u32::try_from(it).ok());
        let count = count.ok_or_else(|| broken("count"))?;
        let names = body["formats"].as_array().into_iter().flatten();
        let formats = names.filter_map(|name| Formats::named(name.as_str()?));
        let text = |name: &str| body[name].as_str().map(Arc::from);
        let notes = MediaNotes {
            image_type: body["image_type"]
                .as_str()
                .and_then(MediaType::from_extension),
            client_ref: text("client_ref"),
            progress_token: text("progress_token"),
            document: read_document(&body["document"]),
            video: None,
        };
        let price: Option<[i64; 4]> =
            serde_json::from_value(body["price"].clone()).map_err(|_| broken("price"))?;
        let price = price.map(|amounts| {
            let [input_per_mtok, output_per_mtok, fixed, held] = amounts.map(MicroUsd);
            JobPrice {
                input_per_mtok,
                output_per_mtok,
                fixed,
                held,
            }
        });
        Ok(Self {
            formats: formats.fold(Formats::default(), Formats::with),
            trusted: body["trusted"] == true,
            price,
            ..Self::new(work, model, count).noted(notes)
        })
    }
}

const MEDIA: &str = "media";
fn stored_document(document: &TranscriptDocument) -> Value {
    json!({
        "form": document.form.name(),
        "millis": document.millis,
        "translated": document.is_translated,
        "segments": document.has_segments,
        "words": document.has_words,
        "speech": document.speech.as_ref().map(|speech| json!({
            "spans": speech.spans,
            "millis": speech.millis,
        })),
    })
}

fn read_document(stored: &Value) -> Option<TranscriptDocument> {
    Some(TranscriptDocument {
        form: TranscriptForm::named(stored["form"].as_str()?)?,
        millis: stored["millis"].as_u64()?,
        is_translated: stored["translated"] == true,
        has_segments: stored["segments"] == true,
        has_words: stored["words"] == true,
        speech: read_speech(&stored["speech"]),
    })
}

fn read_speech(stored: &Value) -> Option<KeptSpeech> {
    Some(KeptSpeech {
        spans: serde_json::from_value(stored["spans"].clone()).ok()?,
        millis: stored["millis"].as_u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{MediaNotes, MediaWork};
    use crate::media::MediaType;
    use muster_protocol::job::{
        Body, Capabilities, Formats, ImageRequest, JobPrice, Kind, MicroUsd, MusicRequest,
        SourceImage, TranscriptionRequest,
    };
    use muster_protocol::openai::hearing::reply::{TranscriptDocument, TranscriptForm};
    use muster_protocol::openai::hearing::speech::KeptSpeech;

    fn image(seed: Option<u64>) -> MediaWork {
        let image = ImageRequest {
            prompt: "a cat".to_owned(),
            seed,
            source: Some(SourceImage {
                image: "a".to_owned(),
                mask: Some("b".to_owned()),
                extra: Vec::new(),
                size: None,
            }),
            ..ImageRequest::default()
        };
        MediaWork::new(image, "tiny", 2)
    }

    #[test]
    fn what_is_stored_becomes_the_same_jobs_again() {
        let notes = MediaNotes {
            image_type: Some(MediaType::Png),
            client_ref: Some("mine".into()),
            progress_token: Some("token".into()),
            document: None,
            video: None,
        };
        let priced = MediaWork {
            price: Some(JobPrice {
                fixed: MicroUsd(7),
                held: MicroUsd(9),
                ..JobPrice::default()
            }),
            ..image(None).in_formats(Formats::NEUTRAL).for_trusted(true)
        };
        let music = MusicRequest::default();
        let heard = transcript().noted(MediaNotes {
            document: Some(TranscriptDocument {
                form: TranscriptForm::Vtt,
                millis: 2500,
                has_words: true,
                speech: Some(KeptSpeech {
                    spans: vec![(100, 900)],
                    millis: 800,
                }),
                ..TranscriptDocument::default()
            }),
            ..MediaNotes::default()
        });
        let played = MediaWork::new(music, "plays", 1);
        for work in [priced.noted(notes), played, heard] {
            let stored = work.stored();
            assert!(MediaWork::is_in(&stored));
            let again = MediaWork::read(stored).unwrap();
            assert_eq!(again, work);
            assert_eq!(again.output(1, 5), work.output(1, 5));
        }
        assert_eq!(image(None).sources(), ["a", "b"]);
    }

    fn transcript() -> MediaWork {
        let transcript = TranscriptionRequest {
            sound: "sources/a.flac".to_owned(),
            seconds: 2.5,
            words: true,
            ..TranscriptionRequest::default()
        };
        MediaWork::new(transcript, "hears", 1)
    }

    #[test]
    fn a_transcript_is_a_text_job_of_a_sound() {
        let (work, (body, limits)) = (transcript(), transcript().output(0, 5));
        assert_eq!(work.kind(), Kind::Transcription);
        assert_eq!(work.sources(), ["sources/a.flac"]);
        assert!(matches!(body, Body::Transcription(_)));
        assert_eq!(limits.formats, Formats::NEUTRAL);
        assert_eq!(limits.requires, Capabilities::default());
    }

    #[test]
    fn outputs_have_seeds_of_their_own() {
        let seeds = |work: MediaWork| {
            [0, 1].map(|index| {
                let (body, _) = work.output(index, 5);
                body.image().and_then(|image| image.seed).unwrap()
            })
        };
        assert_eq!(seeds(image(Some(40))), [40, 41]);
        assert_eq!(seeds(image(Some((1 << 53) - 1))), [(1 << 53) - 1, 0]);
        let [one, other] = seeds(image(None));
        assert!(one == 5 && other != 5 && other < 1 << 32);
        assert_eq!(image(Some(1)).output(0, 5).1.bulk, u64::MAX);
    }
}
