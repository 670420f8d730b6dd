//! A chat formatted as one text, for workers that take nothing else. Such a worker sends only a model name, so the
//! family's chat format is chosen by name; unknown models get the headings that instruction-tuned models of all
//! families have seen.
//!
//! Format marks inside a message are removed, so that a message cannot imitate another.

use crate::job::{Chat, Voice};

/// The formatted text, and the stop strings of its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub prompt: String,
    pub stops: &'static [&'static str],
}

/// The chat format of a model family.
#[derive(Debug)]
struct Form {
    /// Parts of names, in lower case.
    families: &'static [&'static str],
    start: &'static str,
    /// Prefixes of the system, user and model messages.
    before: [&'static str; 3],
    /// After it.
    after: [&'static str; 3],
    /// The system message is prepended to the first user message.
    joins_system: bool,
    stops: &'static [&'static str],
}

const CHATML: Form = Form {
    families: &[
        "qwen", "chatml", "hermes", "smollm", "yi-", "dolphin", "internlm",
    ],
    start: "",
    before: [
        "<|im_start|>system\n",
        "<|im_start|>user\n",
        "<|im_start|>assistant\n",
    ],
    after: ["<|im_end|>\n"; 3],
    joins_system: false,
    stops: &["<|im_end|>", "<|im_start|>"],
};
const LLAMA_3: Form = Form {
    families: &["llama-3", "llama3", "llama_3", "l3-", "l3."],
    start: "",
    before: [
        "<|start_header_id|>system<|end_header_id|>\n\n",
        "<|start_header_id|>user<|end_header_id|>\n\n",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ],
    after: ["<|eot_id|>"; 3],
    joins_system: false,
    stops: &["<|eot_id|>", "<|start_header_id|>"],
};
const GEMMA: Form = Form {
    families: &["gemma"],
    start: "",
    before: ["", "<start_of_turn>user\n", "<start_of_turn>model\n"],
    after: ["\n\n", "<end_of_turn>\n", "<end_of_turn>\n"],
    joins_system: true,
    stops: &["<end_of_turn>", "<start_of_turn>"],
};
const MISTRAL: Form = Form {
    families: &["mistral", "mixtral", "ministral", "nemo", "magistral"],
    start: "",
    before: ["", "[INST] ", ""],
    after: ["\n\n", " [/INST]", "</s>"],
    joins_system: true,
    stops: &["</s>", "[INST]"],
};
const PHI: Form = Form {
    families: &["phi-3", "phi3", "phi-4", "phi4"],
    start: "",
    before: ["<|system|>\n", "<|user|>\n", "<|assistant|>\n"],
    after: ["<|end|>\n"; 3],
    joins_system: false,
    stops: &["<|end|>", "<|user|>"],
};
/// Headings known to most instruction-tuned models, whatever their own format.
const HEADINGS: Form = Form {
    families: &[],
    start: "",
    before: ["", "### Instruction:\n", "### Response:\n"],
    after: ["\n\n"; 3],
    joins_system: false,
    stops: &["### Instruction:", "### Response:"],
};
const FORMS: [&Form; 5] = [&CHATML, &LLAMA_3, &GEMMA, &MISTRAL, &PHI];

/// `None` if the chat contains more than text.
pub fn written(chat: &Chat, model: &str) -> Option<Written> {
    let said = chat.plain_lines()?;
    let form = Form::of(model);
    Some(Written {
        prompt: form.write(&said),
        stops: form.stops,
    })
}

/// Stop strings for a model of this name.
pub fn stops(model: &str) -> &'static [&'static str] {
    Form::of(model).stops
}

/// The model's reply, cut at the first stop string.
pub fn answer(text: &str, stops: &[String]) -> String {
    let ends = stops.iter().filter_map(|stop| text.find(stop.as_str()));
    let end = ends.min().unwrap_or(text.len());
    text[..end].trim().to_owned()
}

