//! Every field of the chat API, declared once. A listed field is honoured, or refused if its value cannot be honoured;
//! an unlisted field is refused by name.

use serde_json::Value;

use crate::job::OutputFormat;
use crate::openai::field::{self, Field};
use crate::openai::shape::{text, whole};
use crate::openai::{Problem, Shape, Strictness};

use super::request::Draft;
use super::{StreamOptions, format, reasoning, tools};

/// The most choices of one request.
const MOST_CHOICES: i64 = 16;
pub(super) const MOST_TOKENS: i64 = u32::MAX as i64;
pub(super) const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const TIERS: &[&str] = &["auto", "default", "flex", "scale", "priority", "fast"];

const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut Draft, Value) -> Result<(), Problem>,
) -> Field<Draft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

#[rustfmt::skip]
pub const FIELDS: &[Field<Draft>] = &[
    field("model", Shape::Text, "Model name as listed by /v1/models.", |draft, value| {
        draft.model = model(text(value))?;
        Ok(())
    }),
    field("messages", Shape::List, "Conversation so far: objects with role and content.", |draft, value| {
        draft.messages = Some(list(value));
        Ok(())
    }),
    field("stream", Shape::Flag, "Send chunks as they are generated.", |draft, value| {
        draft.stream = value == true;
        Ok(())
    }),
    field("stream_options", Shape::Object, "include_usage, include_obfuscation and continuous_usage_stats, as vLLM has it; streams only.", |draft, value| {
        draft.stream_options = Some(stream_options(&value, draft.strictness)?);
        Ok(())
    }),
    field("n", Shape::Integer(1..=MOST_CHOICES), "Number of choices.", |draft, value| {
        draft.choices = count(&value);
        Ok(())
    }),
    field("max_tokens", Shape::Integer(1..=MOST_TOKENS), "Older name of max_completion_tokens.", |draft, value| {
        draft.max_tokens = count(&value);
        Ok(())
    }),
    field("max_completion_tokens", Shape::Integer(1..=MOST_TOKENS), "Maximum number of generated tokens, including reasoning.", |draft, value| {
        draft.max_completion_tokens = count(&value);
        Ok(())
    }),
    field("stop", Shape::Either(&[Shape::Text, Shape::List]), "Up to 64 strings that end the answer and are not included in it.", |draft, value| {
        draft.text.stop = stops(value)?;
        Ok(())
    }),
    field("temperature", Shape::Number(0.0..=2.0), "Sampling temperature; 0 takes the most likely token.", |draft, value| {
        draft.text.sampling.temperature = number(&value);
        Ok(())
    }),
    field("top_p", Shape::Number(0.0..=1.0), "Sample from the most likely tokens with this total probability.", |draft, value| {
        draft.text.sampling.top_p = number(&value);
        Ok(())
    }),
    field("top_k", Shape::Integer(-1..=1_000_000), "Sample from this many most likely tokens; 0 or -1 disables. Not in OpenAI's API.", |draft, value| {
        draft.text.sampling.top_k = Some(count(&value).unwrap_or(0));
        Ok(())
    }),
    field("min_p", Shape::Number(0.0..=1.0), "Drop tokens less likely than this fraction of the most likely one. Not in OpenAI's API.", |draft, value| {
        draft.text.sampling.min_p = number(&value);
        Ok(())
    }),
    field("repetition_penalty", Shape::Number(0.01..=10.0), "Penalty for tokens that already occurred; 1 disables. Not in OpenAI's API.", |draft, value| {
        draft.text.sampling.repetition_penalty = number(&value);
        Ok(())
    }),
    field("repeat_penalty", Shape::Number(0.01..=10.0), "Alias of repetition_penalty. Not in OpenAI's API.", |draft, value| {
        draft.repeat_penalty = number(&value);
        Ok(())
    }),
    field("typical_p", Shape::Number(0.0..=1.0), "Locally typical sampling with this total probability; 1 disables. Not in OpenAI's API.", |draft, value| {
        let legacy = draft.text.sampling.legacy.get_or_insert_default();
        legacy.typical = value.as_f64();
        Ok(())
    }),
    field("min_tokens", Shape::Integer(0..=MOST_TOKENS), "Minimum number of generated tokens. Not in OpenAI's API.", |draft, value| {
        draft.text.stop_rules.min_tokens = count(&value).filter(|least| *least > 0);
        Ok(())
    }),
    field("ignore_eos", Shape::Flag, "Ignore the model's end-of-sequence token. Not in OpenAI's API.", |draft, value| {
        draft.text.stop_rules.ignore_eos = value == true;
        Ok(())
    }),
    field("stop_token_ids", Shape::List, "Up to 128 token ids that end the answer and are not included in it. Not in OpenAI's API.", |draft, value| {
        draft.text.stop_rules.stop_token_ids = token_ids("stop_token_ids", list(value))?;
        Ok(())
    }),
    field("presence_penalty", Shape::Number(-2.0..=2.0), "Penalty for tokens that already occurred.", |draft, value| {
        draft.text.sampling.presence_penalty = number(&value);
        Ok(())
    }),
    field("frequency_penalty", Shape::Number(-2.0..=2.0), "Penalty for tokens by the number of their occurrences.", |draft, value| {
        draft.text.sampling.frequency_penalty = number(&value);
        Ok(())
    }),
    field("logit_bias", Shape::Object, "Map of token ids to biases from -100 to 100, added to their logits.", |draft, value| {
        draft.text.sampling.logit_bias = logit_bias(&value)?;
        Ok(())
    }),
    field("seed", Shape::Integer(i64::MIN..=i64::MAX), "Sampling seed; the same seed samples the same tokens.", |draft, value| {
        draft.text.sampling.seed = whole(&value).map(i64::cast_unsigned);
        Ok(())
    }),
    field("logprobs", Shape::Flag, "Return the log probability of each token.", |draft, value| {
        draft.logprobs = value == true;
        Ok(())
    }),
    field("top_logprobs", Shape::Integer(0..=20), "Number of most likely alternatives to return per token; requires logprobs.", |draft, value| {
        draft.top_logprobs = count(&value);
        Ok(())
    }),
    field("tools", Shape::List, "Functions the model may call.", |draft, value| {
        draft.tools = list(value);
        Ok(())
    }),
    field("tool_choice", Shape::Either(&[Shape::Word(&["none", "auto", "required"]), Shape::Object]), "Whether the model may, must or must not call tools.", |draft, value| {
        draft.tool_choice = Some(value);
        Ok(())
    }),
    field("parallel_tool_calls", Shape::Flag, "Allow several calls in one answer.", |draft, value| {
        draft.text.parallel_tool_calls = Some(value == true);
        Ok(())
    }),
    field("functions", Shape::List, "Older form of tools.", |draft, value| {
        draft.functions = list(value);
        Ok(())
    }),
    field("function_call", Shape::Either(&[Shape::Word(&["none", "auto"]), Shape::Object]), "Older form of tool_choice.", |draft, value| {
        draft.function_call = Some(tools::choice_of_function_call(value)?);
        Ok(())
    }),
    field("response_format", Shape::Object, "Format of the answer: text, json_object or json_schema.", |draft, value| {
        match format::read(value, draft.strictness)? {
            Some(format) => draft.form("response_format", format),
            None => Ok(()),
        }
    }),
    field("guided_json", Shape::Either(&[Shape::Object, Shape::Text]), "A JSON schema for the answer, or its text. Not of OpenAI's API.", |draft, value| {
        let format = format::guided_json("guided_json", value, draft.strictness)?;
        draft.form("guided_json", format)
    }),
    field("guided_regex", Shape::Text, "A regular expression that the whole answer matches. Not of OpenAI's API.", |draft, value| {
        draft.form("guided_regex", OutputFormat::Regex(text(value)))
    }),
    field("guided_choice", Shape::List, "Texts, one of which the answer is. Not of OpenAI's API.", |draft, value| {
        let format = format::guided_choice("guided_choice", value)?;
        draft.form("guided_choice", format)
    }),
    field("guided_grammar", Shape::Text, "A Lark grammar that the whole answer matches. Not of OpenAI's API.", |draft, value| {
        draft.form("guided_grammar", OutputFormat::Lark(text(value)))
    }),
    field("structured_outputs", Shape::Object, "An object with json, json_object, regex, choice or grammar, as the guided fields. Not of OpenAI's API.", |draft, value| {
        match format::structured_outputs(value, draft.strictness)? {
            Some(format) => draft.form("structured_outputs", format),
            None => Ok(()),
        }
    }),
    field("reasoning_effort", Shape::Word(EFFORTS), "Reasoning effort, passed to the chat template.", |draft, value| {
        draft.effort(value);
        Ok(())
    }),
    field("reasoning", Shape::Object, "effort or max_tokens, enabled, and exclude, which leaves the reasoning out of the reply. Of OpenRouter's API.", |draft, value| {
        reasoning::read(draft, value)
    }),
    field("include_reasoning", Shape::Flag, "false leaves the reasoning out of the reply. Not in OpenAI's API.", |draft, value| {
        draft.hides_reasoning |= value == false;
        Ok(())
    }),
    field("chat_template_kwargs", Shape::Object, "Additional variables of the chat template. Not in OpenAI's API.", |draft, value| {
        draft.template_variables(value)
    }),
    field("enable_thinking", Shape::Flag, "Reason before answering; passed to the chat template. Not in OpenAI's API.", |draft, value| {
        draft.variables.insert("enable_thinking".to_owned(), value);
        Ok(())
    }),
    field("prompt_cache_key", Shape::Text, "Requests with the same key prefer workers that may have their prefix cached.", |draft, value| {
        draft.cache_key = Some(text(value));
        Ok(())
    }),
    field("metadata", Shape::Object, "Up to 16 strings, returned with the reply.", |draft, value| {
        draft.metadata = Some(metadata(value)?);
        Ok(())
    }),
    field("service_tier", Shape::Word(TIERS), "Only auto and default: one tier exists.", |draft, value| {
        draft.names_tier = true;
        only(draft, "service_tier", value == "auto" || value == "default", "\"auto\" or \"default\"")
    }),

    // Fields that identify the client and do not affect the reply.
    field("user", Shape::Text, "Your identifier of the end user; no effect.", |_, _| Ok(())),
    field("safety_identifier", Shape::Text, "Your identifier of the end user; no effect.", |_, _| Ok(())),

    // Fields with a single supported value.
    field("store", Shape::Flag, "true has no effect: replies are not stored.", |draft, value| {
        draft.without_effect("store", value == true);
        Ok(())
    }),
    field("skip_special_tokens", Shape::Flag, "false has no effect: marks of the template are not part of the text. Not in OpenAI's API.", |draft, value| {
        draft.without_effect("skip_special_tokens", value == false);
        Ok(())
    }),
    field("spaces_between_special_tokens", Shape::Flag, "No effect: marks of the template are not part of the text. Not in OpenAI's API.", |_, _| Ok(())),
    field("add_special_tokens", Shape::Flag, "true has no effect: the chat template writes them. Not in OpenAI's API.", |draft, value| {
        draft.without_effect("add_special_tokens", value == true);
        Ok(())
    }),
    field("add_bos_token", Shape::Flag, "No effect: the chat template decides. Not in OpenAI's API.", |draft, _| {
        draft.without_effect("add_bos_token", true);
        Ok(())
    }),
    field("cache_prompt", Shape::Flag, "false has no effect: common beginnings of prompts are cached automatically. Not in OpenAI's API.", |draft, value| {
        draft.without_effect("cache_prompt", value == false);
        Ok(())
    }),
    field("add_generation_prompt", Shape::Flag, "Only true. Not in OpenAI's API.", |draft, value| {
        only(draft, "add_generation_prompt", value == true, "true")
    }),
    field("continue_final_message", Shape::Flag, "Only false. Not in OpenAI's API.", |draft, value| {
        only(draft, "continue_final_message", value == false, "false")
    }),
    field("echo", Shape::Flag, "Only false. Not in OpenAI's API.", |draft, value| {
        only(draft, "echo", value == false, "false")
    }),
    field("include_stop_str_in_output", Shape::Flag, "Only false. Not in OpenAI's API.", |draft, value| {
        only(draft, "include_stop_str_in_output", value == false, "false")
    }),
    field("modalities", Shape::List, "Only [\"text\"].", |draft, value| {
        only(draft, "modalities", list(value) == ["text"], "[\"text\"]")
    }),
    field("verbosity", Shape::Word(&["low", "medium", "high"]), "Only medium.", |draft, value| {
        only(draft, "verbosity", value == "medium", "\"medium\"")
    }),
    field("prompt_cache_retention", Shape::Word(&["in_memory", "24h"]), "Only in_memory: prompts are not stored.", |draft, value| {
        only(draft, "prompt_cache_retention", value == "in_memory", "\"in_memory\"")
    }),
    field("prompt_cache_options", Shape::Object, "Only implicit mode, without a guaranteed lifetime.", |draft, value| {
        let implicit = value.as_object().is_some_and(|options| {
            options.iter().all(|(name, value)| value.is_null() || (name == "mode" && value == "implicit"))
        });
        only(draft, "prompt_cache_options", implicit, "{\"mode\":\"implicit\"}")
    }),

    // Fields that are not supported yet.
    field("audio", Shape::Object, "Not supported: answers are text.", |draft, _| never(draft, "audio")),
    field("prediction", Shape::Object, "Not supported.", |draft, _| never(draft, "prediction")),
    field("moderation", Shape::Object, "Not supported.", |draft, _| never(draft, "moderation")),
    field("web_search_options", Shape::Object, "Not supported: no web search.", |draft, _| never(draft, "web_search_options")),
];

