//! Objects as files of a private folder.
//!
//! A new file is written under a temporary name, synced and then renamed: a file is complete or absent. A name that was
//! filled by an upload or deleted is not filled again; a repeated upload gets the reply of the first. Uploads are
//! refused while the disk has less than the reserved free space.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::disk::{Disk, Found};
use super::key::{Area, Key};
use super::link::Ticket;
use super::{Interrupted, StoredObject, Unaccepted, check_type};
use muster_media::{MediaType, SIGNATURE_BYTES};

#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
    disk: Arc<Disk>,
}

const OTHER_FOLDER: &str = "the media folder was replaced while in use: mount its disk again, or restart the coordinator to use the new folder";
const DELETED_FOLDER: &str = "the media folder was deleted and recreating it failed: create a folder that the coordinator can write to";
/// Folder of partial files.
const PARTS: &str = "parts";
/// Folder of markers for deleted objects, so that no upload link restores them.
const DELETED: &str = "deleted";

/// A temporary file, deleted if it was not renamed.
struct Part {
    path: PathBuf,
    file: File,
}

impl Folder {
    /// Opens the folder, created if missing.
    pub fn open(root: &Path, spare: u64) -> io::Result<Self> {
        make(root)?;
        let folder = Self {
            root: root.to_owned(),
            disk: Arc::new(Disk::of(root, spare)?),
        };
        Ok(folder)
    }

