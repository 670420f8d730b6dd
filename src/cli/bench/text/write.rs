//! Random weights as a file that other programs load: there whole, or not at all.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::{file_bytes, room};
use crate::cli::meter::Meter;
use crate::cli::{Exit, Failure, load, output, publish};
use crate::daemon::Signals;
use crate::hub;
use crate::networks::text::Synthetic;

pub fn write(made: Synthetic, file: &Path, force: bool, is_shown: bool) -> Result<(), Failure> {
    let total = room::weight_bytes(&made);
    publish::check(file, force)?;
    let part = Part::begin(file, total)?;
    let title = format!("writing {}", file.display());
    let meter = Arc::new(Meter::new(title, is_shown));
    let work = {
        let (meter, path, out) = (meter.clone(), part.path.clone(), part.opened.clone());
        move || watching(&path, total, &meter, || made.write_gguf(out))
    };
    let written = load::block_on(async {
        let mut signals = Signals::listen().map_err(anyhow::Error::from)?;
        let stopped = async {
            signals.next().await;
        };
        unless(stopped, work).await
    });
    meter.end();
    match written? {
        Some(written) => written.map_err(|error| Failure::writing(file, &error))?,
        None => return Err(stopped(file)),
    }
    part.publish(file, force)?;
    output::line(format!("wrote {}", file.display()))
}

/// A partial file beside its target, locked by this process. Deleted on drop unless renamed to the target.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    opened: Arc<File>,
}

impl Part {
    /// Takes over the partial file of a killed process, and checks that the disk has space.
    fn begin(file: &Path, bytes: u64) -> Result<Self, Failure> {
        let name = file.file_name().unwrap_or_default();
        let path = folder(file).join(format!(".{}.muster-part", name.display()));
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let options = options.custom_flags(libc::O_NOFOLLOW);
        let opened = options
            .open(&path)
            .map_err(|error| Failure::writing(file, &error))?;
        // Some network file systems have no locks; concurrent writers go unnoticed there.
        if let Err(TryLockError::WouldBlock) = opened.try_lock() {
            let message = format!("another process is writing {}", path.display());
            return Err(Failure::new(Exit::CannotWrite, message));
        }
        let part = Self {
            path,
            opened: Arc::new(opened),
        };
        let emptied = part.opened.set_len(0);
        emptied.map_err(|error| Failure::writing(&part.path, &error))?;
        hub::check_room(folder(file), bytes)
            .map_err(|error| Failure::new(Exit::CannotWrite, error))?;
        Ok(part)
    }

    fn publish(self, file: &Path, force: bool) -> Result<(), Failure> {
        let kept = self.opened.sync_all();
        kept.map_err(|error| Failure::writing(file, &error))?;
        publish::publish(&self.path, file, force)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Gone already where it was renamed; otherwise nothing of it may stay.
        let _ = fs::remove_file(&self.path);
    }
}

fn folder(file: &Path) -> &Path {
    let parent = file.parent().unwrap_or(file);
    match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    }
}

/// Runs work on a thread, which is left behind when the signal comes first.
async fn unless<T: Send + 'static>(
    stopped: impl Future<Output = ()>,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<Option<io::Result<T>>, Failure> {
    let working = tokio::task::spawn_blocking(work);
    tokio::select! {
        biased;
        () = stopped => Ok(None),
        done = working => Ok(Some(done.map_err(anyhow::Error::from)?)),
    }
}

fn stopped(file: &Path) -> Failure {
    let message = format!("interrupted: {} was not written", file.display());
    Failure::new(Exit::Interrupted, message)
}

/// How often a growing file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Runs the work that writes a file, and reports the file's growth.
fn watching<T>(file: &Path, total: u64, meter: &Meter, work: impl FnOnce() -> T) -> T {
    let (working, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                meter.set(file_bytes(file).unwrap_or(0), total);
            }
        });
        let result = work();
        drop(working);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::text::{DecoderSpec, SyntheticQuant};

    fn tiny() -> Synthetic {
        Synthetic::new(DecoderSpec::named("tiny").unwrap(), SyntheticQuant::Q8_0)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_there_whole_and_what_was_left_of_another_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tiny.gguf");
        let left = folder.path().join(".tiny.gguf.muster-part");
        File::create(&left).unwrap().set_len(1 << 30).unwrap();
        write(tiny(), &file, false, false).unwrap();
        assert_eq!(names(folder.path()), ["tiny.gguf"]);
        let mut whole = Vec::new();
        tiny().write_gguf(&mut whole).unwrap();
        assert_eq!(fs::read(&file).unwrap(), whole);
    }

    #[test]
    fn a_file_that_is_there_is_replaced_only_where_that_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tiny.gguf");
        fs::write(&file, "mine").unwrap();
        let failure = write(tiny(), &file, false, false).unwrap_err();
        assert_eq!(failure.exit(), Some(Exit::CannotWrite));
        assert_eq!(fs::read(&file).unwrap(), b"mine");
        write(tiny(), &file, true, false).unwrap();
        assert!(fs::read(&file).unwrap().starts_with(b"GGUF"));
        assert_eq!(names(folder.path()), ["tiny.gguf"]);
    }

    #[test]
    fn what_has_no_room_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let failure = Part::begin(&folder.path().join("large.gguf"), u64::MAX).unwrap_err();
        assert_eq!(failure.exit(), Some(Exit::CannotWrite));
        assert!(
            failure.to_string().contains("not enough disk space"),
            "{failure}"
        );
        assert_eq!(names(folder.path()).len(), 0);
    }

    #[test]
    fn two_do_not_write_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tiny.gguf");
        let first = Part::begin(&file, 0).unwrap();
        let failure = Part::begin(&file, 0).unwrap_err();
        assert!(
            failure.to_string().contains("another process is writing"),
            "{failure}"
        );
        assert_eq!(names(folder.path()), [".tiny.gguf.muster-part"]);
        drop(first);
        assert_eq!(names(folder.path()).len(), 0);
    }

    #[test]
    fn work_that_is_stopped_is_not_waited_for() {
        let (_held, holds) = mpsc::channel::<()>();
        let work = move || {
            // Until the test is over.
            let _ = holds.recv();
            Ok(())
        };
        let done = load::block_on(unless(std::future::ready(()), work));
        assert!(done.unwrap().is_none());
        let done = load::block_on(unless(std::future::pending(), || Ok(7)));
        assert_eq!(done.unwrap().unwrap().unwrap(), 7);
    }
}
