//! The capabilities that a polling worker states in its pop for forms.

use std::sync::Arc;

use crate::pollers::Ask;
use crate::storage::Said;
use muster_protocol::job::{Capabilities, Kind, MediaNeeds, Reach};
use muster_protocol::legacy::annotation::{form_of, model_of};
use muster_protocol::legacy::interrogation::Form;
use muster_protocol::legacy::pop::InterrogationPopInput;
use muster_protocol::legacy::words::{ControlType, Word};

const TILE: u32 = 512 * 512;

pub fn ask(asked: &InterrogationPopInput, name: &str) -> Ask {
    // Without forms, the simplest one is assumed.
    let forms = asked.forms.clone().filter(|forms| !forms.is_empty());
    let forms = forms.unwrap_or_else(|| vec![Form::Caption]);
    let words = forms.iter().map(|form| form.word().to_owned());
    let maps = maps(asked);
    let takes: Vec<String> = words.chain(maps).collect();
    // A worker may list annotation types and still not offer annotation.
    let draws_maps = forms.contains(&Form::Annotation);
    let is_offered = |model: &&String| draws_maps || form_of(model) != Some(Form::Annotation);
    let models = takes.iter().filter(is_offered);
    Ask {
        name: name.into(),
        agent: asked.bridge_agent.as_str().into(),
        kind: Kind::Form,
        models: models.map(|model| Arc::from(model.as_str())).collect(),
        said: Said {
            agent: asked.bridge_agent.clone(),
            threads: asked.threads,
            takes,
            ..Said::default()
        },
        prefers: Vec::new(),
        // Forms have no `slow_workers`.
        capabilities: Capabilities::TIMELY,
        reach: Reach {
            media: MediaNeeds {
                pixels: asked.max_tiles.saturating_mul(TILE),
                ..MediaNeeds::ENDLESS
            },
            ..Reach::ENDLESS
        },
        threads: asked.threads,
    }
}

/// The queue's model names for the control maps that the worker can draw, without duplicates.
fn maps(asked: &InterrogationPopInput) -> impl Iterator<Item = String> {
    let drawn = asked.annotation_types.as_deref().unwrap_or_default();
    let kinds = ControlType::ALL.iter().copied();
    let is_drawn = |kind: &ControlType| drawn.iter().any(|drawn| drawn == kind.word());
    let kinds = kinds.filter(move |kind| kind.is_annotation() && is_drawn(kind));
    kinds.map(model_of)
}

/// Removes forms that produce images while the media store is full, if the worker offers others: it would get the same
/// job again and again.
pub fn leave_out_images(models: &mut Vec<Arc<str>>) {
    let brings_none = |model: &Arc<str>| !form_of(model).is_some_and(Form::makes_image);
    if models.iter().any(brings_none) {
        models.retain(brings_none);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Ask, Capabilities, InterrogationPopInput, ask, leave_out_images};
    use muster_protocol::legacy::Body as _;

    fn asks(more: &Value) -> Ask {
        let mut asked = json!({"name": "w", "bridge_agent": "test:1:x"});
        for (name, value) in more.as_object().unwrap() {
            asked[name] = value.clone();
        }
        ask(&InterrogationPopInput::read(asked).unwrap(), "w")
    }

    #[test]
    fn control_maps_are_offered_by_their_kinds_and_known_where_none_is_offered() {
        let check = |forms: &[&str], models: &[&str], takes: &[&str]| {
            let kinds = ["depth", "hough", "a later one", "canny", "depth"];
            let ask = asks(&json!({"forms": forms, "annotation_types": kinds}));
            let offered: Vec<&str> = ask.models.iter().map(|model| &**model).collect();
            assert_eq!(
                (offered.as_slice(), ask.said.takes.as_slice()),
                (models, &*owned(takes))
            );
        };
        let maps = ["annotation:canny", "annotation:depth"];
        let all = ["annotation", maps[0], maps[1]];
        check(&["annotation"], &all, &all);
        check(&["caption"], &["caption"], &["caption", maps[0], maps[1]]);
        let none = asks(&json!({"forms": ["annotation"]}));
        assert_eq!(none.said.takes, ["annotation"]);
    }

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn images_are_left_out_where_there_is_no_room_for_them_and_anything_else_is_done() {
        let check = |models: &[&str], left: &[&str]| {
            let mut models: Vec<_> = models.iter().map(|model| (*model).into()).collect();
            leave_out_images(&mut models);
            let models: Vec<&str> = models.iter().map(|model| &**model).collect();
            assert_eq!(models, left);
        };
        check(&["GFPGAN", "caption", "nsfw"], &["caption", "nsfw"]);
        check(&["GFPGAN"], &["GFPGAN"]);
        let maps = ["annotation", "annotation:canny"];
        check(&[maps[0], maps[1], "caption"], &["caption"]);
        check(&maps, &maps);
    }

    #[test]
    fn nobody_who_looks_at_images_is_very_slow() {
        assert!(asks(&json!({})).capabilities.contains(Capabilities::TIMELY));
    }
}
