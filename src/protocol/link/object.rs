//! Writes JSON objects piece by piece into a buffer that is used again: frames are written by the hundred thousand.

use std::fmt::{Display, Write};

use serde::Serialize;

/// An object being written. [`end`](Self::end) closes it.
pub struct Object<'a> {
    out: &'a mut String,
    is_empty: bool,
}

impl<'a> Object<'a> {
    pub fn new(out: &'a mut String) -> Self {
        out.push('{');
        Self {
            out,
            is_empty: true,
        }
    }

    /// A frame of this type.
    pub fn frame(kind: &str, out: &'a mut String) -> Self {
        let mut object = Self::new(out);
        object.text("type", kind);
        object
    }

    pub fn text(&mut self, key: &str, text: &str) {
        write_text(text, self.key(key));
    }

    pub fn text_if(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    /// Something whose text needs no escapes.
    pub fn display_text(&mut self, key: &str, value: impl Display) {
        // Writing to a string cannot fail, here and below.
        let _ = write!(self.key(key), "\"{value}\"");
    }

    pub fn number(&mut self, key: &str, number: impl Display) {
        let _ = write!(self.key(key), "{number}");
    }

    pub fn number_if(&mut self, key: &str, number: Option<impl Display>) {
        if let Some(number) = number {
            self.number(key, number);
        }
    }

    pub fn flag(&mut self, key: &str, flag: bool) {
        self.key(key).push_str(if flag { "true" } else { "false" });
    }

    pub fn null(&mut self, key: &str) {
        self.key(key).push_str("null");
    }

    pub fn numbers(&mut self, key: &str, numbers: &[impl Display]) {
        self.list(key, numbers, |number, out| {
            let _ = write!(out, "{number}");
        });
    }

    pub fn texts(&mut self, key: &str, texts: &[impl AsRef<str>]) {
        self.list(key, texts, |text, out| write_text(text.as_ref(), out));
    }

    pub fn list<T>(&mut self, key: &str, items: &[T], write: impl Fn(&T, &mut String)) {
        let out = self.key(key);
        out.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write(item, out);
        }
        out.push(']');
    }

    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) {
        let mut object = Object::new(self.key(key));
        fill(&mut object);
        object.end();
    }

    /// The same with a key that is not ours and may need escapes.
    pub fn object_named(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.out.push(',');
        }
        write_text(key, self.out);
        self.out.push(':');
        let mut object = Object::new(self.out);
        fill(&mut object);
        object.end();
    }

    /// Any serializable value. Our own values always have a JSON form; a failure becomes null.
    pub fn value(&mut self, key: &str, value: &impl Serialize) {
        let text = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        self.key(key).push_str(&text);
    }

    pub fn value_if(&mut self, key: &str, value: Option<&impl Serialize>) {
        if let Some(value) = value {
            self.value(key, value);
        }
    }

    pub fn end(self) {
        self.out.push('}');
    }

    fn key(&mut self, key: &str) -> &mut String {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.out.push(',');
        }
        self.out.push('"');
        self.out.push_str(key);
        self.out.push_str("\":");
        self.out
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(needs_escape) {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        write_escape(tail.as_bytes()[0], out);
        rest = &tail[1..];
    }
    out.push_str(rest);
    out.push('"');
}

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

fn write_escape(byte: u8, out: &mut String) {
    match byte {
        b'"' => out.push_str("\\\""),
        b'\\' => out.push_str("\\\\"),
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        other => {
            let _ = write!(out, "\\u{other:04x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::Object;

    proptest! {
        #[test]
        fn any_text_comes_back_from_its_json(text in any::<String>()) {
            let mut out = String::new();
            let mut object = Object::new(&mut out);
            object.text("text", &text);
            object.end();
            let read: serde_json::Value = serde_json::from_str(&out).unwrap();
            assert_eq!(read["text"], text);
        }
    }

    #[test]
    fn an_object_is_written_in_the_order_it_is_filled() {
        let mut out = String::new();
        let mut object = Object::frame("x", &mut out);
        object.number_if("a", Some(1));
        object.number_if("b", None::<u32>);
        object.texts("c", &["d", "e\""]);
        object.object("f", |inner| inner.flag("g", true));
        object.end();
        assert_eq!(out, r#"{"type":"x","a":1,"c":["d","e\""],"f":{"g":true}}"#);
    }
}
