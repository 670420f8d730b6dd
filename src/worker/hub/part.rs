//! A partial download: its bytes, and a journal of the received ranges.
//!
//! Ranges arrive in any order, so the length of the part is meaningless. A line is added to the journal after its bytes
//! were written: a killed process loses only its buffer. Bytes lost in a power failure are detected by the final hash.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::extents::Extents;
use parking_lot::Mutex;

pub struct Part {
    files: Arc<Files>,
    size: u64,
    extents: Mutex<Extents>,
}

struct Files {
    data: File,
    journal: File,
    data_path: PathBuf,
    journal_path: PathBuf,
}

impl Part {
    /// Opens the part of a blob of this size, with the rest of an earlier pull.
    pub fn open(blob: &Path, size: u64) -> io::Result<Self> {
        let [data_path, journal_path] = paths(blob);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let data = options.open(&data_path)?;
        let journal = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&journal_path)?;
        let files = Files {
            data,
            journal,
            data_path,
            journal_path,
        };
        let extents = files.read_journal(size)?;
        Ok(Self {
            files: Arc::new(files),
            size,
            extents: Mutex::new(extents),
        })
    }

    pub fn path(&self) -> &Path {
        &self.files.data_path
    }

    pub fn present_bytes(&self) -> u64 {
        self.extents().bytes()
    }

    pub fn missing(&self, longest: u64) -> Vec<Range<u64>> {
        self.extents().missing(self.size, longest)
    }

    pub async fn write(&self, offset: u64, bytes: Vec<u8>) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        let files = Arc::clone(&self.files);
        blocking(move || {
            files.data.write_all_at(&bytes, offset)?;
            files.note(offset..end)
        })
        .await?;
        self.extents().insert(offset..end);
        Ok(())
    }

    /// Drops all received ranges.
    pub fn restart(&self) -> io::Result<()> {
        self.files.begin(self.size)?;
        *self.extents() = Extents::default();
        Ok(())
    }

    /// The whole file under its own name, on the disk for good.
    pub async fn finish(self, blob: PathBuf) -> io::Result<()> {
        blocking(move || {
            self.files.data.set_len(self.size)?;
            self.files.data.sync_all()?;
            fs::rename(&self.files.data_path, &blob)?;
            if let Some(folder) = blob.parent() {
                File::open(folder)?.sync_all()?;
            }
            fs::remove_file(&self.files.journal_path)
        })
        .await
    }

    pub fn discard(self) -> io::Result<()> {
        fs::remove_file(&self.files.journal_path)?;
        fs::remove_file(&self.files.data_path)
    }

    fn extents(&self) -> parking_lot::MutexGuard<'_, Extents> {
        self.extents.lock()
    }
}

/// Other tools interpret the length of `<etag>.incomplete` as the received part, so ours has a different name.
fn paths(blob: &Path) -> [PathBuf; 2] {
    ["muster.incomplete", "muster.journal"].map(|extension| {
        let mut name = blob.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(extension);
        blob.with_file_name(name)
    })
}

/// Bytes that an earlier pull has written of a blob; read only.
pub fn present_bytes(blob: &Path, size: u64) -> u64 {
    let [data, journal] = paths(blob);
    let written = fs::metadata(data).map_or(0, |metadata| metadata.len());
    let text = fs::read_to_string(journal).unwrap_or_default();
    parse_journal(&text, size, written).map_or(0, |extents| extents.bytes())
}

/// Whether a part of an earlier pull exists, even an empty one.
pub fn is_left(blob: &Path) -> bool {
    paths(blob).iter().any(|path| path.exists())
}

/// Removes the part of an interrupted pull, and returns its size.
pub fn remove_leftovers(blob: &Path) -> u64 {
    let mut bytes = 0;
    for path in paths(blob) {
        let size = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        if fs::remove_file(&path).is_ok() {
            bytes += size;
        }
    }
    bytes
}

