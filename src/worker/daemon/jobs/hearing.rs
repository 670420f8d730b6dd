//! A job that writes down what a sound says: the sound fetched, its parts sent as they are heard.
//!
//! Dropping [`run`] cancels the job.

use super::blame;
use super::media::{MediaDesk, failed};
use crate::daemon::registration::small;
use crate::link::{Said, Transfers};
use muster_engine::runtime::hearing::{MOST_SECONDS, SAMPLE_RATE, TranscriptSegment};
use muster_engine::runtime::maker::{
    MakeEvent, MakeRequest, Output, Pcm, TranscriptPart, TranscriptRequest,
};
use muster_protocol::job::{
    self, Body, Failure, FailureKind, FinishReason, ResultPart, Transcript, Usage,
};
use muster_reader::{ReadError, Reader, SoundLimits};

/// Of the fetched file: two bytes a sample, and its header.
const MOST_BYTES: usize = MOST_SECONDS as usize * SAMPLE_RATE as usize * 2 + 4096;

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
        language: request.language,
        is_translated: request.translate,
        prompt: request.prompt,
        temperature: request.temperature.map(|temperature| temperature as f32),
        seed: None,
        wants_words: request.words,
    };
    let request = MakeRequest::Transcript(Box::new(wanted));
    let mut stream = maker.make(model, request).map_err(blame::said)?;
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
            MakeEvent::Made(Output::Image(_) | Output::Sound(_) | Output::Frames { .. }) => {
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
    let heard = reader.samples(bytes.into(), SAMPLE_RATE, limits).await;
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
