//! The parameters of a text. Few have a default here: missing ones are left to the worker.

use crate::legacy::rules::{Number, Whole, flag, list, number, text, whole};
use crate::legacy::tables::body;

fn share() -> Number {
    number(0.0..=1.0)
}

/// The tokens a model reads at most, the prompt's and its own.
fn context() -> Whole {
    whole(80..=1_048_576)
}

/// The tokens it writes at most.
fn length() -> Whole {
    whole(16..=4096)
}

fn penalty() -> Number {
    number(1.0..=3.0)
}

fn penalty_range() -> Whole {
    whole(0..=4096)
}

body! {
    /// `params` of a text request.
    pub struct ModelGenerationInputText {
        fills {
            max_context_length: u32 = context() => 2048,
            max_length: u32 = length() => 80,
            dynatemp_exponent: f64 = number(0.0..=5.0) => 1.0,
        }
        may {
            n: u32 = whole(1..=20),
            /// A space before the prompt.
            frmtadsnsp: bool = flag(),
            /// No blank lines.
            frmtrmblln: bool = flag(),
            /// No special characters.
            frmtrmspch: bool = flag(),
            /// No unfinished sentence at the end.
            frmttriminc: bool = flag(),
            rep_pen: f64 = penalty(),
            rep_pen_range: u32 = penalty_range(),
            rep_pen_slope: f64 = number(0.0..=10.0),
            /// The first line only.
            singleline: bool = flag(),
            temperature: f64 = number(0.0..=5.0),
            tfs: f64 = share(),
            top_a: f64 = share(),
            top_k: u32 = whole(0..=200),
            top_p: f64 = number(0.001..=1.0),
            typical: f64 = share(),
            sampler_order: Vec<i64> = list(whole(..)),
            use_default_badwordsids: bool = flag(),
            stop_sequence: Vec<String> = list(text(..)),
            min_p: f64 = share(),
            smoothing_factor: f64 = number(0.0..=10.0),
            dynatemp_range: f64 = number(0.0..=5.0),
        }
    }
}

body! {
    /// `params` of a text style: how words are chosen, and how many if it says so.
    pub struct ModelStyleInputParamsText {
        fills { dynatemp_exponent: f64 = number(0.0..=5.0) => 1.0, }
        may {
            max_context_length: u32 = context(),
            max_length: u32 = length(),
            frmtadsnsp: bool = flag(),
            frmtrmblln: bool = flag(),
            frmtrmspch: bool = flag(),
            frmttriminc: bool = flag(),
            rep_pen: f64 = penalty(),
            rep_pen_range: u32 = penalty_range(),
            rep_pen_slope: f64 = number(0.0..=10.0),
            singleline: bool = flag(),
            temperature: f64 = number(0.0..=5.0),
            tfs: f64 = share(),
            top_a: f64 = share(),
            top_k: u32 = whole(0..=200),
            top_p: f64 = number(0.001..=1.0),
            typical: f64 = share(),
            sampler_order: Vec<i64> = list(whole(..)),
            use_default_badwordsids: bool = flag(),
            stop_sequence: Vec<String> = list(text(..)),
            min_p: f64 = share(),
            smoothing_factor: f64 = number(0.0..=10.0),
            dynatemp_range: f64 = number(0.0..=5.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ModelGenerationInputText, ModelStyleInputParamsText};
    use crate::legacy::schemas::assert_reads;
    use crate::legacy::text::request::GenerationInputText;

    #[test]
    fn text_requests_are_read_as_the_contract_says() {
        assert_reads::<GenerationInputText>("GenerationInputText");
        assert_reads::<ModelGenerationInputText>("ModelGenerationInputText");
        assert_reads::<ModelStyleInputParamsText>("ModelStyleInputParamsText");
    }
}
