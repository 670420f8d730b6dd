//! The command line as its user meets it.

use std::process::Stdio;

use crate::support::worker::worker;

#[test]
fn help_documents_the_exit_codes_and_shows_examples() {
    let help = worker(&["--help"]).run().ok();
    for part in [
        "Exit codes:",
        "78  the configuration is wrong",
        "Examples:",
        "worker init",
    ] {
        assert!(help.contains(part), "{part:?} is not in:\n{help}");
    }
}

#[test]
fn without_arguments_it_shows_the_help_and_fails() {
    let run = worker(&[]).run();
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("Usage: worker"));
}

#[test]
fn a_mistyped_command_is_answered_with_the_nearest() {
    worker(&["prob"]).run().fails(2, "'probe'");
}

#[test]
fn a_verbose_nothing_is_refused_with_advice() {
    worker(&["-v"]).run().fails(2, "worker init");
}

#[test]
fn commands_without_their_part_say_what_is_missing() {
    worker(&["up"]).run().fails(69, "the coordinator");
    worker(&["serve"]).run().fails(69, "the coordinator");
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(
            worker(&["completions", shell])
                .run()
                .ok()
                .contains("worker"),
            "{shell}"
        );
    }
}

#[test]
fn every_command_gets_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("man1");
    worker(&["man", target.to_str().unwrap()]).run().ok();
    for page in ["worker.1", "worker-probe.1", "worker-generate.1"] {
        assert!(target.join(page).is_file(), "{page} is missing");
    }
}

#[test]
fn manual_pages_that_cannot_be_written_are_a_failure_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let occupied = folder.path().join("file");
    std::fs::write(&occupied, "").unwrap();
    worker(&["man", occupied.to_str().unwrap()])
        .run()
        .fails(73, "cannot write");
}

#[test]
fn a_reader_who_leaves_early_ends_the_command_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = worker(&["completions", "bash"])
        .command()
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
