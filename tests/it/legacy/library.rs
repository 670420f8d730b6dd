//! The public client library of the poll API, as client and as worker, against the real program.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use muster_testing::Lines;
use serde_json::Value;

use super::super::support::worker::worker;
use super::super::up::tool;

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_public_python_library_works_against_serve() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "serve",
        "--dev",
        "--json",
        "--quiet",
        "--listen",
        "127.0.0.1:0",
    ];
    let mut command = worker(&arguments).command();
    let command = command.arg("--data-dir").arg(folder.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = Lines::of(child.stdout.take().unwrap());
    let _service = Service(child);
    let ready: Value = serde_json::from_str(&stdout.next_line()).unwrap();
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/check_poll.py");
    let out = Command::new(tool("MUSTER_TEST_PYTHON"))
        .arg(check)
        .arg(ready["url"].as_str().unwrap())
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