    /// The problem of the folder, if any.
    pub fn problem(&self) -> Option<&'static str> {
        self.disk.problem()
    }

    /// Checks that the folder is still the one that was opened. A deleted folder is created again, since its images are
    /// lost in any case.
    pub async fn look(&self) -> io::Result<()> {
        self.blocking(|folder| {
            let problem = match folder.disk.found() {
                Found::Same if folder.has_areas() => None,
                Found::Same | Found::Nothing => folder.make_anew(),
                Found::Other => Some(OTHER_FOLDER),
            };
            match (folder.disk.note(problem), problem) {
                (None, Some(problem)) => error!("images are refused: {problem}"),
                (Some(_), None) => {
                    info!("the media folder is available again, images are accepted")
                }
                _ => {}
            }
            Ok(())
        })
        .await
    }

    fn has_areas(&self) -> bool {
        let areas = Area::ALL.map(Area::name);
        areas
            .into_iter()
            .chain([PARTS])
            .all(|area| self.root.join(area).is_dir())
    }

    fn make_anew(&self) -> Option<&'static str> {
        match make(&self.root).and_then(|()| self.disk.adopt()) {
            Ok(()) => {
                warn!(
                    "the media folder or a subfolder was deleted and has been recreated: its images are lost"
                );
                None
            }
            Err(_) => Some(DELETED_FOLDER),
        }
    }

    /// Stores an object under its name, replacing one.
    pub async fn put(&self, key: Key, bytes: Bytes) -> io::Result<()> {
        self.blocking(move |folder| {
            folder.disk.check(bytes.len() as u64)?;
            let mut part = folder.part()?;
            part.file.write_all(&bytes)?;
            part.file.sync_all()?;
            fs::rename(&part.path, folder.path(key))?;
            folder.keep_names(key)
        })
        .await
    }

    pub async fn get(&self, key: Key) -> io::Result<Option<Bytes>> {
        self.blocking(move |folder| found(fs::read(folder.path(key)).map(Bytes::from)))
            .await
    }

    /// An object as a file, and its length.
    pub async fn open_file(&self, key: Key) -> io::Result<Option<(File, u64)>> {
        self.blocking(move |folder| {
            let open = || {
                let file = File::open(folder.path(key))?;
                let bytes = file.metadata()?.len();
                Ok((file, bytes))
            };
            found(open())
        })
        .await
    }

    /// Whether an upload of the link's size would be accepted now.
    pub fn check_room(&self, ticket: Ticket) -> io::Result<()> {
        self.disk.check(ticket.most)
    }

    pub fn has_room(&self, bytes: u64) -> bool {
        self.disk.check(bytes).is_ok()
    }

    pub async fn size(&self, key: Key) -> io::Result<Option<u64>> {
        self.blocking(move |folder| found(fs::metadata(folder.path(key)).map(|data| data.len())))
            .await
    }

    pub async fn delete(&self, key: Key) -> io::Result<()> {
        self.blocking(move |folder| {
            // Sources have no upload links.
            if key.area() == Area::Results {
                private().create(true).open(folder.deleted(key))?;
            }
            found(fs::remove_file(folder.path(key))).map(drop)
        })
        .await
    }

    /// Receives the upload of a link, once.
    pub async fn receive(
        &self,
        ticket: Ticket,
        mut body: impl Stream<Item = Result<Bytes, Interrupted>> + Unpin,
    ) -> Result<u64, Unaccepted> {
        let key = ticket.key;
        let _alone = self.disk.claim(ticket).ok_or(Unaccepted::Used)?;
        let used = self.blocking(move |folder| Ok(folder.is_used(key))).await?;
        if used {
            return self.same_again(key, body).await;
        }
        let part = |folder: &Self| {
            // The upload's own reservation is in the sum already.
            folder.disk.check(0)?;
            folder.part()
        };
        let Part { path, file } = &self.blocking(part).await?;
        let mut writing = tokio::fs::File::from_std(file.try_clone()?);
        let mut sent = Sent::default();
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            sent.add(&bytes, ticket)?;
            writing.write_all(&bytes).await?;
        }
        sent.end(ticket)?;
        // Late write errors surface only here.
        writing.flush().await?;
        writing.sync_all().await?;
        let (path, bytes) = (path.clone(), sent.bytes);
        let kept = self.blocking(move |folder| folder.take_in(&path, key, bytes));
        match kept.await? {
            true => Ok(sent.bytes),
            false => Err(Unaccepted::Used),
        }
    }

    /// A repeated upload, sent because the client lost the reply: returns the stored length if the content is equal.
    async fn same_again(
        &self,
        key: Key,
        mut body: impl Stream<Item = Result<Bytes, Interrupted>> + Unpin,
    ) -> Result<u64, Unaccepted> {
        let Some((file, length)) = self.open_file(key).await? else {
            return Err(Unaccepted::Used);
        };
        let (mut there, mut left) = (tokio::fs::File::from_std(file), length);
        let mut piece = Vec::new();
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            let more = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            left = left.checked_sub(more).ok_or(Unaccepted::Used)?;
            piece.resize(bytes.len(), 0);
            there.read_exact(&mut piece).await?;
            if piece != bytes {
                return Err(Unaccepted::Used);
            }
        }
        match left {
            0 => Ok(length),
            _ => Err(Unaccepted::Used),
        }
    }

    /// Renames a complete part, unless the name is or was taken.
    fn take_in(&self, part: &Path, key: Key, bytes: u64) -> io::Result<bool> {
        let there = fs::metadata(part)?.len();
        if there != bytes {
            let message = format!("{bytes} bytes were received, but {there} are on the disk");
            return Err(io::Error::other(message));
        }
        match fs::hard_link(part, self.path(key)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            linked => linked?,
        }
        // Deleted during the upload.
        if self.deleted(key).exists() {
            fs::remove_file(self.path(key))?;
            return Ok(false);
        }
        self.keep_names(key)?;
        Ok(true)
    }

    /// Removes objects older than `keep`. Returns their number. Warns if there is no space after that.
    pub async fn sweep(&self, keep: Duration) -> io::Result<u64> {
        self.blocking(move |folder| {
            let before = SystemTime::now().checked_sub(keep);
            let Some(before) = before else {
                return Ok(0);
            };
            remove_before(&folder.root.join(PARTS), before)?;
            let areas = Area::ALL.into_iter();
            let removed = areas
                .map(|area| remove_before(&folder.root.join(area.name()), before))
                .sum();
            // `look` logs the problem; the next upload is refused.
            let _ = folder.disk.look();
            removed
        })
        .await
    }

    pub async fn objects(&self) -> io::Result<Vec<StoredObject>> {
        self.blocking(|folder| {
            let mut objects = Vec::new();
            for area in Area::ALL.map(Area::name) {
                for entry in fs::read_dir(folder.root.join(area))? {
                    let entry = entry?;
                    let name = entry.file_name();
                    let key = format!("{area}/{}", name.to_string_lossy()).parse();
                    // Markers of deleted objects are skipped; other processes may delete an object meanwhile.
                    if let (Ok(key), Some(data)) = (key, found(entry.metadata())?) {
                        let bytes = data.len();
                        objects.push(StoredObject { key, bytes });
                    }
                }
            }
            Ok(objects)
        })
        .await
    }

    fn is_used(&self, key: Key) -> bool {
        self.path(key).exists() || self.deleted(key).exists()
    }

    fn part(&self) -> io::Result<Part> {
        let path = self.root.join(PARTS).join(Uuid::new_v4().to_string());
        let file = private().create_new(true).open(&path)?;
        Ok(Part { path, file })
    }

    fn path(&self, key: Key) -> PathBuf {
        self.root.join(key.to_string())
    }

    fn deleted(&self, key: Key) -> PathBuf {
        self.root.join(format!("{key}.{DELETED}"))
    }

    /// Syncs the folder, after the contents of its files.
    fn keep_names(&self, key: Key) -> io::Result<()> {
        File::open(self.root.join(key.area().name()))?.sync_all()
    }

    /// Runs on a blocking thread.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let folder = self.clone();
        let done = spawn_blocking(move || work(&folder)).await;
        done.unwrap_or_else(|_| Err(io::Error::other("the file operation was aborted")))
    }
}

