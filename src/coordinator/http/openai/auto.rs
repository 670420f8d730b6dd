//! `auto` and its kin: names of no model, for which the door takes the best one that is online for the request.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::coordinator::kudos::Prices;
use crate::coordinator::switchboard::ModelOnline;
use crate::protocol::job::Kind;
use crate::protocol::openai::chat::ChatRequest;

/// What the best one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auto {
    /// The largest that has room.
    Any,
    /// The smallest that has room.
    Fast,
    /// The largest, even if one has to wait for it.
    Quality,
}

/// The name all of them go by.
pub const AUTO: &str = "auto";
/// Those that want something in particular.
pub const PARTICULAR: [&str; 2] = ["auto:fast", "auto:quality"];

impl Auto {
    /// None where the name is that of a model.
    pub fn called(name: &str) -> Option<Self> {
        let [fast, quality] = PARTICULAR;
        match name {
            AUTO => Some(Self::Any),
            name if name == fast => Some(Self::Fast),
            name if name == quality => Some(Self::Quality),
            _ => None,
        }
    }

    /// The one to ask. If none can do all that the request wants, one that says what is missing.
    pub fn choose(
        self,
        request: &ChatRequest,
        online: &[ModelOnline],
        sizes: &Prices,
    ) -> Option<Arc<str>> {
        let texts = online
            .iter()
            .filter(|model| model.kinds.contains(Kind::Text));
        let best = texts.max_by(|one, other| {
            let able = can_serve(one, request).cmp(&can_serve(other, request));
            able.then_with(|| self.compare(one, other, sizes))
        });
        best.map(|model| model.name.clone())
    }

    fn compare(self, one: &ModelOnline, other: &ModelOnline, sizes: &Prices) -> Ordering {
        let room = has_room(one).cmp(&has_room(other));
        let size = sizes
            .billions(&one.name)
            .total_cmp(&sizes.billions(&other.name));
        match self {
            Self::Any => room.then(size),
            Self::Fast => room.then(size.reverse()),
            Self::Quality => size.then(room),
        }
    }
}

fn can_serve(model: &ModelOnline, request: &ChatRequest) -> bool {
    model.capabilities.contains(request.requires()) && model.context > request.least_prompt_tokens()
}

fn has_room(model: &ModelOnline) -> bool {
    model.running < model.slots
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::Auto;
    use crate::coordinator::kudos::Prices;
    use crate::coordinator::switchboard::ModelOnline;
    use crate::protocol::job::{Capabilities, Formats, Kind, Kinds};
    use crate::protocol::openai::Strictness;
    use crate::protocol::openai::chat::ChatRequest;

    fn online(name: &str, running: u32, capabilities: Capabilities, context: u32) -> ModelOnline {
        ModelOnline {
            name: name.into(),
            kinds: Kinds::from(Kind::Text),
            formats: Formats::NEUTRAL,
            capabilities,
            modalities: Vec::new(),
            context,
            workers: 1,
            slots: 1,
            running,
            queued: 0,
        }
    }

    fn chosen(auto: Auto, fields: Value, models: &[ModelOnline]) -> Option<Arc<str>> {
        let mut body = json!({"model": "auto", "messages": [{"role": "user", "content": "hi"}]});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        let request = ChatRequest::read(body, Strictness::Refuse).unwrap();
        let sizes = Prices::default().with("small", 0.5).with("middle", 3.0);
        auto.choose(&request, models, &sizes.with("large", 8.0))
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
}
