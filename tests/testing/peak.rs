//! Memory that a piece of work takes at its peak: measured in a process of its own, where nothing else runs.

use std::process::Command;
use std::{env, fs};

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

/// The most that this process has had so far.
fn highest() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kilobytes * 1024
}
