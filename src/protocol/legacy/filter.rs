//! Prompt filters, as moderators write and try them.

use super::rules::{text, whole};
use super::tables::{body, reply, with_nulls};

body! {
    /// `POST /v2/filters`: tests a prompt against the filters.
    pub struct PromptCheckInput {
        needs { prompt: String = text(..=1_048_576), }
        may { filter_type: i64 = whole(..), }
    }
}

body! {
    /// `PUT /v2/filters`
    pub struct PutNewFilter {
        needs {
            regex: String = text(..),
            filter_type: i64 = whole(10..=29),
        }
        fills { replacement: String = text(..) => String::new(), }
        may { description: String = text(..=1000), }
    }
}

body! {
    /// `PATCH /v2/filters/{id}`
    pub struct PatchExistingFilter {
        may {
            regex: String = text(..),
            filter_type: i64 = whole(10..=29),
            description: String = text(..=1000),
            replacement: String = text(..),
        }
    }
}

reply! {
    pub struct FilterPromptSuspicion {
        always {
            /// A number, sent as text.
            suspicion: String,
            matches: Vec<String>,
        }
    }

    /// A filter as it is listed and read.
    pub struct FilterDetails {
        always {
            /// A number, sent as text.
            id: String,
            regex: String,
            filter_type: i64,
            replacement: String,
            user: String,
        }
        known { description: String, }
    }

    /// All filters of a type in one expression.
    pub struct FilterRegex {
        always { filter_type: i64, }
        known { regex: String, }
    }
}

impl PatchExistingFilter {
    /// Treats empty strings as missing.
    #[must_use]
    pub fn without_empty(self) -> Self {
        let sent = |text: Option<String>| text.filter(|text| !text.is_empty());
        Self {
            regex: sent(self.regex),
            filter_type: self.filter_type,
            description: sent(self.description),
            replacement: sent(self.replacement),
        }
    }

    pub fn changes_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl FilterDetails {
    /// The reply to the filter's author, with null for a missing description.
    pub fn written(&self) -> serde_json::Result<serde_json::Value> {
        with_nulls(self, &["description"])
    }
}

impl FilterPromptSuspicion {
    pub fn of(suspicion: u32, matches: Vec<String>) -> Self {
        Self {
            suspicion: suspicion.to_string(),
            matches,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        FilterDetails, FilterPromptSuspicion, FilterRegex, PatchExistingFilter, PromptCheckInput,
        PutNewFilter,
    };
    use crate::legacy::Body;
    use crate::legacy::schemas::{assert_fits, assert_reads};

    #[test]
    fn filters_are_read_as_the_contract_says() {
        assert_reads::<PromptCheckInput>("PromptCheckInput");
        assert_reads::<PutNewFilter>("PutNewFilter");
        assert_reads::<PatchExistingFilter>("PatchExistingFilter");
    }

    #[test]
    fn what_a_filter_is_for_is_said_in_a_few_words() {
        let body =
            |length| json!({"regex": "x", "filter_type": 10, "description": "ä".repeat(length)});
        assert!(PutNewFilter::read(body(1000)).is_ok());
        assert!(PutNewFilter::read(body(1001)).is_err());
        assert!(PatchExistingFilter::read(body(1001)).is_err());
    }

    #[test]
    fn filters_are_shown_as_the_contract_says() {
        let filter = FilterDetails {
            id: "5".to_owned(),
            regex: "x+".to_owned(),
            filter_type: 10,
            replacement: String::new(),
            user: "alice#1".to_owned(),
            description: None,
        };
        assert_fits("FilterDetails", &filter);
        let written = filter.written().unwrap();
        assert_fits("FilterDetails", &written);
        assert_eq!(written.get("description"), Some(&json!(null)));
        assert_fits(
            "FilterRegex",
            &FilterRegex {
                filter_type: 10,
                regex: None,
            },
        );
        let suspicion = FilterPromptSuspicion::of(2, vec!["x".to_owned()]);
        assert_fits("FilterPromptSuspicion", &suspicion);
        assert_eq!(suspicion.suspicion, "2");
    }

    #[test]
    fn an_empty_change_changes_nothing() {
        let check = |body, expected| {
            let change = PatchExistingFilter::read(body).unwrap().without_empty();
            assert_eq!(change.changes_nothing(), expected);
        };
        check(
            json!({"regex": "", "description": "", "replacement": ""}),
            true,
        );
        check(json!({"regex": "x"}), false);
        check(json!({"filter_type": 20}), false);
    }
}
