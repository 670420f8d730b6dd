//! Files of chats: a PDF becomes page images for a model that reads images, and page text for any other; text files
//! stay unchanged. Runs before kudos are held.

use std::borrow::Cow;

use serde_json::{Value, json};
use tracing::warn;

use super::TextEndpoint;
use super::endpoint::LOOKED_AT;
use super::images::{MOST_IMAGES, images};
use super::moderated::moderate;
use crate::error::ApiError;
use crate::http::room::Room;
use crate::moderation::Asker;
use crate::pictures::{ChatFile, ChatFileError, to_base64};
use crate::sender::Sender;
use muster_protocol::job::{FailureKind, Formats};
use muster_protocol::openai::Problem;
use muster_protocol::openai::chat::{
    ChatRequest, Dialect, FilePart, Head, ReplyBuilder, StreamWriter, take_files,
};
use muster_reader::{PageForm, PdfPage};

/// Pages of all PDF files of a request, for a model that reads images.
const MOST_PAGES: u32 = 20;
/// Pages of all PDF files of a request, for a model that reads text.
const MOST_TEXT_PAGES: u32 = 100;
/// Files of one request.
const MOST_FILES: usize = 20;
/// Copies of a page that exist at the same time: its bytes, and their base64.
const FORMS: usize = 3;

/// A record of the parts that replaced the files of a chat.
#[derive(Debug)]
pub(super) struct ExpandedFiles {
    /// Bytes by which the chat grew.
    pub grown: usize,
    /// Message, part and number of replacing parts of each file, in order.
    shifts: Vec<PartShift>,
}

#[derive(Debug, Clone, Copy)]
struct PartShift {
    message: usize,
    part: usize,
    count: usize,
}

impl TextEndpoint {
    /// Reads the files of a chat of `size` bytes; `None` if it has none.
    pub(super) async fn take_files(
        &self,
        chat: &mut Value,
        who: &Asker,
        (room, size): (&mut Room, usize),
    ) -> Result<Option<ExpandedFiles>, ApiError> {
        let files = take_files(chat)?;
        if files.is_empty() {
            return Ok(None);
        }
        if let Some(file) = files.get(MOST_FILES) {
            let message = format!("a request may have at most {MOST_FILES} files");
            return Err(Problem::invalid(file.place.clone(), message).into());
        }
        let model = chat["model"].as_str().unwrap_or_default().to_owned();
        let (form, most) = match self.reads_images(&model).await {
            true => (PageForm::Image, MOST_PAGES),
            false => (PageForm::Text, MOST_TEXT_PAGES),
        };
        let sender = Sender::of(who.account, who.address);
        let (mut left, mut grown) = (most, 0);
        let mut expanded = Vec::with_capacity(files.len());
        for mut file in files {
            let place = file.place.clone();
            let data = std::mem::take(&mut file.data);
            let read = self.sources.read_document(sender, data, form, left).await;
            let mut document = read.map_err(|error| refused(&place, &error))?;
            if let ChatFile::Pdf(pages) = &document {
                left = left.saturating_sub(u32::try_from(pages.len()).unwrap_or(u32::MAX));
            }
            let bytes = size_of(&document) * FORMS + size + grown;
            let bytes = match self.admission.moderation.may_object(who.roles) {
                true => bytes + text_of(&document) * LOOKED_AT,
                false => bytes,
            };
            room.cover_in_time(bytes).await?;
            let examined = self.examine(&mut document, &model, who).await;
            examined.map_err(|error| ApiError {
                param: Some(place.clone().into()),
                ..error
            })?;
            let parts = match document {
                ChatFile::Text(text) => vec![text_part(text)],
                ChatFile::Pdf(pages) => {
                    check_text(&place, form, &pages)?;
                    pages_to_parts(pages, file.detail.as_deref())
                }
            };
            let parts = named(&file, parts);
            grown += parts.iter().map(length_of).sum::<usize>();
            expanded.push((file, parts));
        }
        let last = expanded.last().map(|(file, _)| file.place.clone());
        let shifts = replace(chat, expanded);
        if images(chat).len() > MOST_IMAGES {
            let message = format!(
                "a request may have at most {MOST_IMAGES} images, with the pages of PDF files"
            );
            return Err(Problem::invalid(last.unwrap_or_default(), message).into());
        }
        Ok(Some(ExpandedFiles { grown, shifts }))
    }

