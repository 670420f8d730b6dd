//! Parses untrusted pickles in a process with limits and without privileges: their programs are never executed, but the
//! description of tensors may still recurse or allocate without end.

use std::io::{self, Write, stdin, stdout};
use std::path::Path;
use std::process::exit;
use std::thread;
use std::time::Duration;

use muster_process::child::{self, ChildProcess, Watch};
use serde::{Deserialize, Serialize};

use crate::networks::weights::{CheckpointError, Flaw, PickleDescription, PickledFile};

const MEMORY: u64 = 1 << 30;
const STACK: usize = 16 << 20;
const TIME: Duration = Duration::from_secs(30);
/// Names of the pickle in messages.
const PICKLE: &str = "data.pkl";

/// The process's reply: the description, or the reason of its refusal.
#[derive(Serialize, Deserialize)]
enum PickleReply {
    Described(PickleDescription),
    Refused { what: String, found: String },
}

/// The tensors of a PyTorch file, whose pickle is parsed by `program` with these arguments.
pub fn open_pickled(
    path: &Path,
    program: &Path,
    arguments: &[String],
) -> Result<PickledFile, CheckpointError> {
    PickledFile::open(path, |pickle| {
        let given_up = |why: &dyn ToString| {
            let found = format!("reading it was given up: {}", why.to_string());
            Flaw::broken(PICKLE, found, "a pickle of tensors")
        };
        let process = ChildProcess::start(program, arguments);
        let mut process = process.map_err(|error| given_up(&error))?;
        let length = u32::try_from(pickle.len()).map_err(|error| given_up(&error))?;
        let frame = [&length.to_le_bytes(), pickle].concat();
        match process.ask(&frame, TIME) {
            Ok(PickleReply::Described(description)) => Ok(description),
            Ok(PickleReply::Refused { what, found }) => {
                Err(Flaw::broken(what, found, "a pickle of tensors"))
            }
            Err(death) => Err(given_up(&death)),
        }
    })
}

/// Describes one pickle, which comes as a frame.
pub fn serve() -> io::Result<()> {
    let pickle = child::read(&mut stdin())?;
    child::write_no_core()?;
    child::limit_memory(MEMORY)?;
    let watch = Watch::start()?;
    watch.begin(TIME);
    let read = move || -> io::Result<()> {
        child::confine()?;
        let reply = match PickleDescription::read(&pickle) {
            Ok(description) => PickleReply::Described(description),
            Err(flaw) => refused(flaw),
        };
        let mut output = stdout();
        output.write_all(&child::to_bytes(&reply))?;
        output.flush()
    };
    let thread = thread::Builder::new()
        .name("pickle".to_owned())
        .stack_size(STACK)
        .spawn(read)?;
    // A panic was printed, and the parent reads why we ended.
    thread.join().unwrap_or_else(|_| exit(101))
}

fn refused(flaw: Flaw) -> PickleReply {
    let (what, found) = match flaw {
        Flaw::Broken { what, found, .. } => (what, found),
        Flaw::Unsupported { what, found, known } => (what, format!("{found}; supported: {known}")),
        Flaw::Device(error) => (PICKLE.to_owned(), error.to_string()),
    };
    PickleReply::Refused { what, found }
}
