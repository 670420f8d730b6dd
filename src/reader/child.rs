//! The reader's process: reads one file from standard input, under limits.

use std::borrow::Cow;
use std::io::{self, Read, Stdout, Write, stdin, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use muster_media::sound::{
    DecodedSound, FlacStream, SPEECH_RATE, SoundError, SpeechFilter, decode, listen_in_blocks,
};
use muster_media::video;
use muster_process::child::{self, Watch};

use crate::pdf;
use crate::task::{Reply, SoundForm, SpeechRule, Task};

/// Samples that are sent on together.
const BLOCK: usize = 1 << 16;
/// A file that takes longer than this gives way to shorter ones.
const SHORT: Duration = Duration::from_millis(300);
const LOWER: i32 = 10;

/// Reads a file by the task, which is JSON.
pub fn serve(task: &str) -> io::Result<()> {
    let task: Task = serde_json::from_str(task).map_err(io::Error::other)?;
    let mut file = Vec::new();
    stdin().lock().read_to_end(&mut file)?;
    child::write_no_core()?;
    child::limit_memory(task.memory())?;
    let watch = Watch::start()?;
    watch.begin(task.time());
    child::confine()?;
    let mut blocks = Blocks::default();
    let reply = read(task, file, &mut |block| blocks.send(block))?;
    blocks.end(&reply)
}

/// Executes the task. Blocks are passed on as they are decoded.
pub fn read(
    task: Task,
    file: Vec<u8>,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Reply> {
    let found = match task {
        Task::Listen {
            rate,
            form,
            limits,
            speech,
        } => {
            if speech.is_some() && rate != SPEECH_RATE {
                let message = format!("speech is found at {SPEECH_RATE} Hz alone");
                return Ok(Reply::Refused(message));
            }
            return match form {
                SoundForm::Flac => flac(file, rate, limits.into(), speech, each),
                SoundForm::Samples => samples(file, rate, limits.into(), speech, each),
            };
        }
        Task::MeasureSound { limits } => {
            // The decoders are of many authors, the bytes of unknown ones.
            let found = catch_unwind(AssertUnwindSafe(|| {
                decode(file, limits.into(), |_, _, _| Ok(()))
            }));
            found.unwrap_or(Err(SoundError::NoSound))
        }
        Task::MeasureVideo => {
            let track = catch_unwind(AssertUnwindSafe(|| video::track(&file)));
            return Ok(match track.unwrap_or(Err(video::TrackError::NotMp4)) {
                Ok(track) => Reply::Video(track.into()),
                Err(error) => Reply::Refused(error.to_string()),
            });
        }
        Task::ReadPages { form, limits } => return pdf::read(file, form, limits, each),
    };
    Ok(sound(found, Vec::new()))
}

fn sound(found: Result<DecodedSound, SoundError>, header: Vec<u8>) -> Reply {
    match found {
        Ok(found) => Reply::Sound {
            found: found.into(),
            header,
            speech: None,
        },
        Err(error) => Reply::Refused(error.to_string()),
    }
}

/// The kept part of a sound: all samples, or the speech.
struct SpeechCut(Option<SpeechFilter>);

impl SpeechCut {
    fn of(speech: Option<SpeechRule>) -> Self {
        Self(speech.map(|rule| SpeechFilter::new(rule.into())))
    }

    fn of_block<'a>(&mut self, block: &'a [f32]) -> Cow<'a, [f32]> {
        match &mut self.0 {
            Some(filter) => Cow::Owned(filter.push(block)),
            None => Cow::Borrowed(block),
        }
    }

    /// The last samples, and the reply with the speech that was found.
    fn end(self, mut reply: Reply) -> (Vec<f32>, Reply) {
        let Some(filter) = self.0 else {
            return (Vec::new(), reply);
        };
        let (last, spans) = filter.finish();
        if let Reply::Sound { speech, .. } = &mut reply {
            *speech = Some(spans.into());
        }
        (last, reply)
    }
}

fn flac(
    file: Vec<u8>,
    rate: u32,
    bounds: muster_media::sound::DecodeBounds,
    speech: Option<SpeechRule>,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Reply> {
    let mut stream = match FlacStream::new(rate, 1) {
        Ok(stream) => stream,
        Err(error) => return Ok(Reply::Refused(error.to_string())),
    };
    let mut pace = Pace::begin();
    let mut failed = Ok(());
    let mut kept = SpeechCut::of(speech);
    let found = listen_in_blocks(file, rate, bounds, |block| {
        pace.give_way();
        let encoded = stream.push(&kept.of_block(block)).map_err(io::Error::other);
        if failed.is_ok() {
            failed = encoded.and_then(|bytes| each(&bytes));
        }
    });
    failed?;
    if found.is_err() {
        return Ok(sound(found, Vec::new()));
    }
    let (rest, mut reply) = kept.end(sound(found, Vec::new()));
    each(&stream.push(&rest).map_err(io::Error::other)?)?;
    let (last, whole) = stream.finish().map_err(io::Error::other)?;
    each(&last)?;
    if let Reply::Sound { header, .. } = &mut reply {
        *header = whole;
    }
    Ok(reply)
}

fn samples(
    file: Vec<u8>,
    rate: u32,
    bounds: muster_media::sound::DecodeBounds,
    speech: Option<SpeechRule>,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Reply> {
    let bytes = |samples: &[f32]| -> Vec<u8> {
        let bytes = samples.iter().flat_map(|one| one.to_le_bytes());
        bytes.collect()
    };
    let mut pace = Pace::begin();
    let mut failed = Ok(());
    let mut kept = SpeechCut::of(speech);
    let found = listen_in_blocks(file, rate, bounds, |block| {
        pace.give_way();
        let bytes = bytes(&kept.of_block(block));
        if failed.is_ok() {
            failed = each(&bytes);
        }
    });
    failed?;
    let (rest, reply) = kept.end(sound(found, Vec::new()));
    each(&bytes(&rest))?;
    Ok(reply)
}

/// Lowers the priority of long tasks.
struct Pace {
    began: Instant,
    is_lower: bool,
}

impl Pace {
    fn begin() -> Self {
        Self {
            began: Instant::now(),
            is_lower: false,
        }
    }

    fn give_way(&mut self) {
        if !self.is_lower && self.began.elapsed() > SHORT {
            self.is_lower = true;
            let _ = rustix::process::nice(LOWER);
        }
    }
}

/// Blocks on their way to the parent, some at a time; an empty one is the last, before the reply.
#[derive(Default)]
struct Blocks {
    pending: Vec<u8>,
}

impl Blocks {
    fn send(&mut self, block: &[u8]) -> io::Result<()> {
        self.pending.extend(block);
        match self.pending.len() >= BLOCK {
            true => self.flush(&mut stdout()),
            false => Ok(()),
        }
    }

    fn flush(&mut self, output: &mut Stdout) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        child::write_table(output, &self.pending)?;
        self.pending.clear();
        Ok(())
    }

    fn end(mut self, reply: &Reply) -> io::Result<()> {
        let mut output = stdout();
        self.flush(&mut output)?;
        child::write_table(&mut output, &[])?;
        output.write_all(&child::to_bytes(reply))?;
        output.flush()
    }
}