    /// Moderates the text of a file. A page with changed text becomes text and no image.
    async fn examine(
        &self,
        document: &mut ChatFile,
        model: &str,
        who: &Asker,
    ) -> Result<(), ApiError> {
        let moderation = &self.admission.moderation;
        if !moderation.may_object(who.roles) {
            return Ok(());
        }
        let texts: Vec<Value> = match &*document {
            ChatFile::Text(text) => vec![text_part(text.clone())],
            ChatFile::Pdf(pages) => pages
                .iter()
                .map(|page| text_part(page.text.clone()))
                .collect(),
        };
        let message = json!({"role": "user", "content": texts});
        let mut body = json!({"model": model, "messages": [message]});
        if !moderate(&mut body, moderation, who).await? {
            return Ok(());
        }
        let mut texts = body["messages"][0]["content"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .map(|part| match part["text"].take() {
                Value::String(text) => text,
                _ => String::new(),
            });
        match document {
            ChatFile::Text(text) => {
                if let Some(other) = texts.next() {
                    *text = other;
                }
            }
            ChatFile::Pdf(pages) => {
                for (page, text) in pages.iter_mut().zip(texts) {
                    if page.text != text {
                        *page = PdfPage { text, image: None };
                    }
                }
            }
        }
        Ok(())
    }
}

fn refused(place: &str, error: &ChatFileError) -> ApiError {
    if let ChatFileError::Reader(why) = error {
        warn!("reading a PDF failed: {why}");
        let message = "reading the file failed; retry later";
        return ApiError::new(FailureKind::Internal, message);
    }
    Problem::invalid(place.to_owned(), format!("{place}: {error}")).into()
}

/// Refuses a scan without text for a model that reads no images.
fn check_text(place: &str, form: PageForm, pages: &[PdfPage]) -> Result<(), ApiError> {
    let has_text = pages.iter().any(|page| !page.text.trim().is_empty());
    if form == PageForm::Image || has_text {
        return Ok(());
    }
    let message = format!(
        "{place}: the PDF has no text, and the model reads no images: ask a model that reads images"
    );
    Err(Problem::unsupported(place.to_owned(), message).into())
}

fn text_of(document: &ChatFile) -> usize {
    match document {
        ChatFile::Text(text) => text.len(),
        ChatFile::Pdf(pages) => pages.iter().map(|page| page.text.len()).sum(),
    }
}

fn size_of(document: &ChatFile) -> usize {
    let images: usize = match document {
        ChatFile::Text(_) => 0,
        ChatFile::Pdf(pages) => pages
            .iter()
            .flat_map(|page| &page.image)
            .map(Vec::len)
            .sum(),
    };
    text_of(document) + images
}

fn text_part(text: String) -> Value {
    json!({"type": "text", "text": text})
}

fn pages_to_parts(pages: Vec<PdfPage>, detail: Option<&str>) -> Vec<Value> {
    let pages = pages.into_iter().enumerate();
    let parts = pages.flat_map(|(index, PdfPage { text, image })| {
        let title = format!("Page {}", index + 1);
        match image {
            None => vec![text_part(format!("{title}\n{text}"))],
            Some(image) => {
                let kind = match image.starts_with(b"\x89PNG") {
                    true => "png",
                    false => "jpeg",
                };
                let url = format!("data:image/{kind};base64,{}", to_base64(&image));
                let mut link = json!({"url": url});
                if let Some(detail) = detail {
                    link["detail"] = detail.into();
                }
                let image = json!({"type": "image_url", "image_url": link});
                vec![text_part(title), image]
            }
        }
    });
    parts.collect()
}

/// With the name of the file before them.
fn named(file: &FilePart, parts: Vec<Value>) -> Vec<Value> {
    let name = file.name.iter().filter(|name| !name.is_empty());
    let name = name.map(|name| text_part(format!("File {name}")));
    name.chain(parts).collect()
}

fn length_of(part: &Value) -> usize {
    let length = |text: &Value| text.as_str().map_or(0, str::len);
    length(&part["text"]) + length(&part["image_url"]["url"])
}

/// Puts the parts of each file in its place.
fn replace(chat: &mut Value, files: Vec<(FilePart, Vec<Value>)>) -> Vec<PartShift> {
    let shifts = files.iter().map(|(file, parts)| PartShift {
        message: file.message,
        part: file.part,
        count: parts.len(),
    });
    let shifts = shifts.collect();
    // From the last one, so that earlier indexes stay valid.
    for (file, parts) in files.into_iter().rev() {
        let content = chat["messages"][file.message]["content"].as_array_mut();
        if let Some(content) = content {
            content.splice(file.part..=file.part, parts);
        }
    }
    shifts
}

impl ExpandedFiles {
    /// A dialect whose errors name fields as they were before the files were read.
    pub(super) fn dialect(self, dialect: Box<dyn Dialect>) -> Box<dyn Dialect> {
        let Self { shifts, .. } = self;
        Box::new(ShiftedDialect { dialect, shifts })
    }
}

/// A dialect for a chat body with replaced file parts.
#[derive(Debug)]
struct ShiftedDialect {
    dialect: Box<dyn Dialect>,
    shifts: Vec<PartShift>,
}

/// `messages[0].content[7].image_url` by its original index.
fn unshifted(shifts: &[PartShift], name: &str) -> Option<String> {
    let rest = name.strip_prefix("messages[")?;
    let (message, rest) = rest.split_once("].content[")?;
    let (part, rest) = rest.split_once(']')?;
    let message: usize = message.parse().ok()?;
    let part: usize = part.parse().ok()?;
    let mut removed = 0;
    for shift in shifts.iter().filter(|shift| shift.message == message) {
        // The current start of this file's parts.
        let start = shift.part + removed;
        if part < start {
            break;
        }
        if part < start + shift.count {
            return Some(format!("messages[{message}].content[{}].file", shift.part));
        }
        removed += shift.count.saturating_sub(1);
    }
    let part = part - removed;
    Some(format!("messages[{message}].content[{part}]{rest}"))
}

impl Dialect for ShiftedDialect {
    fn id_prefix(&self) -> &'static str {
        self.dialect.id_prefix()
    }