/// Fields that identify the client, removed for public workers.
const OURS_ALONE: [&str; 4] = ["user", "safety_identifier", "metadata", "prompt_cache_key"];

/// The body as a worker of the public network may see it.
pub fn for_strangers(mut body: Value) -> Value {
    if let Value::Object(fields) = &mut body {
        fields.retain(|name, _| !OURS_ALONE.contains(&name.as_str()));
    }
    body
}

/// The request as JSON Schema.
pub(super) fn schema() -> Value {
    field::schema(FIELDS, &["model", "messages"])
}

/// Refuses a value that cannot be honoured; a coordinator that passes it on has other workers in mind.
fn only(draft: &Draft, name: &'static str, honoured: bool, values: &str) -> Result<(), Problem> {
    if honoured || draft.strictness == Strictness::Tolerate {
        return Ok(());
    }
    let message = format!("{name} must be {values} here");
    Err(Problem::unsupported(name, message))
}

fn never(draft: &Draft, name: &'static str) -> Result<(), Problem> {
    if draft.strictness == Strictness::Tolerate {
        return Ok(());
    }
    Err(Problem::unsupported(
        name,
        format!("{name} is not supported here"),
    ))
}

/// Refusals repeat the name, so it has an end.
fn model(name: String) -> Result<String, Problem> {
    const LONGEST: usize = 256;
    match name.chars().count() {
        0..=LONGEST => Ok(name),
        count => {
            let message = format!("model must have at most {LONGEST} characters, found {count}");
            Err(Problem::invalid("model", message))
        }
    }
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(list) => list,
        _ => Vec::new(),
    }
}

