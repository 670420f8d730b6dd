//! JSON in the format of Python's `json.dumps`, as in the models' training data: a space after `:` and `,`, minimal
//! escaping, keys in the given order.

use minijinja::{Error, ErrorKind, Value};
use serde::Serialize as _;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

pub fn spell(value: &Value, indent: Option<usize>) -> Result<String, Error> {
    let mut out = Vec::new();
    let written = match indent {
        Some(width) => {
            let indent = " ".repeat(width.min(16));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(
            &mut out,
            Spaced(CompactFormatter),
        )),
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    String::from_utf8(out)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

struct Spaced(CompactFormatter);

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        self.0.write_char_escape(writer, escape)
    }
}

#[cfg(test)]
mod tests {
    use minijinja::Value;
    use minijinja::value::Serde;

    use super::spell;

    #[test]
    fn json_is_spelled_as_python_does() {
        let json =
            serde_json::json!({"z": [1, 2.5, null], "a": {"text": "<é> \"q\"\n"}, "empty": {}});
        let value = Value::from(Serde(&json));
        let wanted = r#"{"z": [1, 2.5, null], "a": {"text": "<é> \"q\"\n"}, "empty": {}}"#;
        assert_eq!(spell(&value, None).unwrap(), wanted);
        let value = Value::from(Serde(serde_json::json!({"a": [1]})));
        assert_eq!(
            spell(&value, Some(2)).unwrap(),
            "{\n  \"a\": [\n    1\n  ]\n}"
        );
    }
}
