//! Memory that a piece of work takes at its peak: measured in a process of its own, where nothing else runs.

use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const REPORT: &str = "MUSTER_TEST_PEAK";

/// By how many bytes the process grew. `None` in the process that does the work: its test is over then.
pub fn growth(test: &str, work: impl FnOnce()) -> Option<u64> {
    if let Some(report) = env::var_os(REPORT) {
        let before = highest();
        work();
        fs::write(report, (highest() - before).to_string()).unwrap();
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("bytes");
    let status = Command::new(env::current_exe().unwrap())
        .args([test, "--exact"])
        .env(REPORT, &report)
        .status();
    assert!(
        status.unwrap().success(),
        "{test} failed in its own process"
    );
    let bytes = fs::read_to_string(&report);
    Some(
        bytes
            .expect("the test has this name and wrote a report")
            .parse()
            .unwrap(),
    )
}

/// The most bytes that a child has had, looked at again and again until it ends, and how long that took. The child is killed
/// at the limit.
pub fn of_child(child: &mut Child, limit: Duration) -> (u64, Duration) {
    let (began, place) = (Instant::now(), child.id().to_string());
    let mut highest = 0;
    while child.try_wait().unwrap().is_none() {
        highest = highest.max(highest_of(&place).unwrap_or(0));
        if began.elapsed() > limit {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    }
    (highest, began.elapsed())
}

/// The most that this process has had so far.
fn highest() -> u64 {
    highest_of("self").unwrap()
}

/// None of a process that has ended.
fn highest_of(process: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes * 1024)
}
