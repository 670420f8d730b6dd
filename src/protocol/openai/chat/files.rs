//! Files in messages, which a coordinator reads and replaces by texts and images before the request is checked.

use serde_json::{Map, Value, json};

use crate::openai::{Problem, Shape, field};

/// A file part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    /// The name in errors: `messages[1].content[0].file`.
    pub place: String,
    pub message: usize,
    pub part: usize,
    pub name: Option<String>,
    /// base64, a data URL or a link.
    pub data: String,
    /// How finely its pages are to be seen.
    pub detail: Option<String>,
}

const DETAILS: Shape = Shape::Word(&["auto", "low", "high"]);

/// A part for a chat body. Without a name or a detail it has none.
pub(crate) fn file_part(data: Value, name: &Value, detail: &Value) -> Value {
    let mut file = json!({"file_data": data});
    for (key, value) in [("filename", name), ("detail", detail)] {
        if !value.is_null() {
            file[key] = value.clone();
        }
    }
    json!({"type": "file", "file": file})
}

/// Takes the data of all files out of messages of users, in their order. The parts stay where they are.
pub fn take_files(chat: &mut Value) -> Result<Vec<FilePart>, Problem> {
    let messages = chat.get_mut("messages").and_then(Value::as_array_mut);
    let mut files = Vec::new();
    for (message, entry) in messages.into_iter().flatten().enumerate() {
        if entry["role"] != "user" {
            continue;
        }
        let parts = entry.get_mut("content").and_then(Value::as_array_mut);
        for (part, found) in parts.into_iter().flatten().enumerate() {
            if found["type"] != "file" {
                continue;
            }
            let place = format!("messages[{message}].content[{part}]");
            if let Some(entries) = found.as_object_mut() {
                files.push(read(&place, entries, (message, part))?);
            }
        }
    }
    Ok(files)
}

fn read(
    place: &str,
    part: &mut Map<String, Value>,
    (message, index): (usize, usize),
) -> Result<FilePart, Problem> {
    part.retain(|_, value| !value.is_null());
    field::nothing_but(&["type", "file"], place, part)?;
    let place = format!("{place}.file");
    let mut file = part.remove("file").unwrap_or_default();
    Shape::Object.check(&place, &file)?;
    if !file["file_id"].is_null() {
        let param = format!("{place}.file_id");
        let message =
            format!("{param} is not supported here: send the file as a data URL in file_data");
        return Err(Problem::unsupported(param, message));
    }
    if let Some(entries) = file.as_object_mut() {
        entries.retain(|_, value| !value.is_null());
        field::nothing_but(&["file_data", "filename", "detail"], &place, entries)?;
    }
    Shape::Text.check(&format!("{place}.file_data"), &file["file_data"])?;
    let mut text = |name: &str| match file[name].take() {
        Value::String(text) => Some(text),
        _ => None,
    };
    let data = text("file_data").unwrap_or_default();
    let (name, detail) = (file["filename"].clone(), file["detail"].clone());
    if !name.is_null() {
        Shape::Text.check(&format!("{place}.filename"), &name)?;
    }
    if !detail.is_null() {
        DETAILS.check(&format!("{place}.detail"), &detail)?;
    }
    let string = |value: Value| value.as_str().map(str::to_owned);
    Ok(FilePart {
        place,
        message,
        part: index,
        name: string(name),
        data,
        detail: string(detail),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::take_files;

    fn chat(file: Value) -> Value {
        let part = json!({"type": "file", "file": file});
        json!({"messages": [
            {"role": "system", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "b"}, part]},
        ]})
    }

    #[test]
    fn files_are_taken_with_their_places() {
        let mut chat = chat(json!({
            "file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf", "detail": "low", "file_id": null,
        }));
        let files = take_files(&mut chat).unwrap();
        let [file] = &*files else {
            unreachable!("{files:?}");
        };
        assert_eq!(file.place, "messages[1].content[1].file");
        assert_eq!((file.message, file.part), (1, 1));
        assert_eq!(file.data, "data:application/pdf;base64,AA==");
        assert_eq!(file.name.as_deref(), Some("a.pdf"));
        assert_eq!(file.detail.as_deref(), Some("low"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused_by_its_field() {
        for (file, param) in [
            (json!("AA=="), "messages[1].content[1].file"),
            (json!({}), "messages[1].content[1].file.file_data"),
            (
                json!({"file_id": "file-1"}),
                "messages[1].content[1].file.file_id",
            ),
            (
                json!({"file_data": "AA==", "pages": 3}),
                "messages[1].content[1].file.pages",
            ),
            (
                json!({"file_data": "AA==", "filename": 3}),
                "messages[1].content[1].file.filename",
            ),
            (
                json!({"file_data": "AA==", "detail": "all"}),
                "messages[1].content[1].file.detail",
            ),
        ] {
            let problem = take_files(&mut chat(file)).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some(param));
        }
    }
}
