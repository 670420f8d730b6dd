//! Music of `worker generate`: a song, made into a file.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::image_file::numbered;
use super::making::make_one;
use super::speech::SoundFile;
use super::step_meter::StepMeter;
use super::{Args, refuse_first};
use crate::cli::{Exit, Failure, Root, load, output};
use crate::config::Config;
use crate::daemon::locate::Located;
use crate::media::sound::{Sound, SoundError};
use crate::runtime;
use crate::runtime::maker::{Output, SoundRequest};

/// Options of models that make music.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Music")]
pub struct MusicArgs {
    /// Words to sing, in sections such as `[verse]` (default: none, an instrumental).
    #[arg(long, value_name = "TEXT", conflicts_with = "lyrics_file")]
    lyrics: Option<String>,
    /// File with the words to sing.
    #[arg(long, value_name = "FILE")]
    lyrics_file: Option<PathBuf>,
    /// Language of the words, in two letters (default: en).
    #[arg(long, value_name = "LANGUAGE")]
    language: Option<String>,
    /// Beats per minute.
    #[arg(long, value_name = "COUNT")]
    bpm: Option<u32>,
    /// Key, such as `C# minor`.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Time signature: 2, 3, 4 or 6 beats a bar.
    #[arg(long, value_name = "BEATS")]
    beats: Option<String>,
}

impl MusicArgs {
    /// Names an option that other models do not have.
    pub fn refuse_for_others(&self, reason: &str) -> Result<(), Failure> {
        let set = [
            ("--lyrics", self.lyrics.is_some()),
            ("--lyrics-file", self.lyrics_file.is_some()),
            ("--language", self.language.is_some()),
            ("--bpm", self.bpm.is_some()),
            ("--key", self.key.is_some()),
            ("--beats", self.beats.is_some()),
        ];
        refuse_first(&set, reason, "music")
    }

    fn lyrics(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.lyrics_file else {
            return Ok(self.lyrics.clone());
        };
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| Failure::reading(path, &error))?;
        Ok(Some(text.trim().to_owned()))
    }
}

/// Songs to make, and the files they go to.
pub struct MusicTask {
    request: SoundRequest,
    path: PathBuf,
    count: u32,
    is_json: bool,
}

/// Enough for music.
const BITS_PER_SECOND: u32 = 128_000;

impl MusicTask {
    pub fn new(args: &Args, prompt: String) -> Result<Self, Failure> {
        let Some(path) = &args.image.output else {
            let missing = "no file given for the song";
            return Err(Failure::new(Exit::Usage, missing)
                .hint("add -o FILE, such as -o song.flac, or -o - for standard output"));
        };
        let count = args.max_tokens.unwrap_or(1);
        let is_file = SoundFile::new(path)?.path.is_some();
        if !is_file && (args.json || count > 1) {
            let what = "standard output takes one song and nothing else";
            return Err(Failure::new(Exit::Usage, what).hint("name a file with -o"));
        }
        let music = &args.music;
        Ok(Self {
            request: SoundRequest {
                prompt,
                lyrics: music.lyrics()?,
                bpm: music.bpm,
                key_scale: music.key.clone(),
                time_signature: music.beats.clone(),
                vocal_language: music.language.clone(),
                seconds: args.video.seconds,
                steps: args.image.steps,
                cfg_scale: args.image.cfg,
                seed: args.sampling.seed,
                ..SoundRequest::default()
            },
            path: path.clone(),
            count,
            is_json: args.json,
        })
    }

    pub async fn make(self, config: &Config, located: Located, root: &Root) -> Result<(), Failure> {
        let model = located.name.clone();
        let maker = load::load_media(config, located).await?;
        let is_shown = !root.quiet && !self.is_json;
        for index in 0..self.count {
            let request = SoundRequest {
                index,
                ..self.request.clone()
            };
            let request = request.into();
            let made = make_one((&maker, &model), request, StepMeter::new(is_shown));
            let (Output::Sound(pcm), spent) = made.await? else {
                return Err(runtime::Failure::Stopped.into());
            };
            let failed = |error: SoundError| Failure::new(Exit::Failed, error);
            let sound = Sound::new(pcm.rate, pcm.channels, pcm.samples).map_err(failed)?;
            let path = numbered(&self.path, index, self.count);
            SoundFile::new(&path)?.write(&sound, BITS_PER_SECOND)?;
            self.tell(&path, sound.seconds(), spent, is_shown)?;
        }
        Ok(())
    }

    fn tell(&self, path: &Path, seconds: f64, spent: f64, is_shown: bool) -> Result<(), Failure> {
        if self.is_json {
            return output::json_line(&json!({
                "event": "sound",
                "file": path,
                "seconds": seconds,
                "seed": self.request.seed,
                "spent_seconds": spent,
            }));
        }
        if is_shown {
            let path = path.display();
            output::aside(format!("{path}: {seconds:.1} s of music in {spent:.1} s"));
        }
        Ok(())
    }
}