    fn native_format(&self) -> Option<Formats> {
        self.dialect.native_format()
    }

    fn content_type(&self) -> &'static str {
        self.dialect.content_type()
    }

    fn complete(&self, request: &mut ChatRequest) -> Result<(), Problem> {
        self.dialect.complete(request)
    }

    fn unexamined(&self) -> Option<&'static str> {
        self.dialect.unexamined()
    }

    fn param<'a>(&self, chat: &'a str) -> Cow<'a, str> {
        match unshifted(&self.shifts, chat) {
            None => self.dialect.param(chat),
            Some(name) => self.dialect.param(&name).into_owned().into(),
        }
    }

    fn stream(&self, request: &ChatRequest, head: &Head) -> Box<dyn StreamWriter> {
        self.dialect.stream(request, head)
    }

    fn reply(&self, request: &ChatRequest, head: &Head) -> Box<dyn ReplyBuilder> {
        self.dialect.reply(request, head)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{PartShift, pages_to_parts, replace, unshifted};
    use muster_protocol::openai::chat::take_files;
    use muster_reader::PdfPage;

    #[test]
    fn parts_stand_where_their_files_were_and_keep_their_names() {
        let file = json!({"type": "file", "file": {"file_data": "AA=="}});
        let text = |text: &str| json!({"type": "text", "text": text});
        let content = json!([file, text("a"), file, text("b")]);
        let mut chat = json!({"messages": [{"role": "user", "content": content}]});
        let mut files = take_files(&mut chat).unwrap().into_iter();
        let mut file = || files.next().unwrap();
        let parts = vec![
            (file(), vec![text("1"), text("2"), text("3")]),
            (file(), vec![text("4"), text("5")]),
        ];
        let shifts = replace(&mut chat, parts);
        let found: Vec<&str> = chat["messages"][0]["content"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect();
        assert_eq!(found, ["1", "2", "3", "a", "4", "5", "b"]);
        let before = |part: usize| {
            let name = format!("messages[0].content[{part}].image_url");
            unshifted(&shifts, &name).unwrap()
        };
        assert_eq!(before(2), "messages[0].content[0].file");
        assert_eq!(before(3), "messages[0].content[1].image_url");
        assert_eq!(before(5), "messages[0].content[2].file");
        assert_eq!(before(6), "messages[0].content[3].image_url");
        assert_eq!(unshifted(&shifts, "model"), None);
        let other = unshifted(&shifts, "messages[1].content[2]").unwrap();
        assert_eq!(other, "messages[1].content[2]");
        let single = [PartShift {
            message: 0,
            part: 1,
            count: 1,
        }];
        let name = unshifted(&single, "messages[0].content[2].text").unwrap();
        assert_eq!(name, "messages[0].content[2].text");
    }

    #[test]
    fn a_page_is_an_image_or_its_text_with_its_number() {
        let page = |image: Option<&[u8]>| PdfPage {
            text: "words".to_owned(),
            image: image.map(<[u8]>::to_vec),
        };
        let parts = pages_to_parts(vec![page(Some(b"\x89PNG")), page(None)], Some("low"));
        assert_eq!(parts[0]["text"], "Page 1");
        assert_eq!(
            parts[1]["image_url"]["url"],
            "data:image/png;base64,iVBORw=="
        );
        assert_eq!(parts[1]["image_url"]["detail"], "low");
        assert_eq!(parts[2]["text"], "Page 2\nwords");
    }
}
