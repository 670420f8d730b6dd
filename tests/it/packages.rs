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
