//! Runs the real binary, as its user would, with nothing of this machine's environment.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The variable of `owner.page`, for tests of the page to remove.
pub const OWNER_PAGE: &str = "MUSTER_OWNER_PAGE";

/// One run of `worker`, to be described and then run.
pub struct Worker {
    command: Command,
    input: Option<String>,
}

/// Results of a run.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// `worker` with these arguments, without influence of the environment.
pub fn worker(arguments: &[&str]) -> Worker {
    let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        // Tests share no port.
        .env(OWNER_PAGE, "false");
    Worker {
        command,
        input: None,
    }
}

impl Worker {
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// The folder it runs in.
    pub fn inside(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// No file that it writes may grow past so many KiB.
    pub fn with_files_up_to(mut self, kib: u64) -> Self {
        let plain = self.command;
        self.command = Command::new("sh");
        // The shell counts blocks of 512 bytes.
        self.command
            .args(["-c", &format!("ulimit -f {}; exec \"$0\" \"$@\"", 2 * kib)])
            .arg(plain.get_program())
            .args(plain.get_args())
            .env_clear();
        let set = plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        self.command.envs(set);
        if let Some(folder) = plain.get_current_dir() {
            self.command.current_dir(folder);
        }
        self
    }

    /// Standard input; empty by default.
    pub fn input(mut self, text: &str) -> Self {
        self.input = Some(text.to_owned());
        self
    }

    /// The command itself, for tests that keep a hand on the process.
    pub fn command(self) -> Command {
        self.command
    }

    pub fn run(mut self) -> Run {
        let stdin = self
            .input
            .as_ref()
            .map_or_else(Stdio::null, |_| Stdio::piped());
        let mut child = self
            .command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if let (Some(text), Some(mut stdin)) = (self.input, child.stdin.take()) {
            // The process may end without reading.
            let _ = stdin.write_all(text.as_bytes());
        }
        child.wait_with_output().unwrap().into()
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Run {
    /// Checks success; returns the output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "it failed:\n{}", self.stderr);
        self.stdout
    }

    /// Checks the exit code, and a similar message on a line that starts with `error:`.
    #[track_caller]
    pub fn fails(self, code: i32, message: &str) -> String {
        assert_eq!(self.code, code, "stderr:\n{}", self.stderr);
        assert!(
            self.stderr.lines().any(|line| line.starts_with("error: ")),
            "stderr:\n{}",
            self.stderr
        );
        assert!(
            self.stderr.contains(message),
            "{message:?} is not in:\n{}",
            self.stderr
        );
        assert!(
            !self.stderr.contains("panicked"),
            "stderr:\n{}",
            self.stderr
        );
        self.stderr
    }
}