fn number(value: &Value) -> Option<f32> {
    value.as_f64().map(|number| number as f32)
}

fn count(value: &Value) -> Option<u32> {
    whole(value).and_then(|number| u32::try_from(number).ok())
}

fn stops(value: Value) -> Result<Vec<String>, Problem> {
    // More than OpenAI's four: Anthropic's API has no such limit.
    const MOST: usize = 64;
    let list = match value {
        Value::Array(list) => list,
        one => vec![one],
    };
    if list.len() > MOST {
        let message = format!(
            "stop must contain at most {MOST} strings, found {}",
            list.len()
        );
        return Err(Problem::invalid("stop", message));
    }
    let strings = list.into_iter().map(|stop| match stop {
        Value::String(stop) if !stop.is_empty() => Ok(stop),
        _ => Err(Problem::invalid(
            "stop",
            "stop must be a non-empty string or an array of non-empty strings",
        )),
    });
    strings.collect()
}

fn token_ids(name: &'static str, list: Vec<Value>) -> Result<Vec<u32>, Problem> {
    const MOST: usize = 128;
    if list.len() > MOST {
        let message = format!(
            "{name} must contain at most {MOST} token ids, found {}",
            list.len()
        );
        return Err(Problem::invalid(name, message));
    }
    let ids: Option<Vec<u32>> = list.iter().map(count).collect();
    ids.ok_or_else(|| Problem::invalid(name, format!("{name} must contain only token ids")))
}