/// The size and the first bytes of an upload.
#[derive(Debug, Default)]
struct Sent {
    bytes: u64,
    beginning: Vec<u8>,
}

impl Sent {
    fn add(&mut self, bytes: &[u8], ticket: Ticket) -> Result<(), Unaccepted> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.bytes = self.bytes.saturating_add(length);
        if self.bytes > ticket.most {
            return Err(Unaccepted::TooLarge { most: ticket.most });
        }
        let missing = SIGNATURE_BYTES.saturating_sub(self.beginning.len());
        self.beginning.extend(bytes.iter().take(missing));
        match self.beginning.len() {
            SIGNATURE_BYTES => self.end(ticket),
            _ => Ok(()),
        }
    }

    fn end(&self, ticket: Ticket) -> Result<(), Unaccepted> {
        check_type(ticket.key, MediaType::sniff(&self.beginning))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A finished upload was renamed and stays.
        let _ = fs::remove_file(&self.path);
    }
}

/// Creates missing folders.
fn make(root: &Path) -> io::Result<()> {
    let areas = Area::ALL.map(Area::name);
    for area in areas.into_iter().chain([PARTS]) {
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(root.join(area))?;
    }
    Ok(())
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn found<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn remove_before(folder: &Path, before: SystemTime) -> io::Result<u64> {
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Another process may have removed it.
        let Some(data) = found(entry.metadata())? else {
            continue;
        };
        if data.is_file() && data.modified()? < before {
            removed += u64::from(found(fs::remove_file(entry.path()))?.is_some());
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;
    use futures_util::stream;
    use uuid::Uuid;

    use super::{Folder, Ticket};
    use crate::media::{Area, Key, MediaType, Unaccepted};

    #[test]
    fn what_is_not_all_there_gets_no_name() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path(), 0).unwrap();
        let key = Key::new(Area::Results, Uuid::nil(), 1, MediaType::Webp);
        let mut part = folder.part().unwrap();
        part.file.write_all(b"RIFF").unwrap();
        assert!(folder.take_in(&part.path, key, 5).is_err());
        assert!(!folder.path(key).exists());
        assert!(folder.take_in(&part.path, key, 4).unwrap());
        assert!(folder.path(key).exists());
    }

    #[tokio::test]
    async fn what_an_upload_may_still_bring_is_no_room_for_another() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path(), 0).unwrap();
        let ticket = |number, most| Ticket {
            key: Key::new(Area::Results, Uuid::nil(), number, MediaType::Webp),
            most,
        };
        let upload = || {
            let image = Bytes::from_static(b"RIFF\x10\0\0\0WEBPVP8 ");
            folder.receive(ticket(1, 100), stream::iter([Ok(image)]))
        };
        let first = folder.disk.claim(ticket(2, u64::MAX)).unwrap();
        let refused = upload().await;
        assert!(matches!(refused, Err(Unaccepted::Store(_))), "{refused:?}");
        drop(first);
        upload().await.unwrap();
    }
}
