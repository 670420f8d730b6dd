//! The disk of a media folder: the space to keep free, and the uploads to expect.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tracing::error;

use crate::file_id::{FileId, is_gone};

use super::key::Key;
use super::link::Ticket;

#[derive(Debug)]
pub struct Disk {
    /// A folder on it.
    root: PathBuf,
    /// Bytes kept free.
    spare: u64,
    /// Uploads under way, and their maximum bytes.
    arriving: Mutex<HashMap<Key, u64>>,
    /// Whether a full disk was logged.
    warned: AtomicBool,
    /// Identity of the opened folder, and the problem of the present one.
    place: Mutex<Place>,
}

#[derive(Debug)]
struct Place {
    id: FileId,
    problem: Option<&'static str>,
}

/// The result of a check of the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The opened folder.
    Same,
    /// No folder.
    Nothing,
    /// Another folder, for example the mount point of an unmounted disk.
    Other,
}

/// An upload under way, the only one for its key. Reserves the maximum bytes of its link.
#[derive(Debug)]
pub struct Arriving {
    key: Key,
    disk: Arc<Disk>,
}

impl Disk {
    pub fn of(root: &Path, spare: u64) -> io::Result<Self> {
        let place = Place {
            id: FileId::of(root)?,
            problem: None,
        };
        Ok(Self {
            root: root.to_owned(),
            spare,
            arriving: Mutex::default(),
            warned: AtomicBool::default(),
            place: Mutex::new(place),
        })
    }

    pub fn found(&self) -> Found {
        match FileId::of(&self.root) {
            Err(error) if is_gone(&error) => Found::Nothing,
            // Errors of the disk are reported by its users.
            Err(_) => Found::Same,
            Ok(id) if id == self.place().id => Found::Same,
            Ok(_) => Found::Other,
        }
    }

    /// Accepts the present folder as the right one.
    pub fn adopt(&self) -> io::Result<()> {
        let id = FileId::of(&self.root)?;
        *self.place() = Place { id, problem: None };
        Ok(())
    }

    pub fn problem(&self) -> Option<&'static str> {
        self.place().problem
    }

    /// Sets the current problem and returns the one before.
    pub fn note(&self, problem: Option<&'static str>) -> Option<&'static str> {
        std::mem::replace(&mut self.place().problem, problem)
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock()
    }

    /// `None` during another upload with the same key.
    pub fn claim(self: &Arc<Self>, Ticket { key, most }: Ticket) -> Option<Arriving> {
        let mut arriving = self.arriving();
        if arriving.contains_key(&key) {
            return None;
        }
        arriving.insert(key, most);
        let disk = self.clone();
        Some(Arriving { key, disk })
    }

    /// Warns if the disk is full, even repeatedly.
    pub fn look(&self) -> io::Result<()> {
        self.warned.store(false, Ordering::Relaxed);
        self.check(0)
    }

    /// Whether this many bytes fit beside all uploads under way. Warns once until the next [`Disk::look`] if not.
    pub fn check(&self, bytes: u64) -> io::Result<()> {
        if let Some(problem) = self.problem() {
            return Err(io::Error::other(problem));
        }
        let disk = rustix::fs::statvfs(&self.root)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let coming = self.coming().saturating_add(bytes);
        let wanted = self.spare.saturating_add(coming);
        if free >= wanted {
            return Ok(());
        }
        let message = format!("the disk has {free} bytes free, {wanted} are required");
        if !self.warned.swap(true, Ordering::Relaxed) {
            error!("images are refused: {message}; free disk space or lower serve.media.keep_free");
        }
        Err(io::Error::new(ErrorKind::StorageFull, message))
    }

    fn coming(&self) -> u64 {
        let arriving = self.arriving();
        arriving
            .values()
            .fold(0, |sum: u64, most| sum.saturating_add(*most))
    }

    fn arriving(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.arriving.lock()
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.disk.arriving().remove(&self.key);
    }
}