fn logit_bias(value: &Value) -> Result<Vec<(u32, f32)>, Problem> {
    const MOST: usize = 1024;
    let entries = value.as_object().into_iter().flatten();
    let biases: Option<Vec<_>> = entries
        .map(|(id, bias)| {
            let bias = bias.as_f64().filter(|bias| bias.abs() <= 100.0)?;
            Some((id.parse().ok()?, bias as f32))
        })
        .collect();
    match biases {
        Some(biases) if biases.len() <= MOST => Ok(biases),
        Some(biases) => Err(Problem::invalid(
            "logit_bias",
            format!(
                "logit_bias must contain at most {MOST} tokens, found {}",
                biases.len()
            ),
        )),
        None => Err(Problem::invalid(
            "logit_bias",
            "logit_bias must map token ids to numbers from -100 to 100",
        )),
    }
}

fn metadata(value: Value) -> Result<serde_json::Map<String, Value>, Problem> {
    let Value::Object(entries) = value else {
        return Ok(serde_json::Map::new());
    };
    let fits = |(name, value): (&String, &Value)| {
        name.chars().count() <= 64
            && value
                .as_str()
                .is_some_and(|text| text.chars().count() <= 512)
    };
    if entries.len() <= 16 && entries.iter().all(fits) {
        return Ok(entries);
    }
    Err(Problem::invalid(
        "metadata",
        "metadata must contain at most 16 strings of up to 512 characters, with names of up to 64",
    ))
}

fn stream_options(value: &Value, strictness: Strictness) -> Result<StreamOptions, Problem> {
    const NAMES: [&str; 3] = [
        "include_usage",
        "include_obfuscation",
        "continuous_usage_stats",
    ];
    let mut options = StreamOptions::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let flag = match value {
            Value::Null => continue,
            Value::Bool(flag) => *flag,
            _ if NAMES.contains(&name.as_str()) => {
                let param = format!("stream_options.{name}");
                let message = format!("{param} must be true or false");
                return Err(Problem::invalid(param, message));
            }
            _ => false,
        };
        match name.as_str() {
            "include_usage" => options.usage = Some(flag),
            "include_obfuscation" => options.obfuscation = flag,
            "continuous_usage_stats" => options.running_usage = flag,
            _ if strictness == Strictness::Tolerate => {}
            _ => return Err(field::unknown("stream_options.", name, NAMES)),
        }
    }
    if options.running_usage {
        if options.usage == Some(false) && strictness == Strictness::Refuse {
            let param = "stream_options.continuous_usage_stats";
            let message =
                format!("{param} needs stream_options.include_usage: leave out one of them");
            return Err(Problem::invalid(param, message));
        }
        options.usage = Some(true);
    }
    Ok(options)
}
