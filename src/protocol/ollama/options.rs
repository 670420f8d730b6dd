//! `options` of a request: sampling settings. Options about memory have no effect, since the worker decides.

use serde_json::{Map, Value};

use crate::openai::field::{self, Field};
use crate::openai::{Problem, Shape, Strictness};

use super::fields::OllamaDraft;

const MOST_TOKENS: i64 = u32::MAX as i64;
/// Before the names of the fields.
pub const PLACE: &str = "options.";

const fn option(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut OllamaDraft, Value) -> Result<(), Problem>,
) -> Field<OllamaDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

#[rustfmt::skip]
pub const OPTIONS: &[Field<OllamaDraft>] = &[
    option("options.temperature", Shape::Number(0.0..=2.0), "Sampling temperature; 0 takes the most likely token.", |draft, value| draft.put("temperature", value)),
    option("options.top_p", Shape::Number(0.0..=1.0), "Sample from the most likely tokens with this total probability.", |draft, value| draft.put("top_p", value)),
    option("options.top_k", Shape::Integer(0..=1_000_000), "Sample from this many most likely tokens; 0 disables.", |draft, value| draft.put("top_k", value)),
    option("options.min_p", Shape::Number(0.0..=1.0), "Drop tokens less likely than this fraction of the most likely one.", |draft, value| draft.put("min_p", value)),
    option("options.typical_p", Shape::Number(0.0..=1.0), "Locally typical sampling with this total probability; 1 disables.", |draft, value| draft.put("typical_p", value)),
    option("options.seed", Shape::Integer(i64::MIN..=i64::MAX), "Sampling seed; the same seed samples the same tokens.", |draft, value| draft.put("seed", value)),
    option("options.num_predict", Shape::Integer(-2..=MOST_TOKENS), "Maximum number of generated tokens; the model's limit if negative.", |draft, value| {
        match value.as_f64().is_some_and(|most| most > 0.0) {
            true => draft.put("max_tokens", value),
            false if value == 0 => Err(Problem::unsupported("options.num_predict", "options.num_predict must not be 0 here")),
            false => Ok(()),
        }
    }),
    option("options.stop", Shape::Either(&[Shape::Text, Shape::List]), "Up to 64 strings that end the answer.", |draft, value| {
        match value.as_array().is_some_and(Vec::is_empty) {
            true => Ok(()),
            false => draft.put("stop", value),
        }
    }),
    option("options.repeat_penalty", Shape::Number(0.01..=10.0), "Penalty for tokens that already occurred; 1 disables.", |draft, value| draft.put("repetition_penalty", value)),
    option("options.presence_penalty", Shape::Number(-2.0..=2.0), "Penalty for tokens that already occurred.", |draft, value| draft.put("presence_penalty", value)),
    option("options.frequency_penalty", Shape::Number(-2.0..=2.0), "Penalty for tokens by the number of their occurrences.", |draft, value| draft.put("frequency_penalty", value)),
    option("options.repeat_last_n", Shape::Integer(-1..=MOST_TOKENS), "No effect: penalties count the whole text.", |_, _| Ok(())),
    option("options.num_ctx", Shape::Integer(1..=MOST_TOKENS), "No effect: the worker decides how long a model's context is.", |_, _| Ok(())),
    option("options.num_keep", Shape::Integer(-1..=MOST_TOKENS), "No effect: prompts that are too long are refused.", |_, _| Ok(())),
    option("options.num_batch", Shape::Integer(1..=MOST_TOKENS), "No effect: the worker decides.", |_, _| Ok(())),
    option("options.num_gpu", Shape::Integer(-1..=MOST_TOKENS), "No effect: the worker decides.", |_, _| Ok(())),
    option("options.main_gpu", Shape::Integer(-1..=MOST_TOKENS), "No effect: the worker decides.", |_, _| Ok(())),
    option("options.num_thread", Shape::Integer(0..=MOST_TOKENS), "No effect: the worker decides.", |_, _| Ok(())),
    option("options.use_mmap", Shape::Flag, "No effect: the worker decides.", |_, _| Ok(())),
    option("options.use_mlock", Shape::Flag, "No effect: the worker decides.", |_, _| Ok(())),
    option("options.numa", Shape::Flag, "No effect: the worker decides.", |_, _| Ok(())),
    option("options.low_vram", Shape::Flag, "No effect: the worker decides.", |_, _| Ok(())),
    option("options.penalize_newline", Shape::Flag, "Only true: newlines are tokens like others.", |_, value| only("options.penalize_newline", value == true, "true")),
    option("options.mirostat", Shape::Integer(0..=2), "Only 0: no worker has this sampler.", |_, value| only("options.mirostat", value == 0, "0")),
    option("options.mirostat_tau", Shape::Number(0.0..=100.0), "No effect without mirostat.", |_, _| Ok(())),
    option("options.mirostat_eta", Shape::Number(0.0..=100.0), "No effect without mirostat.", |_, _| Ok(())),
    option("options.tfs_z", Shape::Number(0.0..=100.0), "Only 1: no worker has this sampler.", |_, value| only("options.tfs_z", value.as_f64() == Some(1.0), "1")),
];

fn only(name: &'static str, is_honoured: bool, values: &str) -> Result<(), Problem> {
    match is_honoured {
        true => Ok(()),
        false => Err(Problem::unsupported(
            name,
            format!("{name} must be {values} here"),
        )),
    }
}

/// Whether it is read, by its name in `options`.
pub fn is_known(name: &str) -> bool {
    let names = OPTIONS.iter().map(|option| option.name);
    names
        .filter_map(|known| known.strip_prefix(PLACE))
        .any(|known| known == name)
}

pub fn read(options: Value, draft: &mut OllamaDraft) -> Result<(), Problem> {
    let Value::Object(options) = options else {
        return Ok(());
    };
    let placed: Map<String, Value> = options
        .into_iter()
        .map(|(name, value)| (format!("{PLACE}{name}"), value))
        .collect();
    field::read(OPTIONS, placed, Strictness::Refuse, draft)
}
