//! `worker transcribe`: transcribes an audio file.

use std::cmp::Reverse;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};

use crate::catalog::Kind;
use crate::cli::{Exit, Failure, Place, Root, load, output, threads};
use crate::daemon::locate::{Located, LocatedSource};
use crate::daemon::media::MediaSource;
use crate::daemon::transcript;
use crate::networks::weights::Quantize;
use crate::protocol::job::Transcript;
use crate::protocol::openai::hearing::languages;
use crate::protocol::openai::hearing::reply::{FinishedTranscript, TranscriptForm};
use crate::protocol::openai::hearing::speech::KeptSpeech;
use crate::reader::{ReadError, Reader, SampledSound, SoundLimits, Speech, SpeechRule};
use crate::runtime;
use crate::runtime::hearing::TranscriptRequest;
use crate::runtime::hearing::{MOST_SECONDS, SAMPLE_RATE};
use crate::runtime::maker::{MakeEvent, Output, Pcm};

const USUAL_MODEL: &str = "whisper-base";

/// Write down what a sound file says.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  worker transcribe talk.mp3
  worker transcribe talk.mp3 --srt > talk.srt
  worker transcribe interview.wav --language de --translate
  worker transcribe call.mp3 --language en,de,fr
  worker transcribe meeting.m4a --vad --vtt > meeting.vtt
  ffmpeg -i film.mkv -f wav - | worker transcribe - --model ./whisper-base --words --json")]
pub struct Args {
    /// Sound file: wav, flac, mp3, m4a, ogg, opus or webm; - reads standard input.
    file: PathBuf,
    /// Model that transcribes: a folder, or a name of the catalog (default: whisper-base, else the largest one on disk).
    #[arg(long, short)]
    model: Option<String>,
    /// Language that is spoken, such as en or german. The model finds out by itself, among several where they are named.
    #[arg(long = "language", value_name = "LANGUAGE", value_delimiter = ',', value_parser = language)]
    languages: Vec<String>,
    /// Write English, whatever is spoken.
    #[arg(long)]
    translate: bool,
    /// Text that came before, or names that are said.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// From 0, the likeliest text, to 1; rises by itself where a text is poor.
    #[arg(long, value_name = "NUMBER")]
    temperature: Option<f32>,
    /// Texts that a beam search keeps, 1 to 5: with more of them the text is likelier and takes longer.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=5), conflicts_with = "temperature")]
    beams: Option<u8>,
    /// Detect voice activity and skip the parts without speech; times stay those of the whole sound.
    #[arg(long)]
    vad: bool,
    /// Find the time of each word; with --json.
    #[arg(long, requires = "json")]
    words: bool,
    /// Print subtitles in the SubRip form.
    #[arg(long, group = "form")]
    srt: bool,
    /// Print subtitles in the WebVTT form.
    #[arg(long, group = "form")]
    vtt: bool,
    /// Print JSON with segments and their times.
    #[arg(long, group = "form")]
    json: bool,
    /// Hold the model's large matrices in eight bits.
    #[arg(long)]
    quantize: bool,
}

