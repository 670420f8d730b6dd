//! What a legacy coordinator answered a pop with, as our own worker reads it: without trust in what others leave out,
//! send as null or add.

use serde_json::{Map, Value};

use crate::job::TextRequest;
use crate::legacy::{Body, Refusal};

use super::job::text_of;
use super::params::ModelGenerationInputText;

#[derive(Debug, Clone, PartialEq)]
pub enum PoppedText {
    /// There is no work, and perhaps reasons why.
    Nothing {
        skipped: Map<String, Value>,
    },
    Job(Box<TextJob>),
    /// There is work that cannot be understood: it has to be given back as faulted.
    Unreadable {
        ids: Vec<String>,
        why: Refusal,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct TextJob {
    /// What each of its outputs is submitted under: one, or as many as were asked for.
    pub ids: Vec<String>,
    pub model: String,
    /// Seconds before it is taken away.
    pub ttl: Option<u64>,
    pub text: TextRequest,
}

/// A message to workers that came with an answer, fit to be shown on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub id: String,
    pub origin: String,
    pub text: String,
}

/// Of a message, in characters.
const LONGEST_MESSAGE: usize = 1000;

impl Told {
    pub fn all_in(reply: &Value) -> Vec<Self> {
        let messages = reply["messages"].as_array().into_iter().flatten();
        messages.filter_map(Self::read).collect()
    }

