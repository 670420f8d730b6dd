//! The samples of a week in the data folder, one line of JSON each, so that a restart keeps them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{WEEK_SAMPLES, WEEK_SECONDS};
use crate::daemon::report::HistorySample;

const FILE: &str = "worker-history.jsonl";
/// The part of a file that is read; the samples of a week take a few MiB.
const MOST_BYTES: u64 = 32 << 20;
/// Lines appended before lines older than a week are deleted: a day's.
const MOST_APPENDED: usize = 24 * 60;
/// A clock that is set back leaves samples of the future.
const FUTURE_SECONDS: i64 = 3600;

#[derive(Debug)]
pub struct HistoryFile {
    path: PathBuf,
    appended: usize,
}

impl HistoryFile {
    /// Returns the samples of the last week in order. Unreadable lines are skipped.
    pub fn open(data_dir: &Path, now: i64) -> (Self, Vec<HistorySample>) {
        let path = data_dir.join(FILE);
        let text = tail(&path).unwrap_or_default();
        let lines = text.lines().count();
        let wanted = now - WEEK_SECONDS..=now + FUTURE_SECONDS;
        let samples = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut samples: Vec<HistorySample> = samples
            .filter(|sample: &HistorySample| wanted.contains(&sample.at))
            .collect();
        samples.sort_by_key(|sample| sample.at);
        let surplus = samples.len().saturating_sub(WEEK_SAMPLES);
        samples.drain(..surplus);
        let file = Self {
            path,
            // Other lines leave the file with the next sample.
            appended: match samples.len() == lines && (text.is_empty() || text.ends_with('\n')) {
                true => 0,
                false => MOST_APPENDED,
            },
        };
        (file, samples)
    }

    /// Adds the last of these samples.
    pub fn append(&mut self, samples: &[HistorySample]) -> io::Result<()> {
        if self.appended >= MOST_APPENDED {
            self.rewrite(samples)?;
            self.appended = 0;
            return Ok(());
        }
        let Some(sample) = samples.last() else {
            return Ok(());
        };
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.path)?;
        file.write_all(line(sample)?.as_bytes())?;
        self.appended += 1;
        Ok(())
    }

    /// Takes the place of the file only once it is whole.
    fn rewrite(&self, samples: &[HistorySample]) -> io::Result<()> {
        let new = self.path.with_extension("jsonl.new");
        let mut text = String::new();
        for sample in samples {
            text += &line(sample)?;
        }
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, &self.path)
    }
}

fn line(sample: &HistorySample) -> io::Result<String> {
    Ok(serde_json::to_string(sample)? + "\n")
}

/// The last part of a file that is too long.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: i64) -> HistorySample {
        HistorySample {
            at,
            ..HistorySample::default()
        }
    }

    fn times(samples: &[HistorySample]) -> Vec<i64> {
        samples.iter().map(|sample| sample.at).collect()
    }

    #[test]
    fn samples_survive_a_restart_and_damaged_lines_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let now = 10_000_000;
        let (mut file, samples) = HistoryFile::open(folder.path(), now);
        assert!(samples.is_empty());
        file.append(&[sample(now - WEEK_SECONDS - 60)]).unwrap();
        file.append(&[sample(now - 120)]).unwrap();
        let path = folder.path().join(FILE);
        let mut text = fs::read(&path).unwrap();
        text.extend(b"{\"at\": 1\n\xff\xfe\n[]\n{\"at\":99");
        fs::write(&path, text).unwrap();
        let (mut file, mut samples) = HistoryFile::open(folder.path(), now);
        assert_eq!(times(&samples), [now - 120]);
        samples.push(sample(now - 60));
        file.append(&samples).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        assert_eq!(whole.lines().count(), 2, "{whole}");
        let (_, samples) = HistoryFile::open(folder.path(), now);
        assert_eq!(times(&samples), [now - 120, now - 60]);
    }

    #[test]
    fn the_file_holds_at_most_a_week_and_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, _) = HistoryFile::open(folder.path(), 0);
        let kept = [sample(1), sample(2)];
        for _ in 0..=MOST_APPENDED {
            file.append(&kept).unwrap();
        }
        let path = folder.path().join(FILE);
        assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 2);
    }
}
