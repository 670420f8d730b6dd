//! `GET /v1/styles?job_type=`: the public styles that users made by the AI Horde API, the most used first.

use axum::extract::{RawQuery, State};
use serde_json::{Map, Value, json};

use super::reply::Reply;
use super::statistics::{parameter, unavailable};
use crate::error::ApiError;
use crate::storage::{Store, StylePage};
use crate::values::styles::Style;
use muster_protocol::legacy::style::Sort;
use muster_protocol::legacy::words::Making;
use muster_protocol::openai::Problem;

/// Pages read per type; with 25 styles on a page, 100 styles.
const PAGES: u32 = 4;

pub async fn list(
    State(store): State<Store>,
    RawQuery(query): RawQuery,
) -> Result<Reply, ApiError> {
    let wanted = makings(parameter(query.as_deref(), "job_type").as_deref())?;
    let mut styles = Vec::new();
    for making in wanted {
        for page in 0..PAGES {
            let page = StylePage {
                making: *making,
                sort: Sort::Popular,
                page,
                tag: None,
                model: None,
            };
            let found = store.styles(&page).await.map_err(unavailable)?;
            let is_last = found.is_empty();
            styles.extend(found.iter().map(entry));
            if is_last {
                break;
            }
        }
    }
    Ok(Reply(json!({"styles": styles})))
}

/// Videos have no styles.
fn makings(job_type: Option<&str>) -> Result<&'static [Making], ApiError> {
    match job_type {
        None => Ok(&[Making::Image, Making::Text]),
        Some("image") => Ok(&[Making::Image]),
        Some("text") => Ok(&[Making::Text]),
        Some("video") => Ok(&[]),
        Some(_) => {
            let message = "job_type must be image, text or video";
            Err(Problem::invalid("job_type", message).into())
        }
    }
}

fn entry(style: &Style) -> Value {
    let params = set_params(style);
    let locked: Vec<&String> = params.keys().collect();
    json!({
        "id": style.id,
        "name": style.full_name(),
        "description": style.recipe.info,
        "model": style.recipe.models.first(),
        "job_type": match style.recipe.making() {
            Making::Image => "image",
            Making::Text => "text",
        },
        "aspect": aspect(&params),
        "locked": locked,
        "nsfw": style.recipe.nsfw,
    })
}

/// The parameters that the style sets, which a request cannot change.
fn set_params(style: &Style) -> Map<String, Value> {
    let params = serde_json::from_str(&style.recipe.params.json());
    let Ok(Value::Object(mut params)) = params else {
        return Map::new();
    };
    params.retain(|_, value| !value.is_null());
    params
}

/// `16:9`, where the style sets both sides.
fn aspect(params: &Map<String, Value>) -> Option<String> {
    let side = |name: &str| params.get(name)?.as_u64().filter(|side| *side > 0);
    let (width, height) = (side("width")?, side("height")?);
    let common = common_divisor(width, height);
    Some(format!("{}:{}", width / common, height / common))
}

fn common_divisor(one: u64, other: u64) -> u64 {
    match other {
        0 => one,
        other => common_divisor(other, one % other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{aspect, makings};

    fn params(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn an_aspect_is_the_shortest_ratio_of_both_sides() {
        let sides = |width, height| aspect(&params(json!({"width": width, "height": height})));
        assert_eq!(sides(1024, 1024).as_deref(), Some("1:1"));
        assert_eq!(sides(1024, 576).as_deref(), Some("16:9"));
        assert_eq!(aspect(&params(json!({"width": 512}))), None);
    }

    #[test]
    fn a_job_type_without_styles_is_empty_and_an_unknown_one_is_refused() {
        assert!(makings(Some("video")).is_ok_and(<[_]>::is_empty));
        assert!(makings(Some("song")).is_err());
    }
}
