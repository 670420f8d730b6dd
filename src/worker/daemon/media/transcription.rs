//! Transcripts: the sound of a job is fetched, and parts of the transcript are sent as they are made. Dropping [`run`]
//! cancels the job.

use std::path::{Path, PathBuf};

use super::file::failed;
use super::{CatalogSource, MediaDesk, MediaFiles};
use crate::catalog::TranscriptionFacts;
use crate::daemon::fit::Needs;
use crate::daemon::registration::small;
use crate::daemon::{MediaModel, blame};
use crate::link::{Said, Transfers};
use muster_engine::runtime::hearing::{
    HearingSource, MOST_JOBS, MOST_SECONDS, SAMPLE_RATE, TranscriptRequest, TranscriptSegment,
};
use muster_engine::runtime::maker::{MakeEvent, Output, Pcm, Pipeline, TranscriptPart};
use muster_engine::runtime::text::Isolation;
use muster_engine::runtime::{ComponentFolders, DeviceChoice, LoadError};
use muster_protocol::job::{
    self, Body, Failure, FailureKind, FinishReason, Kind, ResultPart, Transcript, Usage,
};
use muster_reader::{ReadError, Reader, SoundLimits};

/// Memory for the recording besides the weights and a job's memory: an hour.
const SOUND_BYTES: u64 = 230 << 20;
/// The longest sound, in tokens: 50 a second.
pub const SOUND_TOKENS: u32 = MOST_SECONDS as u32 * 50;
/// Limit of the fetched file: two bytes per sample, and its header.
const MOST_BYTES: usize = MOST_SECONDS as usize * SAMPLE_RATE as usize * 2 + 4096;

impl MediaFiles for HearingSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        let footprint = self.footprint()?;
        let job_bytes = footprint.job_bytes + SOUND_BYTES;
        Ok(Needs::beside(footprint.weight_bytes, job_bytes))
    }

    fn describe(&mut self, name: &str, room_bytes: u64) -> Result<MediaModel, LoadError> {
        self.memory_bytes = Some(room_bytes);
        let jobs = room_bytes / (self.footprint()?.job_bytes + SOUND_BYTES);
        Ok(MediaModel {
            jobs: jobs.clamp(1, MOST_JOBS as u64) as u32,
            ..MediaModel::new(name, Kind::Transcription)
        })
    }

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(Self::load(self, device)?))
    }

    fn isolate(&mut self, isolation: Isolation) {
        self.isolation = Some(Box::new(isolation));
    }
}

impl CatalogSource for HearingSource {
    type Facts = TranscriptionFacts;

    fn of_entry(
        _: &TranscriptionFacts,
        path: PathBuf,
        _: ComponentFolders,
    ) -> Result<Self, String> {
        Ok(Self::new(path))
    }
}

/// Does the job; returns the last word.
pub async fn run(model: &str, request: Body, desk: MediaDesk<'_>) -> Said {
    match hear(model, request, desk).await {
        Ok(usage) => Said::Done {
            finish: FinishReason::Stop,
            usage,
        },
        Err(said) => said,
    }
}

async fn hear(model: &str, request: Body, desk: MediaDesk<'_>) -> Result<Usage, Said> {
    let Body::Transcription(request) = request else {
        let message = format!("{model} writes down what sounds say and does nothing else");
        return Err(Said::Failed(Failure::new(
            FailureKind::UnsupportedValue,
            message,
        )));
    };
    let Some(maker) = &desk.engines.maker else {
        return Err(failed(format!(
            "the worker has no model {model} that hears"
        )));
    };
    let prompt_tokens = small(usize::try_from(request.tokens()).unwrap_or(usize::MAX));
    let sound = fetch(&request.sound, desk.transfers, &desk.engines.reader).await?;
    let wanted = TranscriptRequest {
        sound,
        languages: request
            .language
            .map_or(request.languages, |language| vec![language]),
        is_translated: request.translate,
        prompt: request.prompt,
        temperature: request.temperature.map(|temperature| temperature as f32),
        beams: request.beam_size.map(|size| size as usize),
        seed: None,
        wants_words: request.words,
        wants_logprobs: request.logprobs,
    };
    let admitted = desk.engines.throttle.admit().await;
    let mut stream = maker.make(model, wanted.into()).map_err(blame::said)?;
    drop(admitted);
    let mut written = 0;
    while let Some(event) = stream.next().await {
        match event {
            MakeEvent::Step { at, of, .. } => {
                let preview = None;
                desk.reply.say(Said::Progress { at, of, preview }).await;
            }
            MakeEvent::Made(Output::Transcript(part)) => {
                let part = transcript(part);
                written += part.written();
                let result = ResultPart::Transcript(Box::new(part));
                desk.reply.say(Said::Part(Box::new(result))).await;
            }
            MakeEvent::Made(
                Output::Image(_)
                | Output::Sound(_)
                | Output::Frames { .. }
                | Output::SpokenWords(_),
            ) => {
                return Err(failed(
                    "the model made media instead of a transcript".to_owned(),
                ));
            }
            MakeEvent::Failed(failure) => return Err(blame::said(failure)),
            MakeEvent::Done => break,
        }
    }
    Ok(Usage {
        prompt_tokens,
        completion_tokens: u32::try_from(written).unwrap_or(u32::MAX),
        ..Usage::default()
    })
}

async fn fetch(link: &str, transfers: &Transfers, reader: &Reader) -> Result<Pcm, Said> {
    let bytes = transfers.fetch(link, MOST_BYTES).await;
    let bytes = bytes.map_err(|error| failed(format!("fetching the sound failed: {error}")))?;
    let limits = SoundLimits::seconds(MOST_SECONDS as f64);
    let heard = reader
        .samples(bytes.into(), SAMPLE_RATE, limits, None)
        .await;
    let heard = heard.map_err(|error| match error {
        ReadError::Start(_) => failed(error.to_string()),
        ReadError::Refused(_) | ReadError::Ended(_) => {
            let message = format!("the sound is unusable: {error}");
            Said::Failed(Failure::new(FailureKind::InvalidRequest, message))
        }
    })?;
    Ok(Pcm {
        rate: SAMPLE_RATE,
        channels: 1,
        samples: heard.samples,
    })
}

pub fn transcript(part: TranscriptPart) -> Transcript {
    let segment = |segment: TranscriptSegment| job::TranscriptSegment {
        start: segment.from,
        end: segment.to,
        text: segment.text,
        tokens: segment.tokens,
        seek: small(segment.seek),
        temperature: segment.temperature,
        avg_logprob: segment.average_logprob,
        compression_ratio: segment.compression,
        no_speech_prob: segment.silence,
        logprobs: segment
            .heard
            .into_iter()
            .map(|token| job::HeardLogprob {
                token: String::from_utf8_lossy(&token.bytes).into_owned(),
                bytes: token.bytes,
                logprob: token.logprob,
            })
            .collect(),
        words: segment
            .words
            .into_iter()
            .map(|word| job::TranscriptWord {
                word: word.word,
                start: word.from,
                end: word.to,
                probability: word.probability,
            })
            .collect(),
    };
    Transcript {
        language: part.language,
        segments: part.segments.into_iter().map(segment).collect(),
    }
}
