//! The parent's handle of a child: start, request, cause of death.

use std::env;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use serde::de::DeserializeOwned;

use super::frames;

/// The exit code of a process that took too long, where no signal could end it.
pub const TIMED_OUT: i32 = 124;
/// Length of the standard error output that is searched for the cause of death.
const LAST_WORDS_BYTES: u64 = 4096;
/// Length limit of the last line, which is reported if the cause is unknown.
const LONGEST_LAST_LINE: usize = 200;

pub struct ChildProcess {
    child: Arc<Mutex<Child>>,
    /// `None` after it was closed.
    input: Option<ChildStdin>,
    output: ChildStdout,
}

/// Ends a process that another thread talks to.
#[derive(Debug, Clone)]
pub struct Killer(Arc<Mutex<Child>>);

/// Why a process ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Death {
    Memory,
    Stack,
    Time(Duration),
    Other(String),
}

impl fmt::Display for Death {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => formatter.write_str("memory limit exceeded"),
            Self::Stack => formatter.write_str("stack limit exceeded (endless recursion)"),
            Self::Time(limit) => write!(
                formatter,
                "time limit of {} s exceeded",
                limit.as_secs_f32()
            ),
            Self::Other(what) => formatter.write_str(what),
        }
    }
}

impl ChildProcess {
    pub fn start(program: &Path, arguments: &[String]) -> io::Result<Self> {
        let mut command = command(program, arguments);
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        match (input, output) {
            (Some(input), Some(output)) => Ok(Self {
                child: Arc::new(Mutex::new(child)),
                input: Some(input),
                output,
            }),
            _ => Err(io::Error::other("the process has no pipes")),
        }
    }

    /// Sends a frame and waits for its answer.
    pub fn ask<R: DeserializeOwned>(&mut self, frame: &[u8], limit: Duration) -> Result<R, Death> {
        let sent = match &mut self.input {
            Some(input) => input.write_all(frame).and_then(|()| input.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if let Err(error) = sent {
            return Err(self.death(&error, limit));
        }
        let bytes = self.table(limit)?;
        let reply = serde_json::from_slice(&bytes);
        reply.map_err(|error| self.death(&io::Error::other(error), limit))
    }

    pub fn killer(&self) -> Killer {
        Killer(self.child.clone())
    }

    /// Takes the child's standard input: the process reads until it is dropped, and further requests fail.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.input.take()
    }

    /// The next frame that the process sends.
    pub fn table(&mut self, limit: Duration) -> Result<Vec<u8>, Death> {
        let mut timed = DeadlinePipe {
            output: &mut self.output,
            until: Instant::now() + limit,
        };
        frames::read(&mut timed).map_err(|error| self.death(&error, limit))
    }

    /// Ends the process and finds out why it failed.
    fn death(&mut self, error: &io::Error, limit: Duration) -> Death {
        if error.kind() == io::ErrorKind::TimedOut {
            return Death::Time(limit);
        }
        // The process has closed its pipes or sent invalid frames, so it is killed.
        let mut child = lock(&self.child);
        let _ = child.kill();
        let status = child.wait();
        let words = child.stderr.take().map(last_words).unwrap_or_default();
        death(status.ok(), &words, error, limit)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Killer {
    pub fn kill(&self) {
        // A process that was waited for is not signalled.
        let _ = lock(&self.0).kill();
    }
}

/// A panic while holding the lock cannot leave a child half waited for.
fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running program, also after an update has replaced its file: both processes speak the same frames.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// How a child is started: with pipes, and with nothing of this process that it does not need.
fn command(program: &Path, arguments: &[String]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        // Ctrl-C in a terminal is for the worker, which still finishes its jobs.
        .process_group(0)
        // Keys and tokens in the environment are none of a foreign file's business.
        .env_clear()
        // The allocator reserves a gigabyte of addresses at a time otherwise, which the limit counts.
        .env("MIMALLOC_ARENA_RESERVE", "65536")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The loader's path of the libraries of a GPU build.
    if let Some(libraries) = env::var_os("LD_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

fn last_words(errors: ChildStderr) -> String {
    let mut bytes = Vec::new();
    let _ = errors.take(LAST_WORDS_BYTES).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The cause of death after a pipe failed, from the exit status and the standard error output.
fn death(status: Option<ExitStatus>, words: &str, error: &io::Error, limit: Duration) -> Death {
    if words.contains("overflowed its stack") {
        return Death::Stack;
    }
    if words.contains("memory allocation of") || words.contains("out of memory") {
        return Death::Memory;
    }
    let took_too_long = |status: ExitStatus| {
        status.code() == Some(TIMED_OUT) || status.signal() == Some(Signal::ALARM.as_raw())
    };
    match status {
        Some(status) if took_too_long(status) => Death::Time(limit),
        Some(status) => {
            let said: String = reason(words).chars().take(LONGEST_LAST_LINE).collect();
            Death::Other(format!("the process ended ({status}; {error}): {said}"))
        }
        None => Death::Other(error.to_string()),
    }
}

/// The message of a panic, else the last line.
fn reason(words: &str) -> &str {
    let mut lines = words.lines().filter(|line| !line.trim().is_empty());
    let panicked = lines.by_ref().any(|line| line.contains(" panicked at "));
    let message = if panicked { lines.next() } else { None };
    let last = || words.lines().rfind(|line| !line.trim().is_empty());
    message.or_else(last).unwrap_or("it wrote nothing")
}

/// A pipe that is read until a deadline.
struct DeadlinePipe<'a> {
    output: &'a mut ChildStdout,
    until: Instant,
}

impl Read for DeadlinePipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut ready = [PollFd::new(&*self.output, PollFlags::IN)];
        match poll(&mut ready, Some(&timeout)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => self.output.read(buffer),
            // `read_exact` and `read_to_end` try again.
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_says_why_it_ended() {
        let end = |script: &str| {
            let mut command = Command::new("sh");
            let output = command.args(["-c", script]).output().unwrap();
            let words = String::from_utf8_lossy(&output.stderr);
            let error = io::ErrorKind::UnexpectedEof.into();
            death(Some(output.status), &words, &error, Duration::from_secs(10))
        };
        let time = Death::Time(Duration::from_secs(10));
        assert_eq!(end("kill -ALRM $$"), time);
        assert_eq!(end("exit 124"), time);
        let memory = "echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$";
        assert_eq!(end(memory), Death::Memory);
        let told = end("echo first >&2; echo 'the heap is broken' >&2; kill -ABRT $$").to_string();
        assert!(told.contains("signal: 6"), "{told}");
        assert!(told.ends_with(": the heap is broken"), "{told}");
        let panic = "thread 'watch' (7) panicked at limits.rs:1:1:\nno memory for a stack\nfatal error, aborting\n";
        assert_eq!(reason(panic), "no memory for a stack");
        assert_eq!(reason(""), "it wrote nothing");
    }
}
