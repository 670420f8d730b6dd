//! Replies of routes as content of the protocol. Files are written where a folder is shared, else they come with the
//! result.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde_json::{Map, Value};

use crate::api::ApiReply;
use crate::folder::{Folder, FolderError};
use crate::tools::ToolRoute;

/// The result of a tool that its route answered with success.
pub fn result(
    tool: &ToolRoute,
    reply: &ApiReply,
    folder: Option<&Folder>,
) -> Result<CallToolResult, FolderError> {
    if let Ok(Value::Object(document)) = serde_json::from_slice(&reply.body) {
        return of_json(tool, document, folder);
    }
    let content = match tool.output {
        Some(stem) => of_file(stem, &reply.body, &reply.content_type, folder)?,
        None => vec![ContentBlock::text(String::from_utf8_lossy(&reply.body))],
    };
    Ok(CallToolResult::success(content))
}

/// An error in words for the model that called the tool.
pub fn failure(message: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message.into())])
}

/// The message of a route that refused a request.
pub fn refusal(reply: &ApiReply) -> String {
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let error = &body["error"];
    let Some(message) = error["message"].as_str() else {
        return format!("the service answered {}", reply.status);
    };
    match error["param"].as_str() {
        Some(param) if !message.contains(param) => format!("{message} (argument {param})"),
        _ => message.to_owned(),
    }
}

fn of_json(
    tool: &ToolRoute,
    mut document: Map<String, Value>,
    folder: Option<&Folder>,
) -> Result<CallToolResult, FolderError> {
    let mut content = Vec::new();
    if let Some(stem) = tool.output
        && let Some(Value::Array(items)) = document.get_mut("data")
    {
        for item in items {
            content.extend(of_item(stem, item, folder)?);
        }
    }
    let document = Value::Object(document);
    content.push(ContentBlock::text(document.to_string()));
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(document);
    Ok(result)
}

/// One output of a request: its file leaves the document, which keeps the link.
fn of_item(
    stem: &str,
    item: &mut Value,
    folder: Option<&Folder>,
) -> Result<Vec<ContentBlock>, FolderError> {
    let file = item
        .as_object_mut()
        .and_then(|item| item.shift_remove("b64_json"));
    let file = file.and_then(|file| STANDARD.decode(file.as_str()?).ok());
    let mut content = match &file {
        Some(bytes) => of_file(stem, bytes, sniffed(bytes), folder)?,
        None => Vec::new(),
    };
    if let Some(url) = item["url"].as_str() {
        let kind = file.as_deref().map(sniffed).or(match stem {
            "video" => Some("video/mp4"),
            _ => None,
        });
        let link = Resource::new(url, stem);
        content.push(ContentBlock::resource_link(match kind {
            Some(kind) => link.with_mime_type(kind),
            None => link,
        }));
    }
    Ok(content)
}

fn of_file(
    stem: &str,
    bytes: &[u8],
    content_type: &str,
    folder: Option<&Folder>,
) -> Result<Vec<ContentBlock>, FolderError> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let mut content = Vec::new();
    if let Some(folder) = folder {
        let path = folder.write(stem, extension(kind), bytes)?;
        content.push(ContentBlock::text(format!("Saved {}", path.display())));
    }
    let shows = kind.starts_with("image/");
    if shows || folder.is_none() {
        let data = STANDARD.encode(bytes);
        match kind.split('/').next() {
            Some("image") => content.push(ContentBlock::image(data, kind)),
            Some("audio") => content.push(ContentBlock::audio(data, kind)),
            // The protocol has no block for videos: the link leads to them.
            _ => {}
        }
    }
    Ok(content)
}

/// The type of a file by its first bytes; the service makes no others.
fn sniffed(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, ..] => "image/jpeg",
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => "image/webp",
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'A',
            b'V',
            b'E',
            ..,
        ] => "audio/wav",
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => "video/mp4",
        [b'f', b'L', b'a', b'C', ..] => "audio/flac",
        [b'O', b'g', b'g', b'S', ..] => "audio/ogg",
        [b'I', b'D', b'3', ..] | [0xff, 0xe0..=0xff, ..] => "audio/mpeg",
        _ => "application/octet-stream",
    }
}

fn extension(kind: &str) -> &str {
    match kind {
        "image/jpeg" => "jpg",
        "audio/mpeg" => "mp3",
        "audio/ogg" | "audio/opus" => "opus",
        "audio/x-wav" => "wav",
        "audio/pcm" => "pcm",
        "application/octet-stream" => "bin",
        other => other.rsplit('/').next().unwrap_or("bin"),
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use http::StatusCode;
    use serde_json::{Value, json};

    use super::{refusal, result};
    use crate::api::ApiReply;
    use crate::folder::Folder;
    use crate::tools::{TOOLS, ToolRoute};

    const PNG: &[u8] = b"\x89PNG rest";

    fn tool(name: &str) -> &'static ToolRoute {
        TOOLS.iter().find(|tool| tool.name == name).unwrap()
    }

    fn reply(content_type: &str, body: &[u8]) -> ApiReply {
        ApiReply {
            status: StatusCode::OK,
            content_type: content_type.to_owned(),
            body: body.to_vec(),
        }
    }

    fn content(tool: &ToolRoute, reply: &ApiReply, folder: Option<&Folder>) -> Value {
        json!(result(tool, reply, folder).unwrap())["content"].take()
    }

    #[test]
    fn an_image_comes_as_an_image_with_its_link() {
        let document =
            json!({"data": [{"b64_json": STANDARD.encode(PNG), "url": "http://a/b", "seed": 3}]});
        let reply = reply("application/json", document.to_string().as_bytes());
        let found = content(tool("generate_image"), &reply, None);
        assert_eq!(found[0]["mimeType"], "image/png");
        assert_eq!(found[0]["data"], STANDARD.encode(PNG));
        assert_eq!(found[1]["uri"], "http://a/b");
        assert_eq!(
            found[2]["text"],
            r#"{"data":[{"url":"http://a/b","seed":3}]}"#
        );
    }

    #[test]
    fn files_are_written_where_a_folder_is_shared() {
        let shared = tempfile::tempdir().unwrap();
        let folder = Folder::open(shared.path()).unwrap();
        let sound = reply("audio/mpeg", b"ID3 sound");
        let found = content(tool("generate_speech"), &sound, Some(&folder));
        let text = found[0]["text"].as_str().unwrap();
        let path = text.strip_prefix("Saved ").unwrap();
        assert!(path.ends_with(".mp3"), "{path}");
        assert_eq!(std::fs::read(path).unwrap(), b"ID3 sound");
        assert_eq!(found.as_array().unwrap().len(), 1);
        let found = content(tool("generate_speech"), &sound, None);
        assert_eq!(found[0]["type"], "audio");
    }

    #[test]
    fn subtitles_are_text() {
        let subtitles = reply("text/plain", b"1\n00:00 hi");
        let found = content(tool("transcribe"), &subtitles, None);
        assert_eq!(found, json!([{"type": "text", "text": "1\n00:00 hi"}]));
    }

    #[test]
    fn a_refusal_names_its_argument() {
        let body = json!({"error": {"message": "too long", "param": "prompt"}}).to_string();
        assert_eq!(
            refusal(&reply("application/json", body.as_bytes())),
            "too long (argument prompt)"
        );
        let page = reply("text/html", b"<p>");
        assert_eq!(refusal(&page), "the service answered 200 OK");
    }
}
