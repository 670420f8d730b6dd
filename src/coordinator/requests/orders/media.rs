//! Media of `/v1` in their neutral form, and how their client gets them. Source images stand in it by their keys in the
//! media store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Nth, Task, Unreadable};
use crate::media::MediaType;
use crate::requests::Wishes;
use muster_protocol::job::{Body, Formats, JobPrice, Kind, Limits, MicroUsd, SoundFormat};
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::link::MediaBody;
use muster_protocol::openai::images::LARGEST_SEED;

/// From when it was accepted, a worker has taken one of its jobs, or has brought one.
pub const LIFETIME: Duration = Duration::from_secs(3600);

/// Outputs of one kind by one model, which differ in their seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaWork {
    pub body: MediaBody,
    /// One name, which is an id.
    model: [String; 1],
    pub count: u32,
    /// What of the workers can honour every field.
    formats: Formats,
    /// Only for workers that the operator vouches for.
    trusted: bool,
    notes: Arc<MediaNotes>,
    pub price: Option<JobPrice>,
}

/// What the client of a request that is asked for later said of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MediaNotes {
    /// The type of an image; none for outputs that stay as they came.
    pub image_type: Option<MediaType>,
    /// By which the client finds the request.
    pub client_ref: Option<Arc<str>>,
    /// For `/v1/progress`.
    pub progress_token: Option<Arc<str>>,
    /// The settings of a video, which its routes show. Read from the work, and not stored.
    pub video: Option<VideoFacts>,
}

/// The settings of a video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoFacts {
    pub model: Arc<str>,
    pub prompt: Arc<str>,
    pub size: (u32, u32),
    pub millis: u64,
}

impl MediaWork {
    pub fn new(body: MediaBody, model: &str, count: u32) -> Self {
        let mut work = Self {
            body,
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

    /// Only workers of these formats can honour every field.
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
        match self.body {
            MediaBody::Image(_) => Kind::Image,
            MediaBody::Music(_) => Kind::Audio,
            MediaBody::Video(_) => Kind::Video,
        }
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

    /// The job of one output. `seed` is drawn for the request, for clients that named none.
    pub fn output(&self, index: u32, seed: u64) -> (Body, Limits) {
        let drawn = (seed as u32).wrapping_add(index.wrapping_mul(0x9e37_79b9));
        let seed_of = |named: Option<u64>| {
            named.map_or(u64::from(drawn), |named| {
                named.wrapping_add(index.into()) % (LARGEST_SEED.cast_unsigned() + 1)
            })
        };
        let mut body = match self.body.clone() {
            MediaBody::Image(image) => Body::Image(Box::new(image)),
            MediaBody::Music(music) => Body::Music(Box::new(music)),
            MediaBody::Video(video) => Body::Video(Box::new(video)),
        };
        match &mut body {
            Body::Image(image) => image.seed = Some(seed_of(image.seed)),
            Body::Music(music) => music.seed = Some(seed_of(music.seed)),
            Body::Video(video) => video.seed = Some(seed_of(video.seed)),
            Body::Text(_) | Body::Form(_) | Body::Encode(_) => {}
        }
        (body, self.limits())
    }

    fn limits(&self) -> Limits {
        let limits = Limits {
            formats: self.formats,
            restartable: true,
            ..self.usual_limits()
        };
        match &self.body {
            // Workers draw the images of a batch from seeds of their own.
            MediaBody::Image(image) if image.seed.is_some() => Limits {
                bulk: u64::MAX,
                ..limits
            },
            MediaBody::Image(_) | MediaBody::Music(_) | MediaBody::Video(_) => limits,
        }
    }

    fn usual_limits(&self) -> Limits {
        match &self.body {
            MediaBody::Image(image) => {
                let [model] = &self.model;
                let polled = GenerationInputImage::of_neutral(image, model);
                Limits {
                    formats: polled.formats(),
                    ..polled.limits()
                }
            }
            // Their protocol has no type of file but this one.
            MediaBody::Music(music) => Limits {
                formats: match music.format {
                    SoundFormat::Wav => Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
                    SoundFormat::Flac | SoundFormat::Opus => Formats::NEUTRAL,
                },
                needs: music.needs(),
                ..Limits::default()
            },
            MediaBody::Video(video) => Limits {
                formats: Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
                needs: video.needs(),
                ..Limits::default()
            },
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
        let MediaBody::Video(video) = &self.body else {
            return None;
        };
        Some(VideoFacts {
            model: self.model().into(),
            prompt: video.prompt.as_str().into(),
            size: (video.width, video.height),
            millis: video.millis(),
        })
    }

    pub fn sources(&self) -> Vec<&str> {
        let source = match &self.body {
            MediaBody::Image(image) => &image.source,
            MediaBody::Video(video) => &video.source,
            MediaBody::Music(_) => &None,
        };
        let Some(source) = source else {
            return Vec::new();
        };
        let extra = source.extra.iter().map(|(image, _)| &**image);
        let mask = source.mask.as_deref();
        std::iter::once(&*source.image)
            .chain(mask)
            .chain(extra)
            .collect()
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

    /// Under a name that requests of other APIs do not have.
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
            MEDIA: self.body,
            "model": self.model[0],
            "count": self.count,
            "formats": self.formats.names().collect::<Vec<_>>(),
            "trusted": self.trusted,
            "price": price,
            "image_type": notes.image_type.map(MediaType::extension),
            "client_ref": notes.client_ref.as_deref(),
            "progress_token": notes.progress_token.as_deref(),
        })
    }

    /// Whether this is what [`Self::stored`] has written.
    pub fn is_in(body: &Value) -> bool {
        body[MEDIA].is_object()
    }

    pub fn read(mut body: Value) -> Result<Self, Unreadable> {
        let broken = |what: &str| Unreadable(format!("invalid {what}"));
        let media = serde_json::from_value(body[MEDIA].take()).map_err(|_| broken(MEDIA))?;
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
            ..Self::new(media, model, count).noted(notes)
        })
    }
}