fn language(text: &str) -> Result<String, String> {
    let code = languages::code(text);
    code.map(str::to_owned)
        .ok_or_else(|| "must be a language such as en, de or japanese".to_owned())
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load()?.config;
    threads::settle(&config)?;
    let place = Place::open(&config)?;
    let mut located = match &args.model {
        Some(model) => place.locate(model)?,
        None => usual_model(&place)?,
    };
    let name = located.name.clone();
    let LocatedSource::Media(MediaSource::Hearing(source)) = &mut located.source else {
        let what = format!("{name} hears nothing, but this command needs a model that does");
        return Err(Failure::new(Exit::Usage, what)
            .hint("whisper-base does: `worker models list` shows the kind of each model"));
    };
    source.quantize = args.quantize.then_some(Quantize::Q8_0);
    let bytes = read(&args.file)?;
    let rule = args.vad.then(SpeechRule::default);
    let heard = load::block_on(decode(bytes, &args.file, rule))?;
    let seconds = heard.found.seconds();
    let speech = heard.speech.as_ref().map(kept_speech);
    if let Some(speech) = &speech
        && speech.spans.is_empty()
    {
        output::aside("no speech was found");
    }
    let request = TranscriptRequest {
        sound: Pcm {
            rate: SAMPLE_RATE,
            channels: 1,
            samples: heard.samples,
        },
        languages: args.languages.clone(),
        is_translated: args.translate,
        prompt: args.prompt.clone(),
        temperature: args.temperature,
        beams: args.beams.map(usize::from),
        seed: None,
        wants_words: args.words,
        wants_logprobs: false,
    };
    load::block_on(async {
        let maker = load::load_media(&config, located).await?;
        let mut stream = maker.make(&name, request.into())?;
        let mut whole = Transcript::default();
        let is_shown = !root.quiet;
        let streams = !(args.srt || args.vtt || args.json);
        while let Some(event) = stream.next().await {
            match event {
                MakeEvent::Made(Output::Transcript(part)) => {
                    let part = transcript(part);
                    let part = match &speech {
                        Some(speech) => speech.restored(part),
                        None => part,
                    };
                    if streams && !part.segments.is_empty() {
                        for segment in &part.segments {
                            output::line(segment.text.trim())?;
                        }
                    }
                    whole.absorb(part);
                }
                MakeEvent::Step { at, of, .. } if is_shown && !streams => {
                    output::aside(format!("{at} of {of} s heard"));
                }
                MakeEvent::Step { .. } | MakeEvent::Made(_) | MakeEvent::Done => {}
                MakeEvent::Failed(failure) => return Err(failure.into()),
            }
        }
        if whole.language.is_empty() {
            return Err(runtime::Failure::Stopped.into());
        }
        let finished = FinishedTranscript {
            transcript: whole,
            seconds,
            heard_seconds: speech
                .as_ref()
                .map_or(seconds, |speech| speech.millis as f64 / 1000.0),
            is_translated: args.translate,
            has_segments: true,
            has_words: args.words,
        };
        let form = match (args.srt, args.vtt) {
            (true, _) => TranscriptForm::Srt,
            (_, true) => TranscriptForm::Vtt,
            _ => TranscriptForm::VerboseJson,
        };
        if !streams {
            let text = finished.render(form);
            output::line(text.trim_end())?;
        }
        Ok(())
    })
}

/// The usual model or, where that is not on disk, the largest other one that is.
fn usual_model(place: &Place) -> Result<Located, Failure> {
    let missing = match place.locate(USUAL_MODEL) {
        Ok(located) => return Ok(located),
        Err(missing) => missing,
    };
    let entries = place.catalog.entries().iter();
    let mut others: Vec<_> = entries
        .filter(|entry| entry.kind() == Kind::Transcription)
        .collect();
    others.sort_by_key(|entry| Reverse(entry.parameters()));
    let located = others.iter().find_map(|entry| place.locate(&entry.id).ok());
    let located = located.ok_or(missing)?;
    output::aside(format!(
        "{USUAL_MODEL} is not on disk, transcribing with {}; `worker models pull {USUAL_MODEL}` downloads it",
        located.name
    ));
    Ok(located)
}

fn kept_speech(speech: &Speech) -> KeptSpeech {
    let millis = |samples: u64| samples * 1000 / u64::from(SAMPLE_RATE);
    let spans = speech.spans.iter();
    KeptSpeech {
        spans: spans
            .map(|(from, to)| (millis(*from), millis(*to)))
            .collect(),
        millis: millis(speech.kept),
    }
}

/// In a process of its own: the file may be of a stranger.
async fn decode(
    bytes: Vec<u8>,
    path: &Path,
    speech: Option<SpeechRule>,
) -> Result<SampledSound, Failure> {
    let limits = SoundLimits::seconds(MOST_SECONDS as f64);
    let reader = Reader::default();
    let decoded = reader
        .samples(bytes.into(), SAMPLE_RATE, limits, speech)
        .await;
    decoded.map_err(|error| {
        let what = format!("reading {} failed: {error}", path.display());
        match error {
            ReadError::Start(_) => Failure::new(Exit::Failed, what),
            ReadError::Refused(_) | ReadError::Ended(_) => Failure::new(Exit::BadData, what),
        }
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match path == Path::new("-") {
        true => stdin().lock().read_to_end(&mut bytes).map(|_| bytes),
        false => std::fs::read(path),
    };
    read.map_err(|error| {
        let what = format!("reading {} failed: {error}", path.display());
        Failure::new(Exit::NotFound, what)
    })
}
