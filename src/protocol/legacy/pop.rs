//! Workers' pops, and the messages delivered with them.

use uuid::Uuid;

use super::date::Date;
use super::interrogation::Form;
use super::rules::{flag, list, text, whole, word};
use super::tables::{body, reply};

/// Agent of a worker that sends none.
pub const UNKNOWN_AGENT: &str = "unknown:0:unknown";

/// Limits of a worker's blacklist: words, and characters of each.
const MOST_WORDS: usize = 200;
const LONGEST_WORD: usize = 15;
/// Limit of a worker's models.
const MOST_MODELS: usize = 2000;

body! {
    /// `POST /v2/generate/pop`
    pub struct PopInputImage {
        needs { name: String = text(..), }
        fills {
            max_pixels: i64 = whole(..) => 262_144,
            allow_img2img: bool = flag() => true,
            allow_painting: bool = flag() => true,
            allow_unsafe_ipaddr: bool = flag() => true,
            allow_post_processing: bool = flag() => true,
            allow_controlnet: bool = flag() => false,
            allow_sdxl_controlnet: bool = flag() => false,
            allow_extended_controlnet: bool = flag() => false,
            allow_lora: bool = flag() => false,
            limit_max_steps: bool = flag() => false,
            nsfw: bool = flag() => true,
            bridge_agent: String = text(..=1000) => UNKNOWN_AGENT.to_owned(),
            threads: u32 = whole(1..=50) => 1,
            require_upfront_kudos: bool = flag() => false,
            amount: u32 = whole(1..=20) => 1,
            extra_slow_worker: bool = flag() => false,
        }
        may {
            blacklist: Vec<String> = list(text(..)),
            priority_usernames: Vec<String> = list(text(..)),
            models: Vec<String> = list(text(3..=255)).at_most(MOST_MODELS),
            /// Muster's workers say it, which have files of their own; for other workers the software decides.
            allow_textual_inversions: bool = flag(),
        }
    }
}

body! {
    /// `POST /v2/generate/text/pop`
    pub struct PopInputText {
        needs { name: String = text(..), }
        fills {
            max_length: i64 = whole(..) => 512,
            max_context_length: i64 = whole(..) => 2048,
            nsfw: bool = flag() => true,
            bridge_agent: String = text(..=1000) => UNKNOWN_AGENT.to_owned(),
            threads: u32 = whole(1..=50) => 1,
            require_upfront_kudos: bool = flag() => false,
            amount: u32 = whole(1..=20) => 1,
            extra_slow_worker: bool = flag() => false,
        }
        may {
            softprompts: Vec<String> = list(text(..)),
            priority_usernames: Vec<String> = list(text(..)),
            models: Vec<String> = list(text(3..=255)).at_most(MOST_MODELS),
        }
    }
}

body! {
    /// `POST /v2/interrogate/pop`
    pub struct InterrogationPopInput {
        needs { name: String = text(..), }
        fills {
            amount: i64 = whole(..) => 1,
            bridge_agent: String = text(..=1000) => UNKNOWN_AGENT.to_owned(),
            threads: u32 = whole(1..=100) => 1,
            /// The largest image it takes, in tiles of 512x512.
            max_tiles: u32 = whole(1..=256) => 80,
        }
        may {
            priority_usernames: Vec<String> = list(text(..)),
            forms: Vec<Form> = list(word()),
            /// Control maps that the worker draws, if its forms include `annotation`: an empty list gets no control
            /// maps, and unknown kinds are ignored.
            annotation_types: Vec<String> = list(text(..)),
        }
    }
}

reply! {
    pub struct ResponseModelMessagePop {
        always {
            id: Uuid,
            message: String,
            expiry: Date,
        }
        known { origin: String, }
    }
}

impl PopInputImage {
    /// Words that a prompt must not contain for this worker, cut to the stored length.
    pub fn unwanted_words(&self) -> impl Iterator<Item = &str> {
        let words = self.blacklist.iter().flatten().take(MOST_WORDS);
        words.map(|word| match word.char_indices().nth(LONGEST_WORD) {
            Some((end, _)) => &word[..end],
            None => word,
        })
    }
}

/// The number in `name#id`. A name may hold a # of its own, so the last one counts.
pub fn user_in_alias(alias: &str) -> Option<i64> {
    let (_, id) = alias.rsplit_once('#')?;
    let digits = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| id.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::{
        InterrogationPopInput, PopInputImage, PopInputText, ResponseModelMessagePop, user_in_alias,
    };
    use crate::job::UnixMillis;
    use crate::legacy::date::Date;
    use crate::legacy::schemas::{assert_fits, assert_reads};
    use crate::legacy::{Body, Refusal};

    #[test]
    fn pops_are_read_as_the_contract_says() {
        assert_reads::<PopInputImage>("PopInputImage");
        assert_reads::<PopInputText>("PopInputText");
        assert_reads::<InterrogationPopInput>("InterrogationPopInput");
    }

    #[test]
    fn a_worker_that_says_nothing_about_itself_takes_what_is_harmless() {
        let pop = PopInputImage::read(json!({"name": "w"})).unwrap();
        assert!(!pop.allow_controlnet && !pop.allow_lora && !pop.limit_max_steps);
        assert!(pop.nsfw && pop.allow_img2img && !pop.extra_slow_worker);
    }

    #[test]
    fn a_blacklist_is_cut() {
        let words: Vec<_> = (0..300).map(|number| format!("{number:020}")).collect();
        let pop = PopInputImage::read(json!({"name": "w", "blacklist": words})).unwrap();
        assert_eq!(pop.unwanted_words().count(), 200);
        assert!(pop.unwanted_words().all(|word| word.len() == 15));
    }

    #[test]
    fn a_worker_has_hundreds_of_models_and_not_thousands() {
        let serves = |count: usize| json!({"name": "w", "models": vec!["model"; count]});
        assert!(PopInputImage::read(serves(2000)).is_ok());
        let many = "must be an array of at most 2000 items, found 2001 items";
        let expected = Err(Refusal::invalid("models", many));
        assert_eq!(PopInputText::read(serves(2001)), expected);
    }

    #[test]
    fn an_alias_ends_in_its_number() {
        assert_eq!(user_in_alias("a#b#12"), Some(12));
        for wrong in [
            "alice",
            "alice#",
            "alice#x",
            "alice#-1",
            "alice#99999999999999999999",
        ] {
            assert_eq!(user_in_alias(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn messages_are_what_the_contract_says() {
        let mut message = ResponseModelMessagePop {
            id: Uuid::nil(),
            message: "update, please".to_owned(),
            expiry: Date(UnixMillis(0)),
            origin: None,
        };
        assert_fits("ResponseModelMessagePop", &message);
        message.origin = Some("the operators".to_owned());
        assert_fits("ResponseModelMessagePop", &message);
    }
}
