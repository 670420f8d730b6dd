//! The reader as its parent sees it: one process for one file, ended with its client.

use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use muster_media::sound::FlacStream;
use muster_media::video::VideoTrack;
use muster_process::child::{self, ChildProcess, Death, Killer};

use crate::READER_COMMAND;
use crate::task::{
    FlacSound, MeasuredSound, PageForm, PageLengths, PdfLimits, PdfPage, Reply, SampledSound,
    SoundForm, SoundLimits, Speech, SpeechRule, Task,
};

/// Reads foreign files. Clones are the same.
#[derive(Debug, Clone)]
pub struct Reader(Program);

#[derive(Debug, Clone)]
enum Program {
    Process {
        program: PathBuf,
        arguments: Vec<String>,
    },
    #[cfg(feature = "testing")]
    Here,
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is unusable, and why.
    #[error("{0}")]
    Refused(String),
    /// The file took more than a reader may use.
    #[error("reading it was given up: {0}")]
    Ended(Death),
    #[error("starting the reader process failed: {0}")]
    Start(io::Error),
}

impl Default for Reader {
    /// This program once more.
    fn default() -> Self {
        Self::of(PathBuf::from(child::THIS_PROGRAM))
    }
}

impl Reader {
    /// The program `worker`, wherever it is.
    pub fn of(program: PathBuf) -> Self {
        Self(Program::Process {
            program,
            arguments: vec![READER_COMMAND.to_owned()],
        })
    }

    /// Reads inside of this process, without limits: for tests of crates that have no binary.
    #[cfg(feature = "testing")]
    pub const fn here() -> Self {
        Self(Program::Here)
    }

    /// A sound of any type, mixed to one channel, or only its speech.
    pub async fn flac(
        &self,
        file: Bytes,
        rate: u32,
        limits: SoundLimits,
        speech: Option<SpeechRule>,
    ) -> Result<FlacSound, ReadError> {
        let task = Task::Listen {
            rate,
            form: SoundForm::Flac,
            limits,
            speech,
        };
        let header = FlacStream::HEADER_BYTES;
        let collect = |bytes: &mut Vec<u8>, block: &[u8]| bytes.extend(block);
        let (reply, mut bytes) = self.read(task, file, vec![0; header], collect).await?;
        let (found, found_header, speech) = reply.sound()?;
        if found_header.len() != header {
            return Err(broken("a header of another length"));
        }
        bytes[..header].copy_from_slice(&found_header);
        Ok(FlacSound {
            bytes,
            found,
            speech,
        })
    }

    /// The same as samples.
    pub async fn samples(
        &self,
        file: Bytes,
        rate: u32,
        limits: SoundLimits,
        speech: Option<SpeechRule>,
    ) -> Result<SampledSound, ReadError> {
        let task = Task::Listen {
            rate,
            form: SoundForm::Samples,
            limits,
            speech,
        };
        let collect = |samples: &mut Vec<f32>, block: &[u8]| {
            let quads = block.chunks_exact(size_of::<f32>());
            samples.extend(quads.map(|it| f32::from_le_bytes([it[0], it[1], it[2], it[3]])));
        };
        let (reply, samples) = self.read(task, file, Vec::new(), collect).await?;
        let (found, _, speech) = reply.sound()?;
        Ok(SampledSound {
            samples,
            found,
            speech,
        })
    }

    /// Decodes a sound to its end and keeps nothing of it.
    pub async fn measure_sound(
        &self,
        file: Bytes,
        limits: SoundLimits,
    ) -> Result<MeasuredSound, ReadError> {
        let task = Task::MeasureSound { limits };
        let (reply, ()) = self.read(task, file, (), |(), _| {}).await?;
        Ok(reply.sound()?.0)
    }

    /// The video track of an MP4, whose frames are in the file.
    pub async fn measure_video(&self, file: Bytes) -> Result<VideoTrack, ReadError> {
        let (reply, ()) = self.read(Task::MeasureVideo, file, (), |(), _| {}).await?;
        match reply {
            Reply::Video(track) => Ok(track.into()),
            Reply::Refused(why) => Err(ReadError::Refused(why)),
            Reply::Sound { .. } | Reply::Pages(_) => Err(broken("a report of another kind")),
        }
    }

