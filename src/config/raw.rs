//! A value as somebody wrote it, before anybody asked what it means.

use toml::de::DeValue;

/// What stands behind a key, or in an environment variable.
#[derive(Debug, Clone, PartialEq)]
pub enum Raw {
    /// From the environment or a flag, where everything is text.
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

    /// As it would be quoted in a message.
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
