//! Sounds, videos and PDF files of strangers, read in a process of their own: the program once more, with limits on memory and time,
//! without files, network or other processes. A file that makes a decoder allocate, recurse or compute without end costs
//! its request alone, and the memory of the decoder ends with the process.
//!
//! | file | contents |
//! | --- | --- |
//! | `task` | what may be read of a file, its limits, and the reports |
//! | `process` | the reader as its parent sees it: one process for one file, ended with its client |
//! | `child` | what runs inside |
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
pub use task::{FlacSound, MeasuredSound, PageForm, PdfLimits, PdfPage, SampledSound, SoundLimits};

/// The command with which the program is a reader.
pub const READER_COMMAND: &str = "reader";
