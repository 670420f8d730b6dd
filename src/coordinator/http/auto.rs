//! `auto` and its variants: names that stand for the best online model for a request.
//!
//! A model counts while a worker would answer at once by it; a polling worker only while it polls. Capabilities come
//! first, then free slots; beyond that, "best" depends on the name: the largest model that answers in a comfortable
//! time, the fastest by its workers' measured speed, or the largest of all.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;
use std::time::Duration;

use crate::kudos::Prices;
use crate::switchboard::ModelOnline;
use muster_protocol::job::Formats;
use muster_protocol::openai::chat::ChatRequest;

/// How `auto` ranks models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auto {
    /// The largest with a free slot and a comfortable answer time.
    Any,
    /// The fastest with a free slot.
    Fast,
    /// The largest, even with a wait.
    Quality,
}

/// A model to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub model: Arc<str>,
    /// A later candidate has a free slot, so this one must start at once.
    pub is_hurried: bool,
}

/// The common name.
pub const AUTO: &str = "auto";
/// Names with a preference.
pub const PARTICULAR: [&str; 2] = ["auto:fast", "auto:quality"];

/// Models that answer within this time compete by size, slower ones by speed.
const COMFORTABLE: Duration = Duration::from_secs(20);
/// Answer times that differ by less than this factor count as equal, since measurements are noisy.
const ALIKE: f64 = 1.25;
/// Models tried for one request.
const MOST_TRIED: usize = 4;

impl Candidate {
    /// A model requested by its name.
    pub fn only(model: Arc<str>) -> Self {
        Self {
            model,
            is_hurried: false,
        }
    }
}

impl Auto {
    /// `None` for the name of a model.
    pub fn called(name: &str) -> Option<Self> {
        let [fast, quality] = PARTICULAR;
        match name {
            AUTO => Some(Self::Any),
            name if name == fast => Some(Self::Fast),
            name if name == quality => Some(Self::Quality),
            _ => None,
        }
    }

    /// Models to try, best first: those with every capability that the request needs, or a single one, whose error
    /// names the missing capability.
    pub fn candidates(
        self,
        request: &ChatRequest,
        formats: Formats,
        online: &[ModelOnline],
        sizes: &Prices,
    ) -> Vec<Candidate> {
        let mut models: Vec<&ModelOnline> = online.iter().filter(|it| is_candidate(it)).collect();
        models.sort_by(|one, other| {
            let able = can_serve(one, request, formats).cmp(&can_serve(other, request, formats));
            able.then_with(|| self.compare(one, other, sizes)).reverse()
        });
        let able = models
            .iter()
            .take_while(|model| can_serve(model, request, formats))
            .count();
        models.truncate(able.clamp(1, MOST_TRIED));
        let room: Vec<bool> = models.iter().map(|model| model.free > 0).collect();
        let is_hurried = |index: usize| self != Self::Quality && room[index + 1..].contains(&true);
        let models = models.into_iter().enumerate();
        models
            .map(|(index, model)| Candidate {
                model: model.name.clone(),
                is_hurried: is_hurried(index),
            })
            .collect()
    }

    /// The text models that this mode chooses from, the best first, for a request that any of them can serve.
    pub fn ranked<'a>(self, online: &'a [ModelOnline], sizes: &Prices) -> Vec<&'a ModelOnline> {
        let mut models: Vec<&ModelOnline> = online.iter().filter(|it| is_candidate(it)).collect();
        models.sort_by(|one, other| self.compare(one, other, sizes).reverse());
        models
    }

    /// The better model is greater.
    fn compare(self, one: &ModelOnline, other: &ModelOnline, sizes: &Prices) -> Ordering {
        let size = |model: &ModelOnline| sizes.billions(&model.name);
        let room = |model: &ModelOnline| model.free > 0;
        let pace = |model: &ModelOnline| Reverse(pace_step(model.answer_time));
        let by_size = size(one).total_cmp(&size(other));
        let by_room = room(one).cmp(&room(other));
        let by_pace = pace(one).cmp(&pace(other));
        match self {
            Self::Any => by_room.then_with(|| match (is_comfortable(one), is_comfortable(other)) {
                (true, true) => by_size.then(by_pace),
                (false, false) => by_pace.then(by_size),
                (one, other) => one.cmp(&other),
            }),
            Self::Fast => by_room.then(by_pace).then(by_size.reverse()),
            Self::Quality => by_size.then(by_room).then(by_pace),
        }
    }
}

/// Whether a chat with it is answered at once.
pub fn is_chat_model(model: &ModelOnline) -> bool {
    model.writes_text() && model.is_interactive()
}

/// Adapters are used only by name.
pub fn is_candidate(model: &ModelOnline) -> bool {
    is_chat_model(model) && model.details.parent.is_none()
}

fn can_serve(model: &ModelOnline, request: &ChatRequest, formats: Formats) -> bool {
    model.formats.meets(formats)
        && model.capabilities.contains(request.requires())
        && model.writes_text()
        && model.context > request.least_prompt_tokens()
}

fn is_comfortable(model: &ModelOnline) -> bool {
    model.answer_time <= COMFORTABLE
}

