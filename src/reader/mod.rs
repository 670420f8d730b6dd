//! Reads untrusted recordings, videos and PDF files in a child process of this program, with limits on memory and time,
//! without files, network or other processes. A file that makes a decoder allocate, recurse or compute without end
//! fails only its own request, and the decoder's memory is freed with the process.
//!
//! | file | contents |
//! | --- | --- |
//! | `task` | tasks, their limits, and the replies |
//! | `process` | the parent's handle: one process per file, killed if the client leaves |
//! | `child` | the child process |
//! | `pdf` | pages of PDF files |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

mod child;
mod pdf;
mod process;
mod task;

pub use child::serve;
pub use process::{ReadError, Reader};
pub use task::{
    FlacSound, MeasuredSound, PageForm, PdfLimits, PdfPage, SampledSound, SoundLimits, Speech,
    SpeechRule,
};

/// The command with which the program is a reader.
pub const READER_COMMAND: &str = "reader";
