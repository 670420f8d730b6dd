//! `GET /api/v2/generate/request/{id}`: the request's own fields, with its source images while they are stored.

use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::super::requested::COPIES;
use super::super::sent::{answer, of};
use super::sources::no_store;
use crate::http::admitted::Admitted;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::room::{Memory, Room};
use crate::media::Media;
use crate::requests::Requests;
use muster_protocol::job::Kind;

/// Fields that are meaningless without the source images: returned together or not at all.
const BEGINNING: [&str; 4] = [
    "source_image",
    "source_mask",
    "extra_source_images",
    "source_processing",
];

pub async fn sent(
    State(requests): State<Requests>,
    (State(media), State(memory)): (State<Media>, State<Memory>),
    Admitted(caller): Admitted,
    path: Named,
) -> Result<Response, Refused> {
    let again = of(&requests, &caller, &path, Kind::Image).await?;
    let mut room = memory.room_to_tell();
    let bytes = again.bytes().saturating_mul(COPIES);
    room.cover(bytes)?;
    let mut fields = again.fields;
    if !bring_back(&mut fields, &media, (&mut room, bytes)).await? {
        fields.retain(|name, _| !BEGINNING.contains(&name.as_str()));
    }
    Ok(answer(room, fields))
}

/// Replaces the keys by the images. False if one is missing, since they are deleted once all jobs have ended.
async fn bring_back(
    fields: &mut Map<String, Value>,
    media: &Media,
    (room, mut bytes): (&mut Room, usize),
) -> Result<bool, Refused> {
    for image in images(fields) {
        let Some(key) = image.as_str().and_then(|key| key.parse().ok()) else {
            return Ok(false);
        };
        let Some(stored) = media.get(key).await.map_err(|_| no_store())? else {
            return Ok(false);
        };
        let told = stored.len().div_ceil(3) * 4;
        bytes = bytes.saturating_add(told.saturating_mul(COPIES));
        room.cover(bytes)?;
        *image = STANDARD.encode(stored).into();
    }
    Ok(true)
}

fn images(fields: &mut Map<String, Value>) -> Vec<&mut Value> {
    let mut found = Vec::new();
    for (name, value) in fields.iter_mut() {
        match (name.as_str(), value) {
            ("source_image" | "source_mask", image) => found.push(image),
            ("extra_source_images", Value::Array(extra)) => {
                found.extend(extra.iter_mut().filter_map(|one| one.get_mut("image")));
            }
            _ => {}
        }
    }
    found
}
