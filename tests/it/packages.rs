//! The parts of `packaging/` that take seconds to check; `./test packages` checks all of it.

use std::path::Path;
use std::process::Command;

use crate::documents::read;
use crate::support::worker::worker;

#[test]
fn changelog_begins_with_the_version_of_the_program() {
    let printed = worker(&["--version"]).run().ok();
    let version = printed.trim().rsplit(' ').next().unwrap();
    let changelog = read("CHANGELOG.md");
    let mut sections = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## "));
    assert_eq!(sections.next(), Some(version));
    assert!(sections.all(|section| section.split('.').count() == 3));
}

#[test]
fn systemd_accepts_the_units_and_the_program_their_configurations() {
    check(&["units", env!("CARGO_BIN_EXE_worker")]);
}

#[test]
fn files_of_the_debian_package_are_made() {
    check(&["stage", env!("CARGO_BIN_EXE_worker")]);
}

#[test]
fn install_script_installs_only_the_files_of_the_checksums() {
    check(&["install"]);
}

fn check(arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/check");
    let output = Command::new(script).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "packaging/check {arguments:?}:\n{said}\n{errors}"
    );
    assert!(said.contains("ok: "), "nothing was checked: {said}");
}

/// `grep -q` ends at its first match: further output ends the other program with SIGPIPE, and with `pipefail` the
/// script, on busy machines only.
#[test]
fn scripts_read_what_they_search_to_its_end() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = Command::new("git")
        .arg("ls-files")
        .current_dir(root)
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let scripts: Vec<(&str, String)> = listed
        .lines()
        .filter_map(|file| Some((file, std::fs::read_to_string(root.join(file)).ok()?)))
        .filter(|(_, text)| text.starts_with("#!/bin/bash") || text.starts_with("#!/bin/sh"))
        .collect();
    assert!(scripts.len() > 10, "{scripts:?}");
    for (file, text) in &scripts {
        for line in text.lines().filter(|line| line.contains("| grep -")) {
            let options = line.split("| grep -").nth(1).unwrap().split(' ').next();
            assert!(!options.unwrap().contains('q'), "{file}: {line}");
        }
    }
}