fn pace_step(time: Duration) -> i64 {
    let steps = time.as_secs_f64().max(0.001).ln() / ALIKE.ln();
    steps.round() as i64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Auto, Candidate};
    use crate::http::text::order::formats;
    use crate::kudos::Prices;
    use crate::switchboard::ModelOnline;
    use muster_protocol::job::{Capabilities, Formats, Kind, Kinds, MemoryStay};
    use muster_protocol::openai::Strictness;
    use muster_protocol::openai::chat::ChatRequest;

    fn online(name: &str, running: u32, capabilities: Capabilities, context: u32) -> ModelOnline {
        ModelOnline {
            name: name.into(),
            kinds: Kinds::from(Kind::Text),
            formats: Formats::NEUTRAL,
            capabilities: capabilities.with(Capabilities::INTERACTIVE),
            modalities: Vec::new(),
            context,
            reach: None,
            size: None,
            voices: Arc::default(),
            clip: None,
            details: Arc::default(),
            workers: 1,
            slots: 1,
            running,
            free: 1 - running,
            answer_time: Duration::from_secs(10),
            queued: 0,
            stay: MemoryStay::default(),
        }
    }

    fn chosen(auto: Auto, fields: Value, models: &[ModelOnline]) -> Option<Arc<str>> {
        let candidates = candidates(auto, fields, models);
        candidates.into_iter().map(|it| it.model).next()
    }

    fn candidates(auto: Auto, fields: Value, models: &[ModelOnline]) -> Vec<Candidate> {
        let mut body = json!({"model": "auto", "messages": [{"role": "user", "content": "hi"}]});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        let request = ChatRequest::read(body, Strictness::Refuse).unwrap();
        let sizes = Prices::default().with("small", 0.5).with("middle", 3.0);
        let formats = formats(&request, None);
        auto.candidates(&request, formats, models, &sizes.with("large", 8.0))
    }

    #[test]
    fn the_best_is_what_was_asked_for_and_can_serve() {
        let tools = Capabilities::TOOLS;
        let models = [
            online("large", 1, Capabilities::default(), 8192),
            online("middle", 0, tools, 4096),
            online("small", 0, tools, 4096),
        ];
        let check = |auto, fields, expected: &str| {
            assert_eq!(
                chosen(auto, fields, &models).as_deref(),
                Some(expected),
                "{auto:?}"
            );
        };
        check(Auto::Any, json!({}), "middle");
        check(Auto::Fast, json!({}), "small");
        check(Auto::Quality, json!({}), "large");
        let look = json!([{"type": "function", "function": {"name": "look"}}]);
        check(Auto::Quality, json!({"tools": look}), "middle");
        let long = json!([{"role": "user", "content": "x".repeat(6 * 5000)}]);
        check(Auto::Fast, json!({"messages": long}), "large");
        check(Auto::Any, json!({"logprobs": true}), "middle");
        assert_eq!(chosen(Auto::Any, json!({}), &[]), None);
    }

    #[test]
    fn auto_goes_by_measured_speed_and_fast_by_nothing_else() {
        let model = |name: &str, secs: u64| ModelOnline {
            answer_time: Duration::from_secs(secs),
            ..online(name, 0, Capabilities::default(), 8192)
        };
        let check = |models: &[ModelOnline], any: &str, fast: &str| {
            let name = |auto| chosen(auto, json!({}), models);
            assert_eq!(name(Auto::Any).as_deref(), Some(any));
            assert_eq!(name(Auto::Fast).as_deref(), Some(fast));
            assert_eq!(name(Auto::Quality).as_deref(), Some("large"));
        };
        check(&[model("large", 90), model("small", 4)], "small", "small");
        check(&[model("large", 15), model("small", 4)], "large", "small");
        check(&[model("large", 3), model("small", 9)], "large", "large");
        check(&[model("large", 60), model("small", 90)], "large", "large");
    }

    #[test]
    fn a_model_whose_workers_have_ceased_to_poll_is_no_candidate() {
        let away = ModelOnline {
            capabilities: Capabilities::default(),
            ..online("large", 0, Capabilities::default(), 8192)
        };
        let models = [away, online("small", 0, Capabilities::default(), 8192)];
        for auto in [Auto::Any, Auto::Fast, Auto::Quality] {
            let found = candidates(auto, json!({}), &models);
            assert_eq!(found, [Candidate::only("small".into())]);
        }
    }

    #[test]
    fn a_model_that_is_only_polled_gets_what_its_workers_can_be_told() {
        let polled = ModelOnline {
            formats: Formats::LEGACY,
            ..online("large", 0, Capabilities::default(), 8192)
        };
        let models = [polled, online("small", 0, Capabilities::default(), 8192)];
        assert_eq!(
            chosen(Auto::Any, json!({}), &models).as_deref(),
            Some("large")
        );
        let seeded = chosen(Auto::Any, json!({"seed": 7}), &models);
        assert_eq!(seeded.as_deref(), Some("small"));
    }

    #[test]
    fn the_next_model_is_tried_where_it_is_free() {
        let models = |small: u32| {
            let able = Capabilities::default();
            [
                online("large", 0, able, 8192),
                online("small", small, able, 8192),
            ]
        };
        let hurried = |auto, small| {
            let found = candidates(auto, json!({}), &models(small));
            found.iter().map(|it| it.is_hurried).collect::<Vec<_>>()
        };
        assert_eq!(hurried(Auto::Any, 0), [true, false]);
        assert_eq!(hurried(Auto::Any, 1), [false, false]);
        assert_eq!(hurried(Auto::Quality, 0), [false, false]);
    }
}
