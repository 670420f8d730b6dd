//! Public clients and libraries, unmodified, against the service that a newcomer starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::worker::OWNER_PAGE;
use crate::up::{Up, tool, up, up_with};

#[test]
fn the_official_python_client_works_against_up() {
    python("MUSTER_TEST_PYTHON", "check.py");
}

#[test]
fn the_official_python_client_makes_responses() {
    python("MUSTER_TEST_PYTHON", "check_responses.py");
}

#[test]
fn the_official_python_client_edits_images() {
    python("MUSTER_TEST_PYTHON", "check_images.py");
}

#[test]
fn anthropics_python_client_makes_messages() {
    python("MUSTER_TEST_PYTHON", "check_messages.py");
}

#[test]
fn ollamas_python_client_works_against_up() {
    python("MUSTER_TEST_PYTHON", "check_ollama.py");
}

#[test]
fn public_python_libraries_work_against_up() {
    python("MUSTER_TEST_LIBRARIES", "check_libraries.py");
}

#[test]
fn the_official_client_of_the_model_context_protocol_calls_tools() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    let check = clients().join("check_mcp.py");
    let mut python = Command::new(tool("MUSTER_TEST_LIBRARIES"));
    python.env("MUSTER_TEST_WORKER", env!("CARGO_BIN_EXE_worker"));
    client(python.arg(check), &up);
}

#[test]
fn the_official_node_client_works_against_up() {
    node("check.mjs", &tool("MUSTER_TEST_NODE_MODULES"));
}

#[test]
fn node_clients_of_every_dialect_work_against_up() {
    node("check_dialects.mjs", &tool("MUSTER_TEST_NODE_MODULES"));
}

#[test]
fn the_pages_work_in_a_browser() {
    let browser = tool("MUSTER_TEST_BROWSER");
    node("check_pages.mjs", &browser.join("node_modules"));
}

#[test]
fn the_owners_page_works_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker.toml");
    let configuration = "[owner]\n# A comment of the owner.\nenergy_price = 0.3 # of this town\n";
    fs::write(&file, configuration).unwrap();
    let variables = [
        ("MUSTER_CONFIG", file.to_str().unwrap()),
        (OWNER_PAGE, "127.0.0.1:0"),
    ];
    let up = up_with(folder.path(), &variables);
    let modules = tool("MUSTER_TEST_BROWSER").join("node_modules");
    node_in(folder.path(), "check_owners_page.mjs", &modules, &up);
}

fn python(variable: &str, check: &str) {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    let check = clients().join(check);
    client(Command::new(tool(variable)).arg(check), &up);
}

fn node(name: &str, modules: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    node_in(folder.path(), name, modules, &up);
}

fn node_in(folder: &Path, name: &str, modules: &Path, up: &Up) {
    // Modules are looked for beside the file that asks for them.
    let check = folder.join(name);
    fs::copy(clients().join(name), &check).unwrap();
    std::os::unix::fs::symlink(modules, folder.join("node_modules")).unwrap();
    client(Command::new("node").arg(check), up);
}

#[track_caller]
fn client(command: &mut Command, up: &Up) {
    let out = command
        .args([&up.url, &up.key, &up.models[0]])
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        out.status.success(),
        "{}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}