    fn read(message: &Value) -> Option<Self> {
        let text = on_one_line(message["message"].as_str()?);
        let origin = message["origin"].as_str().unwrap_or("the coordinator");
        // Without an id it is known by what it says.
        let id = message["id"].as_str().unwrap_or(&text);
        Some(Self {
            id: id.to_owned(),
            origin: on_one_line(origin),
            text,
        })
    }
}

fn on_one_line(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().take(LONGEST_MESSAGE).map(plain).collect()
}

impl PoppedText {
    pub fn read(mut reply: Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let Some(id) = text(&reply["id"]).or_else(|| text(&reply["ids"][0])) else {
            let skipped = match taken(&mut reply, "skipped") {
                Value::Object(skipped) => skipped,
                _ => Map::new(),
            };
            return Self::Nothing { skipped };
        };
        let ids = all_ids(&reply["ids"], id);
        match payload(taken(&mut reply, "payload")) {
            Ok(request) => Self::Job(Box::new(TextJob {
                ids,
                model: text(&reply["model"]).unwrap_or_default(),
                ttl: reply["ttl"].as_u64(),
                text: request,
            })),
            Err(why) => Self::Unreadable { ids, why },
        }
    }
}

/// A coordinator that gives one job may leave out the list.
fn all_ids(list: &Value, first: String) -> Vec<String> {
    let ids = list.as_array().into_iter().flatten();
    let ids: Vec<String> = ids.filter_map(Value::as_str).map(str::to_owned).collect();
    match ids.contains(&first) {
        true => ids,
        false => vec![first],
    }
}

fn taken(reply: &mut Value, name: &str) -> Value {
    reply.get_mut(name).map(Value::take).unwrap_or_default()
}

fn payload(payload: Value) -> Result<TextRequest, Refusal> {
    let Value::Object(mut entries) = payload else {
        return Err(Refusal::invalid("payload", "must be an object"));
    };
    let Some(Value::String(prompt)) = entries.remove("prompt") else {
        return Err(Refusal::invalid("payload.prompt", "must be a string"));
    };
    entries.retain(|_, value| !value.is_null());
    let params = ModelGenerationInputText::read(Value::Object(entries))?;
    Ok(text_of(prompt, &params, 0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{PoppedText, TextJob, Told};
    use crate::job::{JobId, TextInput};
    use crate::legacy::Body;
    use crate::legacy::text::job::Lengths;
    use crate::legacy::text::payload::{
        GenerationPayloadText, ModelPayloadText, NoValidRequestFoundText,
    };
    use crate::legacy::text::request::GenerationInputText;

    fn job(reply: Value) -> TextJob {
        match PoppedText::read(reply) {
            PoppedText::Job(job) => *job,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn our_worker_reads_what_our_coordinator_writes() {
        let body = json!({
            "prompt": "once", "params": {"temperature": 0.7, "tfs": 0.9, "stop_sequence": ["."], "singleline": true},
        });
        let text = GenerationInputText::read(body).unwrap().text(0);
        let lengths = Lengths {
            context: 4096,
            output: 80,
        };
        let id = JobId::random();
        let reply = GenerationPayloadText {
            payload: ModelPayloadText::of(&text, "once".to_owned(), lengths),
            id: Some(id),
            ids: vec![id],
            ttl: Some(150),
            model: Some("m".to_owned()),
            ..GenerationPayloadText::empty(NoValidRequestFoundText::default(), Vec::new())
        };
        let read = job(serde_json::to_value(reply).unwrap());
        assert_eq!(
            (read.ids, read.model.as_str(), read.ttl),
            (vec![id.to_string()], "m", Some(150))
        );
        assert_eq!(read.text.stop, text.stop);
        assert_eq!(read.text.max_tokens, text.max_tokens);
        let (read, sent) = (read.text.sampling, text.sampling);
        assert_eq!(read.temperature, sent.temperature);
        let (read, sent) = (read.legacy.unwrap(), sent.legacy.unwrap());
        assert_eq!((read.tfs, read.singleline), (sent.tfs, sent.singleline));
    }

    #[test]
    fn nulls_and_missing_keys_of_others_are_no_reason_to_stop() {
        let read = job(json!({
            "ids": ["x"], "payload": {"prompt": "once", "top_k": null, "quiet": true, "n": 1},
        }));
        assert_eq!((read.ids, read.ttl), (vec!["x".to_owned()], None));
        assert_eq!(read.text.input, TextInput::Prompt("once".to_owned()));
        assert_eq!(read.text.max_tokens, Some(80));
    }

    #[test]
    fn several_outputs_of_one_request_have_an_id_each() {
        let ids = |reply: Value| {
            let mut reply = reply;
            reply["payload"] = json!({"prompt": "once"});
            job(reply).ids
        };
        assert_eq!(ids(json!({"id": "a", "ids": ["a", "b"]})), ["a", "b"]);
        assert_eq!(ids(json!({"id": "a", "ids": []})), ["a"]);
        assert_eq!(ids(json!({"id": "a"})), ["a"]);
    }

    #[test]
    fn no_job_comes_with_reasons_or_without() {
        let nothing = |reply| match PoppedText::read(reply) {
            PoppedText::Nothing { skipped } => skipped.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            nothing(json!({"id": null, "ids": [], "skipped": {"models": 3}})),
            1
        );
        assert_eq!(nothing(json!({"id": null})), 0);
        assert_eq!(nothing(json!([])), 0);
        assert_eq!(nothing(json!("x")), 0);
    }

    #[test]
    fn what_workers_are_told_is_read_as_one_line_whatever_is_missing() {
        let told = Told::all_in(&json!({"messages": [
            {"id": "1", "message": "update,\nplease", "origin": "m", "expiry": "soon"},
            {"message": "x".repeat(5000)},
            {"id": "2"},
            7,
        ]}));
        assert_eq!(told.len(), 2);
        assert_eq!(
            (&*told[0].id, &*told[0].text, &*told[0].origin),
            ("1", "update, please", "m")
        );
        assert_eq!(told[1].text.len(), 1000);
        assert_eq!(told[1].id, told[1].text);
        assert!(Told::all_in(&json!([])).is_empty());
    }

    #[test]
    fn a_job_nobody_understands_is_known_by_its_ids() {
        for payload in [
            json!(null),
            json!({}),
            json!({"prompt": "p", "max_length": "many"}),
        ] {
            let reply = json!({"id": "x", "ids": ["x", "y"], "payload": payload});
            let read = PoppedText::read(reply);
            assert!(matches!(read, PoppedText::Unreadable { ids, .. } if ids == ["x", "y"]));
        }
    }
}
