//! Collections: several styles under one name, one of which is chosen at random for each use.

use uuid::Uuid;

use crate::legacy::rules::{flag, list, text};
use crate::legacy::tables::{body, reply};
use crate::legacy::words::Making;

use super::ResponseModelStylesShort;

body! {
    /// `POST /v2/collections`
    pub struct NewModelCollection {
        needs {
            name: String = text(1..=100),
            /// By id or name, all of one kind.
            styles: Vec<String> = list(text(1..)),
        }
        fills { public: bool = flag() => true, }
        may { info: String = text(1..=1000), }
    }
}

body! {
    /// `PATCH /v2/collections/{id}`: missing fields stay unchanged.
    pub struct InputModelCollection {
        may {
            name: String = text(1..=100),
            info: String = text(1..=1000),
            public: bool = flag(),
            styles: Vec<String> = list(text(1..)),
        }
    }
}

reply! {
    pub struct ResponseModelCollection {
        always {
            id: Uuid,
            name: String,
            #[serde(rename = "type")]
            making: Making,
            info: Option<String>,
            public: bool,
            styles: Vec<ResponseModelStylesShort>,
            use_count: u64,
        }
    }
}

impl InputModelCollection {
    pub fn changes_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::super::ResponseModelStylesShort;
    use super::{InputModelCollection, NewModelCollection, ResponseModelCollection};
    use crate::legacy::schemas::{assert_fits, assert_reads};
    use crate::legacy::words::Making;
    use crate::legacy::{Body, Refusal};

    #[test]
    fn a_change_is_read_as_the_contract_says() {
        assert_reads::<InputModelCollection>("InputModelCollection");
    }

    #[test]
    fn a_new_collection_has_a_name_and_styles() {
        let new = NewModelCollection::read(json!({"name": "x", "styles": ["a"]})).unwrap();
        assert!(new.public);
        let Err(Refusal::Invalid(errors)) = NewModelCollection::read(json!({})) else {
            panic!("it was taken");
        };
        let paths: Vec<_> = errors.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["name", "styles"]);
    }

    #[test]
    fn a_collection_is_shown_as_the_contract_says() {
        let collection = ResponseModelCollection {
            id: Uuid::nil(),
            name: "x".to_owned(),
            making: Making::Text,
            info: None,
            public: true,
            styles: vec![ResponseModelStylesShort {
                name: "alice#1::style::y".to_owned(),
                id: Uuid::nil(),
            }],
            use_count: 0,
        };
        assert_fits("ResponseModelCollection", &collection);
        assert!(serde_json::to_value(collection).unwrap()["info"].is_null());
    }
}