    /// The pages of a PDF.
    pub async fn pages(
        &self,
        file: Bytes,
        form: PageForm,
        limits: PdfLimits,
    ) -> Result<Vec<PdfPage>, ReadError> {
        let task = Task::ReadPages { form, limits };
        let collect = |bytes: &mut Vec<u8>, block: &[u8]| bytes.extend(block);
        let (reply, bytes) = self.read(task, file, Vec::new(), collect).await?;
        match reply {
            Reply::Pages(lengths) => split(&lengths, &bytes, form),
            Reply::Refused(why) => Err(ReadError::Refused(why)),
            Reply::Sound { .. } | Reply::Video(_) => Err(broken("a report of another kind")),
        }
    }

    /// Hands each block to `collect`. Dropped before it has ended, the process ends with it.
    async fn read<S: Send + 'static>(
        &self,
        task: Task,
        file: Bytes,
        sink: S,
        collect: fn(&mut S, &[u8]),
    ) -> Result<(Reply, S), ReadError> {
        match &self.0 {
            Program::Process { program, arguments } => {
                let program = program.clone();
                let mut arguments = arguments.clone();
                arguments.push(serde_json::to_string(&task).unwrap_or_default());
                let start = move || ChildProcess::start(&program, &arguments);
                let process = blocking(start).await.map_err(ReadError::Start)?;
                let _ended = KillOnDrop(process.killer());
                let mut sink = sink;
                let talk = move || {
                    let reply = talk(process, task, &file, |block| collect(&mut sink, block))?;
                    Ok((reply, sink))
                };
                let done = tokio::task::spawn_blocking(talk).await;
                done.unwrap_or_else(|_| Err(broken("a frame that cannot be taken")))
            }
            #[cfg(feature = "testing")]
            Program::Here => {
                let mut sink = sink;
                let read = crate::child::read(task, file.to_vec(), &mut |block| {
                    collect(&mut sink, block);
                    Ok(())
                });
                Ok((read.map_err(ReadError::Start)?, sink))
            }
        }
    }
}

struct KillOnDrop(Killer);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Sends the file while blocks come back.
fn talk(
    mut process: ChildProcess,
    task: Task,
    file: &[u8],
    mut each: impl FnMut(&[u8]),
) -> Result<Reply, ReadError> {
    let until = Instant::now() + task.time();
    let input = process.take_input();
    thread::scope(|scope| {
        let send = move || {
            if let Some(mut input) = input {
                // A process that ends early reports the reason in its reply or by its exit status.
                let _ = input.write_all(file);
            }
        };
        thread::Builder::new()
            .spawn_scoped(scope, send)
            .map_err(ReadError::Start)?;
        let received = receive(&mut process, task, until, &mut each);
        // A process that reads no more is ended, so that nothing waits for it to.
        process.killer().kill();
        received
    })
}

fn receive(
    process: &mut ChildProcess,
    task: Task,
    until: Instant,
    each: &mut impl FnMut(&[u8]),
) -> Result<Reply, ReadError> {
    let mut left = task.output();
    let mut next = || {
        let wait = until.saturating_duration_since(Instant::now());
        process.table(wait).map_err(|death| match death {
            Death::Time(_) => ReadError::Ended(Death::Time(task.time())),
            death => ReadError::Ended(death),
        })
    };
    loop {
        let block = next()?;
        if block.is_empty() {
            break;
        }
        left = left
            .checked_sub(block.len() as u64)
            .ok_or_else(|| broken("more than there can be"))?;
        each(&block);
    }
    serde_json::from_slice(&next()?).map_err(|_| broken("a reply that cannot be read"))
}

/// Blocks to the pages that they are of.
fn split(lengths: &[PageLengths], bytes: &[u8], form: PageForm) -> Result<Vec<PdfPage>, ReadError> {
    let mut rest = bytes;
    let mut take = |length: usize| {
        let (taken, left) = rest.split_at_checked(length)?;
        rest = left;
        Some(taken.to_vec())
    };
    let pages = lengths.iter().map(|page| {
        let text = String::from_utf8(take(page.text)?).ok()?;
        let image = take(page.image)?;
        let image = (form == PageForm::Image).then_some(image);
        Some(PdfPage { text, image })
    });
    let pages: Option<Vec<PdfPage>> = pages.collect();
    pages.ok_or_else(|| broken("pages of other lengths"))
}

fn broken(what: &str) -> ReadError {
    ReadError::Ended(Death::Other(format!("the reader sent {what}")))
}

impl Reply {
    fn sound(self) -> Result<(MeasuredSound, Vec<u8>, Option<Speech>), ReadError> {
        match self {
            Self::Sound {
                found,
                header,
                speech,
            } => Ok((found, header, speech)),
            Self::Refused(why) => Err(ReadError::Refused(why)),
            Self::Video(_) | Self::Pages(_) => Err(broken("a report of another kind")),
        }
    }
}