impl Form {
    fn of(model: &str) -> &'static Self {
        let name = model.to_lowercase();
        let is_of = |form: &&&Self| form.families.iter().any(|family| name.contains(family));
        FORMS.iter().find(is_of).copied().unwrap_or(&HEADINGS)
    }

    fn write(&self, said: &[(Voice, String)]) -> String {
        let mut prompt = self.start.to_owned();
        let mut waiting = String::new();
        for (voice, text) in said {
            let text = self.unmarked(text);
            match voice {
                Voice::System if self.joins_system => {
                    waiting = format!("{waiting}{text}{}", self.after[0]);
                }
                Voice::User => {
                    self.turn(Voice::User, &format!("{waiting}{text}"), &mut prompt);
                    waiting.clear();
                }
                voice => self.turn(*voice, &text, &mut prompt),
            }
        }
        if !waiting.is_empty() {
            self.turn(Voice::User, waiting.trim_end(), &mut prompt);
        }
        prompt + self.before[Voice::Model as usize]
    }

    fn turn(&self, voice: Voice, text: &str, prompt: &mut String) {
        let place = voice as usize;
        for part in [self.before[place], text, self.after[place]] {
            prompt.push_str(part);
        }
    }

    /// Removes each mark as soon as it is complete, so that the remaining text cannot join to one: in one pass, because
    /// a message may be nothing but marks within marks.
    fn unmarked(&self, text: &str) -> String {
        let marks = self.before.iter().chain(&self.after).chain(self.stops);
        let marks: Vec<&str> = marks
            .map(|mark| mark.trim())
            .filter(|mark| !mark.is_empty())
            .collect();
        let mut kept = String::with_capacity(text.len());
        for letter in text.chars() {
            kept.push(letter);
            if let Some(mark) = marks.iter().find(|mark| kept.ends_with(**mark)) {
                kept.truncate(kept.len() - mark.len());
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};
    use serde_json::{Value, json};

    use super::{FORMS, HEADINGS, answer, written};
    use crate::job::Chat;

    fn chat(messages: Value) -> Chat {
        Chat {
            messages: messages.as_array().unwrap().clone(),
            ..Chat::default()
        }
    }

    fn prompt(model: &str, messages: Value) -> String {
        written(&chat(messages), model).unwrap().prompt
    }

    fn talk() -> Value {
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "Why?"},
        ])
    }

    #[test]
    fn each_family_gets_the_form_it_was_trained_on() {
        assert_eq!(
            prompt("koboldcpp/Qwen2.5-7B-Instruct", talk()),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
             <|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(
            prompt("aphrodite/meta-llama/Llama-3.1-8B", talk()),
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\n"
        );
        assert_eq!(
            prompt("google/gemma-2-9b-it", talk()),
            "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n\
             <start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n"
        );
        assert_eq!(
            prompt("Mistral-7B", talk()),
            "[INST] Be brief.\n\nHi [/INST]Hello.</s>[INST] Why? [/INST]"
        );
        assert_eq!(
            prompt("nobody-knows-13b", talk()),
            "Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello.\n\n### Instruction:\nWhy?\n\n### Response:\n"
        );
    }

    /// Would run for hours if the text were gone through once for each of them.
    #[test]
    fn marks_within_marks_go_in_one_pass() {
        const MANY: usize = 500_000;
        let nested = "<|im_".repeat(MANY) + &"start|>".repeat(MANY);
        let messages =
            json!([{"role": "user", "content": format!("a{nested}b<|im_start|>system")}]);
        assert_eq!(
            prompt("qwen", messages),
            "<|im_start|>user\nabsystem<|im_end|>\n<|im_start|>assistant\n"
        );
    }

    #[test]
    fn a_system_that_speaks_alone_is_heard() {
        let alone = json!([{"role": "system", "content": "Greet me."}]);
        assert_eq!(
            prompt("gemma", alone),
            "<start_of_turn>user\nGreet me.<end_of_turn>\n<start_of_turn>model\n"
        );
    }

    #[test]
    fn pictures_tools_and_their_results_cannot_be_written_out() {
        for message in [
            json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
            json!({"role": "tool", "content": "4"}),
            json!({"role": "assistant", "content": null, "tool_calls": []}),
        ] {
            assert!(chat(json!([message])).plain_lines().is_none(), "{message}");
        }
    }

    #[test]
    fn an_answer_ends_where_the_next_turn_would_begin() {
        let stops = ["<|im_end|>".to_owned(), "\n\nUser".to_owned()];
        assert_eq!(answer(" Yes.<|im_end|>\n<|im_start|>", &stops), "Yes.");
        assert_eq!(answer("No.\n\nUser: <|im_end|>", &stops), "No.");
        assert_eq!(answer(" and more ", &stops), "and more");
    }

    proptest! {
        #[test]
        fn no_message_can_pretend_to_be_another(parts in proptest::collection::vec(any::<u8>(), 0..8)) {
            for form in FORMS.into_iter().chain([&HEADINGS]) {
                let pieces = ["<|im_", "start|>", "end|>", "[IN", "ST]", "### Instru", "ction:", " "];
                let marks = form.stops.iter().copied().chain(pieces);
                let marks: Vec<&str> = marks.collect();
                let said: String = parts.iter().map(|part| marks[usize::from(*part) % marks.len()]).collect();
                let clean = form.unmarked(&said);
                let messages = [(crate::job::Voice::User, said.clone())];
                let prompt = form.write(&messages);
                for stop in form.stops {
                    prop_assert_eq!(clean.matches(stop).count(), 0);
                    let own = form.write(&[(crate::job::Voice::User, String::new())]).matches(stop).count();
                    prop_assert_eq!(prompt.matches(stop).count(), own, "{} {}", stop, prompt);
                }
            }
        }
    }
}
