//! Files of a chat, inline or by URL: a separate process reads PDF files, texts are used as they are.

use bytes::Bytes;
use tokio::sync::Semaphore;
use tracing::warn;

use super::source::{Sources, is_address};
use super::{PictureError, from_base64};
use crate::egress::{EgressError, Limits};
use crate::sender::Sender;
use muster_reader::{PageForm, PdfLimits, PdfPage, ReadError};

/// Limit of a file, inline or fetched.
const MOST_BYTES: usize = 32 << 20;
/// Limit of text bytes per file.
const MOST_TEXT: u32 = 4 << 20;
/// Pixels of the longer side of a page: A4 at 131 dpi.
const PAGE_SIDE: u16 = 1536;
/// The PDF header is within the first bytes.
const HEADER_BYTES: usize = 1024;
const PDF: &[u8] = b"%PDF-";
/// Reader processes for documents of all senders. Each sender has one at a time.
static READERS: Semaphore = Semaphore::const_new(4);

/// A file of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatFile {
    Pdf(Vec<PdfPage>),
    Text(String),
}

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ChatFileError {
    #[error(transparent)]
    NotFetched(#[from] EgressError),
    #[error("the file is not valid base64")]
    NotBase64,
    #[error("the file is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the file is neither a PDF nor text in UTF-8")]
    UnknownType,
    #[error("the text of the file is larger than {MOST_TEXT} bytes")]
    LongText,
    #[error("{0}")]
    Unfit(String),
    /// Not the client's fault.
    #[error("{0}")]
    Reader(String),
}

impl Sources {
    /// Reads a file from base64 or a URL; of a PDF at most this many pages.
    pub async fn read_document(
        &self,
        sender: Sender,
        data: String,
        form: PageForm,
        pages: u32,
    ) -> Result<ChatFile, ChatFileError> {
        let file = match is_address(data.trim()) {
            true => {
                self.egress
                    .fetch(data.trim(), Limits::DOCUMENT)
                    .await?
                    .bytes
            }
            false => {
                let read = move || from_base64(&data, MOST_BYTES).map(Bytes::from);
                self.pictures.working(read).await.map_err(unread)?
            }
        };
        if !is_pdf(&file) {
            return text(&file);
        }
        let _turn = self.document_turns.turn(sender).await;
        let _reader = READERS.acquire().await;
        let limits = PdfLimits {
            pages,
            side: PAGE_SIDE,
            text_bytes: MOST_TEXT,
        };
        let pages = self.reader.pages(file, form, limits).await;
        pages.map(ChatFile::Pdf).map_err(|error| match error {
            ReadError::Refused(why) => ChatFileError::Unfit(why),
            ReadError::Ended(death) => {
                warn!("a PDF ended its reader process, it is refused: {death}");
                ChatFileError::Unfit(ReadError::Ended(death).to_string())
            }
            ReadError::Start(_) => ChatFileError::Reader(error.to_string()),
        })
    }
}

fn is_pdf(file: &[u8]) -> bool {
    let head = &file[..file.len().min(HEADER_BYTES)];
    head.windows(PDF.len()).any(|window| window == PDF)
}

fn text(file: &[u8]) -> Result<ChatFile, ChatFileError> {
    let text = str::from_utf8(file).map_err(|_| ChatFileError::UnknownType)?;
    if text.contains('\0') {
        return Err(ChatFileError::UnknownType);
    }
    match text.len() > MOST_TEXT as usize {
        true => Err(ChatFileError::LongText),
        false => Ok(ChatFile::Text(text.to_owned())),
    }
}

fn unread(error: PictureError) -> ChatFileError {
    match error {
        PictureError::TooLarge { most } => ChatFileError::TooLarge(most),
        _ => ChatFileError::NotBase64,
    }
}

#[cfg(test)]
mod tests {
    use super::{ChatFile, ChatFileError, is_pdf, text};

    #[test]
    fn a_file_is_a_pdf_or_a_text() {
        assert!(is_pdf(b"%PDF-1.7\n"));
        assert!(is_pdf(b"\xEF\xBB\xBF\n%PDF-1.4"));
        assert!(!is_pdf(b"plain"));
        let found = text("Zürich".as_bytes()).unwrap();
        assert_eq!(found, ChatFile::Text("Zürich".to_owned()));
        for file in [&b"a\0b"[..], b"\xFF\xD8\xFF\xE0"] {
            assert!(matches!(text(file), Err(ChatFileError::UnknownType)));
        }
    }
}
