//! How a request names a style or a collection: by id, by name, or by name and owner, with or without the type. `name`,
//! `alias#1::name`, `style::name`, `collection::alias#1::name`, and the full name in lists, `alias#1::style::name`.

use uuid::Uuid;

use crate::legacy::pop::user_in_alias;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StyleName {
    Id(Uuid),
    Name {
        /// `None` is either, and styles go before collections.
        of: Option<Named>,
        /// The number of the alias; its name may have changed since.
        owner: Option<i64>,
        name: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    Style,
    Collection,
}

impl StyleName {
    /// Everything is a name, if nothing else.
    pub fn parse(text: &str) -> Self {
        if let Ok(id) = Uuid::parse_str(text) {
            return Self::Id(id);
        }
        let (mut of, mut owner, mut name) = (None, None, text);
        while let Some((part, rest)) = name.split_once("::") {
            match (named(part), user_in_alias(part)) {
                (Some(found), _) if of.is_none() => of = Some(found),
                (None, Some(found)) if owner.is_none() => owner = Some(found),
                _ => break,
            }
            name = rest;
        }
        Self::Name {
            of,
            owner,
            name: name.to_owned(),
        }
    }
}

fn named(part: &str) -> Option<Named> {
    match part {
        "style" => Some(Named::Style),
        "collection" => Some(Named::Collection),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Named, StyleName};

    #[test]
    fn a_style_is_named_by_id_or_name_and_perhaps_by_its_owner() {
        let check = |text: &str, of, owner, name: &str| {
            let name = name.to_owned();
            assert_eq!(
                StyleName::parse(text),
                StyleName::Name { of, owner, name },
                "{text}"
            );
        };
        check("oil", None, None, "oil");
        check("alice#1::oil", None, Some(1), "oil");
        check("style::oil", Some(Named::Style), None, "oil");
        check("collection::oil", Some(Named::Collection), None, "oil");
        check(
            "collection::alice#1::oil",
            Some(Named::Collection),
            Some(1),
            "oil",
        );
        check("alice#1::style::oil", Some(Named::Style), Some(1), "oil");
        check("a::b", None, None, "a::b");
        check("style::style::x", Some(Named::Style), None, "style::x");
        let id = Uuid::from_u128(5);
        assert_eq!(StyleName::parse(&id.to_string()), StyleName::Id(id));
    }
}
