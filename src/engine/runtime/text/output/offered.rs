//! The tools of a request, for parsing their calls.

use std::collections::BTreeMap;

use serde_json::Value;

/// References within a schema are followed this deep.
const DEEPEST_REFERENCE: usize = 8;

/// A tool that the model may call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfferedTool {
    pub name: String,
    arguments: BTreeMap<String, JsonTypes>,
}

/// The types of JSON that a schema allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JsonTypes {
    pub string: bool,
    pub integer: bool,
    pub number: bool,
    pub boolean: bool,
    pub null: bool,
    pub array: bool,
    pub object: bool,
}

impl OfferedTool {
    /// `parameters` is the JSON schema of its arguments.
    pub fn new(name: &str, parameters: Option<&Value>) -> Self {
        let properties = parameters.and_then(|it| it.get("properties")?.as_object());
        let root = parameters.unwrap_or(&Value::Null);
        let types = |(key, schema): (&String, &Value)| (key.clone(), JsonTypes::of(schema, root));
        Self {
            name: name.to_owned(),
            arguments: properties.into_iter().flatten().map(types).collect(),
        }
    }

    /// Everything for an argument that the schema does not name.
    pub fn types(&self, argument: &str) -> JsonTypes {
        self.arguments
            .get(argument)
            .copied()
            .unwrap_or(JsonTypes::ANY)
    }
}

impl JsonTypes {
    pub const ANY: Self = Self {
        string: true,
        integer: true,
        number: true,
        boolean: true,
        null: true,
        array: true,
        object: true,
    };

    /// The types of `schema`, whose references are resolved in `root`.
    pub fn of(schema: &Value, root: &Value) -> Self {
        Self::at_depth(schema, root, 0)
    }

    fn at_depth(schema: &Value, root: &Value, depth: usize) -> Self {
        if depth > DEEPEST_REFERENCE {
            return Self::ANY;
        }
        let one_of = |schemas: &[Value]| {
            let types = schemas.iter().map(|it| Self::at_depth(it, root, depth + 1));
            types.fold(Self::default(), Self::or)
        };
        if let Some(values) = schema["enum"].as_array() {
            return values.iter().fold(Self::default(), |types, value| {
                types.or(Self::of_value(value))
            });
        }
        if let Some(value) = schema.get("const") {
            return Self::of_value(value);
        }
        match &schema["type"] {
            Value::String(name) => return Self::named(name),
            Value::Array(names) => {
                let names = names.iter().filter_map(Value::as_str).map(Self::named);
                return names.fold(Self::default(), Self::or);
            }
            _ => {}
        }
        if let Some(schemas) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            return one_of(schemas);
        }
        let target = schema["$ref"].as_str().and_then(|it| it.strip_prefix('#'));
        match target.and_then(|target| root.pointer(target)) {
            Some(target) => Self::at_depth(target, root, depth + 1),
            None => Self::ANY,
        }
    }

    fn named(name: &str) -> Self {
        let mut types = Self::default();
        match name {
            "string" => types.string = true,
            "integer" => types.integer = true,
            "number" => (types.integer, types.number) = (true, true),
            "boolean" => types.boolean = true,
            "null" => types.null = true,
            "array" => types.array = true,
            "object" => types.object = true,
            _ => return Self::ANY,
        }
        types
    }

    fn of_value(value: &Value) -> Self {
        Self::named(match value {
            Value::String(_) => "string",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::Bool(_) => "boolean",
            Value::Null => "null",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        })
    }

    fn or(self, other: Self) -> Self {
        Self {
            string: self.string || other.string,
            integer: self.integer || other.integer,
            number: self.number || other.number,
            boolean: self.boolean || other.boolean,
            null: self.null || other.null,
            array: self.array || other.array,
            object: self.object || other.object,
        }
    }

    /// Whether a value of these types can be nothing but a string.
    pub fn is_string(self) -> bool {
        self.string && self == Self::named("string")
    }

    fn allows(self, value: &Value) -> bool {
        match value {
            Value::String(_) => self.string,
            Value::Number(number) if number.is_f64() => self.number,
            Value::Number(_) => self.integer || self.number,
            Value::Bool(_) => self.boolean,
            Value::Null => self.null,
            Value::Array(_) => self.array,
            Value::Object(_) => self.object,
        }
    }

    /// The JSON of a value without quotes: the parsed value if its type is allowed; otherwise a string.
    pub fn json_of(self, written: &str) -> String {
        let trimmed = written.trim();
        let json = match trimmed {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            other => other,
        };
        if !self.is_string()
            && let Ok(value) = serde_json::from_str::<Value>(json)
        {
            // Without strings in the schema, a quoted value is JSON; with them, the quotes may be part of the text.
            let is_quoted = value.is_string();
            if (self.allows(&value) && !is_quoted) || (is_quoted && !self.string) {
                return json.to_owned();
            }
        }
        Value::from(written).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{JsonTypes, OfferedTool};

    #[test]
    fn a_value_becomes_what_its_schema_allows() {
        let root = json!({
            "$defs": {"point": {"type": "array"}, "again": {"$ref": "#/$defs/again"}},
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "maybe": {"type": ["string", "null"]},
                "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "mood": {"enum": ["calm", 3, null]},
                "place": {"$ref": "#/$defs/point"},
                "again": {"$ref": "#/$defs/again"},
                "open": {},
            },
        });
        let tool = OfferedTool::new("look", Some(&root));
        for (argument, written, wanted) in [
            ("text", "3", "\"3\""),
            ("text", "null", "\"null\""),
            ("text", "a \"b\"\n", "\"a \\\"b\\\"\\n\""),
            ("count", " 3 ", "3"),
            ("count", "3.5", "\"3.5\""),
            ("count", "many", "\"many\""),
            ("ratio", "3", "3"),
            ("ratio", "1e-3", "1e-3"),
            ("maybe", "null", "null"),
            ("maybe", "None", "null"),
            ("maybe", "3", "\"3\""),
            ("either", "3", "3"),
            ("either", "3 of them", "\"3 of them\""),
            ("mood", "calm", "\"calm\""),
            ("mood", "3", "3"),
            ("place", "[1, 2]", "[1, 2]"),
            ("place", "\"here\"", "\"here\""),
            ("again", "True", "true"),
            ("open", "{\"a\": 1}", "{\"a\": 1}"),
            ("open", "\"quoted\"", "\"\\\"quoted\\\"\""),
            ("unknown", "false", "false"),
        ] {
            assert_eq!(
                tool.types(argument).json_of(written),
                wanted,
                "{argument}: {written}"
            );
        }
        assert_eq!(OfferedTool::new("now", None).types("any"), JsonTypes::ANY);
    }
}