fn header(size: u64) -> String {
    format!("muster part 1 of {size} bytes\n")
}

impl Files {
    /// The ranges of an earlier pull; none if its journal was for another file or length.
    fn read_journal(&self, size: u64) -> io::Result<Extents> {
        let mut text = String::new();
        let readable = (&self.journal).read_to_string(&mut text).is_ok();
        let written = self.data.metadata()?.len();
        let Some(extents) = parse_journal(&text, size, written).filter(|_| readable) else {
            self.begin(size)?;
            return Ok(Extents::default());
        };
        if !text.ends_with('\n') {
            (&self.journal).write_all(b"\n")?;
        }
        Ok(extents)
    }

    fn begin(&self, size: u64) -> io::Result<()> {
        self.journal.set_len(0)?;
        self.data.set_len(0)?;
        (&self.journal).write_all(header(size).as_bytes())
    }

    fn note(&self, range: Range<u64>) -> io::Result<()> {
        (&self.journal).write_all(format!("{} {}\n", range.start, range.end).as_bytes())
    }
}

fn parse_journal(text: &str, size: u64, written: u64) -> Option<Extents> {
    let lines = text.strip_prefix(&header(size))?;
    let mut extents = Extents::default();
    // The last line may be incomplete, without a line end; its range is requested again.
    for line in lines
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
    {
        if let Some(range) = range(line).filter(|range| range.end <= written.min(size)) {
            extents.insert(range);
        }
    }
    Some(extents)
}

fn range(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_once(' ')?;
    let range = start.parse().ok()?..end.parse().ok()?;
    (range.start < range.end).then_some(range)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn a_part_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let blob = folder.path().join("abc");
        let part = Part::open(&blob, 10).unwrap();
        part.write(2, vec![2, 3]).await.unwrap();
        part.write(8, vec![8, 9]).await.unwrap();
        drop(part);
        let part = Part::open(&blob, 10).unwrap();
        assert_eq!(part.missing(100), vec![0..2, 4..8]);
        part.write(0, vec![0, 1]).await.unwrap();
        part.write(4, vec![4, 5, 6, 7]).await.unwrap();
        part.finish(blob.clone()).await.unwrap();
        assert_eq!(fs::read(&blob).unwrap(), (0..10).collect::<Vec<u8>>());
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    /// Checks the missing ranges of ten bytes, given this journal and a part of eight bytes.
    #[track_caller]
    fn check_journal(journal: &str, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let blob = folder.path().join("abc");
        let [data, path] = paths(&blob);
        fs::write(data, [7; 8]).unwrap();
        fs::write(path, journal).unwrap();
        let missing = Part::open(&blob, 10).unwrap().missing(100);
        assert_eq!(format!("{missing:?}"), expected, "{journal:?}");
    }

    #[test]
    fn a_journal_is_believed_only_as_far_as_it_can_be_true() {
        check_journal("muster part 1 of 10 bytes\n0 4\n", "[4..10]");
        check_journal("muster part 1 of 10 bytes\n0 4\n4 8", "[4..10]");
        check_journal("muster part 1 of 10 bytes\n0 4\n4 9\n", "[4..10]");
        check_journal("muster part 1 of 10 bytes\n4 0\nx y\n0 2\n", "[2..10]");
        check_journal("muster part 1 of 11 bytes\n0 4\n", "[0..10]");
        check_journal("", "[0..10]");
    }

    #[tokio::test]
    async fn a_torn_line_does_not_spoil_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let blob = folder.path().join("abc");
        let [data, journal] = paths(&blob);
        fs::write(data, [7; 10]).unwrap();
        fs::write(journal, "muster part 1 of 10 bytes\n0 4\n4 ").unwrap();
        let part = Part::open(&blob, 10).unwrap();
        part.write(6, vec![1, 2]).await.unwrap();
        drop(part);
        assert_eq!(
            Part::open(&blob, 10).unwrap().missing(100),
            vec![4..6, 8..10]
        );
    }
}