const MEDIA: &str = "media";

#[cfg(test)]
mod tests {
    use super::{MediaNotes, MediaWork};
    use crate::media::MediaType;
    use muster_protocol::job::{
        Body, Formats, ImageRequest, JobPrice, MicroUsd, MusicRequest, SourceImage,
    };
    use muster_protocol::link::MediaBody;

    fn image(seed: Option<u64>) -> MediaWork {
        let image = ImageRequest {
            prompt: "a cat".to_owned(),
            seed,
            source: Some(SourceImage {
                image: "a".to_owned(),
                mask: Some("b".to_owned()),
                extra: Vec::new(),
            }),
            ..ImageRequest::default()
        };
        MediaWork::new(MediaBody::Image(image), "tiny", 2)
    }

    #[test]
    fn what_is_stored_becomes_the_same_jobs_again() {
        let notes = MediaNotes {
            image_type: Some(MediaType::Png),
            client_ref: Some("mine".into()),
            progress_token: Some("token".into()),
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
        let music = MediaBody::Music(MusicRequest::default());
        for work in [priced.noted(notes), MediaWork::new(music, "plays", 1)] {
            let stored = work.stored();
            assert!(MediaWork::is_in(&stored));
            let again = MediaWork::read(stored).unwrap();
            assert_eq!(again, work);
            assert_eq!(again.output(1, 5), work.output(1, 5));
        }
        assert_eq!(image(None).sources(), ["a", "b"]);
    }

    #[test]
    fn outputs_have_seeds_of_their_own() {
        let seeds = |work: MediaWork| {
            [0, 1].map(|index| match work.output(index, 5).0 {
                Body::Image(image) => image.seed.unwrap(),
                _ => panic!("an image was asked for"),
            })
        };
        assert_eq!(seeds(image(Some(40))), [40, 41]);
        assert_eq!(seeds(image(Some((1 << 53) - 1))), [(1 << 53) - 1, 0]);
        let [one, other] = seeds(image(None));
        assert!(one == 5 && other != 5 && other < 1 << 32);
        assert_eq!(image(Some(1)).output(0, 5).1.bulk, u64::MAX);
    }
}
