//! Styles: a prompt around the client's, with parameters of its own; and collections of them.
//!
//! | file | contents |
//! | --- | --- |
//! | [`image`], [`text`] | styles of each kind |
//! | [`collection`] | several styles under one name |
//! | [`name`] | how a request names a style |
//! | [`prompt`] | applies a style's template to a prompt |
//! | [`request`] | applies a style to a request |

pub mod collection;
pub mod image;
pub mod name;
pub mod prompt;
pub mod request;
pub mod text;

use uuid::Uuid;

use super::requests::RequestSingleWarning;
use super::tables::{reply, words};

words! {
    /// How lists of styles and collections are ordered.
    pub enum Sort {
        Popular = "popular",
        Age = "age",
    }

    /// Which collections are listed.
    pub enum Listed {
        Image = "image",
        Text = "text",
        All = "all",
    }
}

reply! {
    /// The reply to a change of a style, an example or a collection.
    pub struct StyleModify {
        always {
            id: Uuid,
            message: String,
        }
        known {
            /// Empty when there is nothing to warn of; missing when nothing changed.
            warnings: Vec<RequestSingleWarning>,
        }
    }

    pub struct ResponseModelStylesShort {
        always {
            /// `alias::style::name`
            name: String,
            id: Uuid,
        }
    }
}

/// On every page of a list.
pub const PAGE: usize = 25;
pub const MOST_MODELS: usize = 5;
pub const MOST_TAGS: usize = 10;
pub const MOST_EXAMPLES: usize = 4;

impl StyleModify {
    pub fn done(id: Uuid, warnings: Vec<RequestSingleWarning>) -> Self {
        Self {
            id,
            message: "OK".to_owned(),
            warnings: Some(warnings),
        }
    }

    pub fn unchanged(id: Uuid) -> Self {
        Self {
            id,
            message: "OK".to_owned(),
            warnings: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::StyleModify;
    use crate::legacy::schemas::assert_fits;

    #[test]
    fn nothing_to_warn_of_and_nothing_changed_are_told_apart() {
        let done = StyleModify::done(Uuid::nil(), Vec::new());
        assert_fits("StyleModify", &done);
        assert_eq!(serde_json::to_value(done).unwrap()["warnings"], json!([]));
        let unchanged = StyleModify::unchanged(Uuid::nil());
        assert_fits("StyleModify", &unchanged);
        assert!(
            serde_json::to_value(unchanged)
                .unwrap()
                .get("warnings")
                .is_none()
        );
    }
}
