//! Fields inside of others, as an operator names the ones to ignore: `messages[].content[].cache_control`.

use std::fmt;

use serde_json::Value;

/// A field that is not one of the body itself, wherever it stands in lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    steps: Vec<PathStep>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathStep {
    Key(String),
    /// Every item of a list.
    Items,
}

impl FieldPath {
    /// Reads the name of a field in an error, `messages[0].content[1].x`, or `messages.0.content.1.x` as Anthropic's API
    /// has it. None for a field of the body itself, and for an item of a list.
    pub fn of(param: &str) -> Option<Self> {
        let mut steps = Vec::new();
        for part in param.split('.') {
            let (name, places) = part.split_at(part.find('[').unwrap_or(part.len()));
            match is_number(name) {
                true => steps.push(PathStep::Items),
                false => steps.push(PathStep::Key(name.to_owned())),
            }
            steps.extend(places.matches('[').map(|_| PathStep::Items));
        }
        let is_field = matches!(steps.last(), Some(PathStep::Key(_)));
        (is_field && steps.len() > 1).then_some(Self { steps })
    }

    /// Removes the field everywhere. Whether there was one.
    pub fn remove(&self, body: &mut Value) -> bool {
        remove(&self.steps, body)
    }
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

fn remove(steps: &[PathStep], value: &mut Value) -> bool {
    match steps {
        [PathStep::Key(name)] => {
            let entries = value.as_object_mut();
            entries.is_some_and(|entries| entries.remove(name).is_some())
        }
        [PathStep::Key(name), rest @ ..] => {
            value.get_mut(name).is_some_and(|inner| remove(rest, inner))
        }
        [PathStep::Items, rest @ ..] => {
            let items = value.as_array_mut().into_iter().flatten();
            let removed = items.map(|item| remove(rest, item));
            removed.filter(|is_removed| *is_removed).count() > 0
        }
        [] => false,
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                PathStep::Items => f.write_str("[]")?,
                PathStep::Key(name) if at == 0 => f.write_str(name)?,
                PathStep::Key(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::FieldPath;

    #[test]
    fn places_in_lists_count_alike() {
        let shown = |param: &str| FieldPath::of(param).map(|path| path.to_string());
        let wanted = Some("messages[].content[].x".to_owned());
        assert_eq!(shown("messages[0].content[12].x"), wanted);
        assert_eq!(shown("messages.0.content.12.x"), wanted);
        assert_eq!(shown("a[1][2].b"), Some("a[][].b".to_owned()));
        for other in ["temperature", "tools[1]", "stop.0", ""] {
            assert_eq!(shown(other), None);
        }
    }

    #[test]
    fn a_field_is_removed_wherever_it_stands() {
        let path = FieldPath::of("messages[0].content[0].x").unwrap();
        let mut body = json!({"messages": [
            {"content": [{"x": 1, "y": 1}, {"y": 2}]}, {"content": "x"}, {"content": [{"x": null}]},
        ]});
        assert!(path.remove(&mut body));
        let rest = json!({"messages": [
            {"content": [{"y": 1}, {"y": 2}]}, {"content": "x"}, {"content": [{}]},
        ]});
        assert_eq!(body, rest);
        assert!(!path.remove(&mut body));
    }
}
