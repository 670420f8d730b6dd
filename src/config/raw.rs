//! The unparsed value of a setting.

use toml::de::DeValue;

/// The value of a key in a file, or of an environment variable.
#[derive(Debug, Clone, PartialEq)]
pub enum Raw {
    /// From the environment or a flag, where every value is text.
    Untyped(String),
    Text(String),
    Whole(i64),
    Fraction(f64),
    Switch(bool),
    List(Vec<Raw>),
    /// Something no setting takes, by the name TOML has for it.
    Other(&'static str),
}

impl Raw {
    pub fn from_toml(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Boolean(switch) => Self::Switch(*switch),
            DeValue::Array(items) => Self::List(
                items
                    .iter()
                    .map(|item| Self::from_toml(item.get_ref()))
                    .collect(),
            ),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(Self::Other("a number that is too large"), Self::Whole),
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .map_or(Self::Other("a fraction"), Self::Fraction),
            DeValue::Datetime(_) => Self::Other("a date"),
            DeValue::Table(_) => Self::Other("a table"),
        }
    }

    /// The text, wherever it came from.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Untyped(text) | Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The texts of a list. In the environment, lists are written as in the file or separated by commas.
    pub fn texts(&self) -> Option<Vec<String>> {
        let texts: Option<Vec<&str>> = match self {
            Self::List(items) => items.iter().map(Self::text).collect(),
            Self::Untyped(text) if text.trim_start().starts_with('[') => {
                let list = DeValue::parse(text.trim()).ok()?;
                return Self::from_toml(list.get_ref()).texts();
            }
            Self::Untyped(text) => Some(text.split(',').collect()),
            _ => None,
        };
        let texts = texts?.into_iter().map(str::trim);
        let texts = texts.filter(|text| !text.is_empty());
        Some(texts.map(str::to_owned).collect())
    }

    /// Quoted for a message.
    pub fn quoted(&self) -> String {
        match self {
            Self::Untyped(text) => text.clone(),
            Self::Text(text) => format!("{text:?}"),
            Self::Whole(number) => number.to_string(),
            Self::Fraction(number) => number.to_string(),
            Self::Switch(switch) => switch.to_string(),
            Self::List(items) => {
                format!(
                    "[{}]",
                    items
                        .iter()
                        .map(Self::quoted)
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
            Self::Other(name) => (*name).to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Raw;

    #[test]
    fn a_list_in_the_environment_is_written_as_in_the_file_or_with_commas() {
        let check = |text: &str, expected: Option<&[&str]>| {
            let expected = expected.map(|texts| texts.iter().map(ToString::to_string).collect());
            assert_eq!(Raw::Untyped(text.to_owned()).texts(), expected, "{text}");
        };
        check("one, two,", Some(&["one", "two"]));
        check(r#"["one", "two"]"#, Some(&["one", "two"]));
        check(" ['one'] ", Some(&["one"]));
        check("[]", Some(&[]));
        for wrong in [
            r#"["one""#,
            "[1]",
            "[[\"one\"]]",
            "[one]",
            "[\"one\"]\nx = 1",
        ] {
            check(wrong, None);
        }
    }
}
