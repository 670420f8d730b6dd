//! Outputs as clients of the AI Horde API get them: in a status, and by webhook.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{Made, Output};
use crate::media::{Key, Media, Unaccepted};
use muster_protocol::job::{JobId, Remark};
use muster_protocol::legacy::image::metadata::GenerationMetadataImage;
use muster_protocol::legacy::image::status::{GenerationImage, LOST};
use muster_protocol::legacy::submit::UPLOADED;
use muster_protocol::legacy::text::format;
use muster_protocol::legacy::text::metadata::GenerationMetadataText;
use muster_protocol::legacy::text::status::GenerationText;
use muster_protocol::legacy::words::{ResultState, named};

/// Lifetime of links to images.
pub const LINKS: Duration = Duration::from_secs(1800);

/// How the client gets the images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Links,
    Inline,
}

pub fn text(output: &Output, made: &Made) -> GenerationText {
    let wanted = output.legacy().cloned().unwrap_or_default();
    let note = made.product.note_of_text();
    let seed = note.and_then(|note| note.seed);
    GenerationText {
        // A polling worker has applied this already; applying it twice changes nothing.
        text: format::output(made.product.text(), &wanted),
        // The seed that the worker reports.
        seed: seed.unwrap_or_else(|| output.seed.unwrap_or_default().cast_signed()),
        gen_metadata: GenerationMetadataText::about(note, made.hidden),
        worker_id: made.worker_id,
        worker_name: made.worker.to_string(),
        model: made.model.to_string(),
        state: ResultState::of(made.hidden),
    }
}

/// An image in the shape chosen for its stored bytes, before any of them is read.
pub async fn image(
    output: &Output,
    made: &Made,
    shape: impl FnOnce(u64) -> Shape,
    media: &Media,
) -> GenerationImage {
    let drawn = made.product.media();
    let remarks = drawn.map_or(&[][..], |drawn| &drawn.remarks);
    let img = match drawn.and_then(|drawn| drawn.key.parse().ok()) {
        Some(key) => stored(key, output.most_drawn(), shape, media).await,
        None => None,
    };
    GenerationImage {
        img: img.unwrap_or_else(|| LOST.to_owned()),
        seed: drawn_seed(output, made).to_string(),
        id: drawn_id(output, made),
        censored: made.hidden.is_some(),
        gen_metadata: remarks.iter().filter_map(remark).collect(),
        worker_id: made.worker_id,
        worker_name: made.worker.to_string(),
        model: made.model.to_string(),
        state: ResultState::Ok,
    }
}

/// The ticket of the image's attempt, as its worker, its client and its raters see it.
pub fn drawn_id(output: &Output, made: &Made) -> JobId {
    let drawn = made.product.media();
    let key: Option<Key> = drawn.and_then(|drawn| drawn.key.parse().ok());
    key.map_or(output.job, |key| JobId(key.id()))
}

/// The seed reported by the worker, or the requested one.
pub fn drawn_seed(output: &Output, made: &Made) -> u64 {
    let drawn = made.product.media().and_then(|drawn| drawn.seed);
    drawn.or(output.seed).unwrap_or_default()
}

/// The result of an interrogation: as submitted, with a link to the image if one was uploaded.
pub async fn found(made: &Made, media: &Media) -> Option<Value> {
    let mut found: Value = serde_json::from_str(made.product.text()).ok()?;
    let mut result = found["result"].take();
    if let Some(key) = found["image"].as_str()
        && let Ok(key) = key.parse()
        && let Ok(link) = media.download_link(key, LINKS).await
    {
        link_in(&mut result, &link);
    }
    Some(result)
}

/// `None` if the object is missing or invalid.
async fn stored(
    key: Key,
    most: u64,
    shape: impl FnOnce(u64) -> Shape,
    media: &Media,
) -> Option<String> {
    // A socket worker's upload is checked on first use. `None` if the object is missing.
    let bytes = match media.take_in_up_to(most, key).await {
        Ok(bytes) => bytes?,
        // The media store is unavailable, so reading will probably fail, too.
        Err(Unaccepted::Store(_)) => 0,
        Err(_) => return None,
    };
    match shape(bytes) {
        Shape::Links => media.download_link(key, LINKS).await.ok(),
        Shape::Inline => {
            let bytes = media.get(key).await.ok().flatten()?;
            Some(STANDARD.encode(bytes))
        }
    }
}

fn remark(remark: &Remark) -> Option<GenerationMetadataImage> {
    Some(GenerationMetadataImage {
        r#type: named(&remark.r#type)?,
        value: named(&remark.value)?,
        r#ref: remark.r#ref.clone(),
    })
}

/// Whether the worker reports an uploaded image.
pub fn is_uploaded(result: &Value) -> bool {
    match result {
        Value::Object(fields) => fields.values().any(|one| one == UPLOADED),
        result => result == UPLOADED,
    }
}

fn link_in(result: &mut Value, link: &str) {
    match result {
        Value::String(text) if text == UPLOADED => link.clone_into(text),
        Value::Object(fields) => fields.values_mut().for_each(|one| {
            if one == UPLOADED {
                *one = link.into();
            }
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{Shape, stored};
    use crate::media::bucket_tests::{HOUR, WEBP, bucket, key, put};
    use muster_process::tasks::Tasks;

    #[tokio::test]
    async fn what_is_larger_than_its_job_or_no_image_has_no_link() {
        let tasks = Tasks::default();
        let media = bucket(HOUR, &tasks).await;
        let most = u64::try_from(WEBP.len()).unwrap();
        let larger = [WEBP, b"."].concat();
        for (sent, is_taken) in [(WEBP, true), (&larger, false), (b"<svg/>", false)] {
            let key = key();
            let link = media.upload_link(key, HOUR).await.unwrap();
            assert!(put(&link, sent).await.contains("200"));
            let link = stored(key, most, |_| Shape::Links, &media).await;
            assert_eq!(link.is_some(), is_taken);
        }
    }
}
