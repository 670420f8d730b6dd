//! Exports all data of an account as one JSON document, written in pieces, as it may be larger than memory.

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{ErasureError, StoredContents};
use crate::clock::{rfc3339, wall_clock};
use crate::media::Media;
use crate::requests::results::LINKS;
use crate::storage::{ExportSection, Store};
use muster_protocol::job::AccountId;

/// The export of an account.
#[derive(Debug)]
pub struct AccountExport {
    pub store: Store,
    pub media: Media,
    pub account: AccountId,
}

/// Why an export ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Erasure(#[from] ErasureError),
    #[error("the reader of the export has left")]
    Abandoned,
}

/// Receives the pieces of an export.
pub type ExportSender = mpsc::Sender<Result<Bytes, ExportError>>;

/// Limit of pieces that wait for their reader.
const WAITING: usize = 16;

/// Connects an export to its reader.
pub fn pieces() -> (ExportSender, mpsc::Receiver<Result<Bytes, ExportError>>) {
    mpsc::channel(WAITING)
}

impl AccountExport {
    /// A failed export ends with the error.
    pub async fn write(self, pieces: ExportSender) {
        if let Err(error) = self.write_all(&pieces).await {
            // The reader may be gone.
            let _ = pieces.send(Err(error)).await;
        }
    }

    async fn write_all(&self, pieces: &ExportSender) -> Result<(), ExportError> {
        let head = json!({
            "object": "account.export",
            "account_id": self.account.0.to_string(),
            "exported": rfc3339(wall_clock()),
        });
        let head = head.to_string();
        let head = head.trim_end_matches('}').to_owned();
        send(pieces, head).await?;
        for section in ExportSection::ALL {
            let mut list = ExportList::begin(pieces, section.name()).await?;
            let mut offset = 0;
            loop {
                let page = self.store.export_page(*section, self.account, offset);
                let page = page.await.map_err(ErasureError::from)?;
                let is_last = page.len() < section.page();
                offset += page.len();
                for row in page {
                    list.add(row).await?;
                }
                if is_last {
                    break;
                }
            }
            list.end().await?;
        }
        self.write_media(pieces).await?;
        send(pieces, "}\n".to_owned()).await
    }

    async fn write_media(&self, pieces: &ExportSender) -> Result<(), ExportError> {
        let Self { store, media, .. } = self;
        let owners = StoredContents { store, media }.owners(self.account).await?;
        let objects = media
            .objects_of(&owners)
            .await
            .map_err(ErasureError::from)?;
        let mut list = ExportList::begin(pieces, "media").await?;
        for object in objects {
            let link = media.download_link(object.key, LINKS).await;
            let object = json!({
                "name": object.key.to_string(),
                "bytes": object.bytes,
                "url": link.map_err(ErasureError::from)?,
            });
            list.add(object).await?;
        }
        list.end().await
    }
}

/// A list of the document.
struct ExportList<'a> {
    pieces: &'a ExportSender,
    is_empty: bool,
}

impl<'a> ExportList<'a> {
    async fn begin(pieces: &'a ExportSender, name: &str) -> Result<Self, ExportError> {
        send(pieces, format!(",\n\"{name}\": [")).await?;
        Ok(Self {
            pieces,
            is_empty: true,
        })
    }

    async fn add(&mut self, item: Value) -> Result<(), ExportError> {
        let comma = if self.is_empty { "\n" } else { ",\n" };
        self.is_empty = false;
        send(self.pieces, format!("{comma}{item}")).await
    }

    async fn end(self) -> Result<(), ExportError> {
        send(self.pieces, "]".to_owned()).await
    }
}

async fn send(pieces: &ExportSender, text: String) -> Result<(), ExportError> {
    let sent = pieces.send(Ok(text.into())).await;
    sent.map_err(|_| ExportError::Abandoned)
}
