//! Sound of `worker generate`: a text, spoken into a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;

use super::making::make;
use super::step_meter::StepMeter;
use super::{Args, refuse_first};
use crate::cli::{Exit, Failure, Root, load, output};
use crate::config::Config;
use crate::daemon::locate::Located;
use crate::media::sound::{Sound, SoundError, WavFormat, to_flac, to_mp3, to_opus, to_wav};
use crate::runtime;
use crate::runtime::maker::{MakeRequest, Output, SoundRequest};
use crate::runtime::speech::unreadable;

/// Options of models that speak.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Speech")]
pub struct SpeechArgs {
    /// Voice, or a mixture such as `af_heart+am_adam` or `af_heart(2)+am_adam(1)` (default: the model's first).
    #[arg(long, value_name = "NAME")]
    voice: Option<String>,
    /// How fast to speak, from 0.25 to 4 (default: 1).
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    speed: Option<f32>,
}

impl SpeechArgs {
    /// Names a setting that other models do not have.
    pub fn refuse_for_others(&self, reason: &str) -> Result<(), Failure> {
        let set = [
            ("--voice", self.voice.is_some()),
            ("--speed", self.speed.is_some()),
        ];
        refuse_first(&set, reason, "speech")
    }
}

/// A text to speak, and where the sound goes.
pub struct Speaking {
    request: SoundRequest,
    file: SoundFile,
    is_json: bool,
}

/// Path and format of an audio file.
#[derive(Debug, PartialEq, Eq)]
pub struct SoundFile {
    /// Without, to standard output.
    pub path: Option<PathBuf>,
    form: SoundForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SoundForm {
    Wav,
    Flac,
    Opus,
    Mp3,
}

/// Opus is good at speech with so few.
const BITS_PER_SECOND: u32 = 48_000;

impl Speaking {
    pub fn new(args: &Args, file: Option<&Path>, prompt: String) -> Result<Self, Failure> {
        let Some(path) = file else {
            let missing = "no file given for the sound";
            return Err(Failure::new(Exit::Usage, missing)
                .hint("add -o FILE, such as -o speech.wav, or -o - for standard output"));
        };
        let file = SoundFile::new(path)?;
        if args.json && file.path.is_none() {
            let both = "--json and the sound both go to standard output";
            return Err(Failure::new(Exit::Usage, both).hint("name a file with -o"));
        }
        let request = SoundRequest {
            prompt,
            voice: args.speech.voice.clone(),
            speed: args.speech.speed,
            seed: args.sampling.seed,
            ..SoundRequest::default()
        };
        Ok(Self {
            request,
            file,
            is_json: args.json,
        })
    }

    pub async fn make(self, config: &Config, located: Located, root: &Root) -> Result<(), Failure> {
        let skipped: String = unreadable(&self.request.prompt).into_iter().collect();
        let model = located.name.clone();
        let maker = load::load_media(config, located).await?;
        let started = Instant::now();
        let request = MakeRequest::from(self.request.clone());
        let (mut rate, mut samples) = (0, Vec::new());
        let (mut first, meter) = (None, StepMeter::new(false));
        let spoken = make((&maker, &model), request, meter, async |output| {
            if let Output::Sound(sound) = output {
                first.get_or_insert_with(|| started.elapsed());
                rate = sound.rate;
                samples.extend(sound.samples);
            }
            Ok(())
        });
        spoken.await?;
        if samples.is_empty() {
            return Err(runtime::Failure::Stopped.into());
        }
        let failed = |error: SoundError| Failure::new(Exit::Failed, error);
        let sound = Sound::new(rate, 1, samples).map_err(failed)?;
        self.file.write(&sound, BITS_PER_SECOND)?;
        let spent = started.elapsed().as_secs_f64();
        let first = first.unwrap_or_default().as_secs_f64();
        self.tell(sound.seconds(), spent, first, &skipped, root.quiet)
    }

    fn tell(
        &self,
        seconds: f64,
        spent: f64,
        first: f64,
        skipped: &str,
        is_quiet: bool,
    ) -> Result<(), Failure> {
        if self.is_json {
            return output::json_line(&json!({
                "event": "sound",
                "file": self.file.path,
                "seconds": seconds,
                "seed": self.request.seed,
                "spent_seconds": spent,
                "first_seconds": first,
                "skipped_characters": skipped,
            }));
        }
        if !is_quiet {
            if !skipped.is_empty() {
                output::aside(format!(
                    "skipped characters without an English reading: {skipped}"
                ));
            }
            let file = self.file.path.as_deref().unwrap_or(Path::new("-"));
            output::aside(format!(
                "{}: {seconds:.1} s of sound in {spent:.1} s, the first sentence after {first:.1} s",
                file.display()
            ));
        }
        Ok(())
    }
}

impl SoundFile {
    /// Refuses a file that could not be written before anything is spoken.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            let form = SoundForm::Wav;
            return Ok(Self { path: None, form });
        }
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        let form = match ending.to_ascii_lowercase().as_str() {
            "wav" => SoundForm::Wav,
            "flac" => SoundForm::Flac,
            "opus" | "ogg" => SoundForm::Opus,
            "mp3" => SoundForm::Mp3,
            _ => {
                let what = format!("{}: unknown kind of sound file", path.display());
                let hint = "end the name in .mp3, .wav, .flac or .opus";
                return Err(Failure::new(Exit::Usage, what).hint(hint));
            }
        };
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Some(missing) = folder.filter(|folder| !folder.is_dir()) {
            let what = format!("the folder {} does not exist", missing.display());
            return Err(Failure::new(Exit::NotFound, what).hint("create it, or write elsewhere"));
        }
        let path = Some(path.to_owned());
        Ok(Self { path, form })
    }

    /// `opus_bits` is the bit rate of Opus; MP3 gets half as much again.
    pub fn write(&self, sound: &Sound, opus_bits: u32) -> Result<(), Failure> {
        let bytes = match self.form {
            SoundForm::Wav => to_wav(sound, WavFormat::Int16),
            SoundForm::Flac => to_flac(sound),
            SoundForm::Opus => to_opus(sound, opus_bits),
            SoundForm::Mp3 => to_mp3(sound, opus_bits * 3 / 2),
        };
        let bytes = bytes.map_err(|error| Failure::new(Exit::Failed, error))?;
        match &self.path {
            Some(path) => fs::write(path, bytes).map_err(|error| Failure::writing(path, &error)),
            None => output::bytes(&bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::sound::listen;

    #[test]
    fn a_sound_is_written_as_its_ending_says() {
        let folder = tempfile::tempdir().unwrap();
        let wave = (0..24_000).map(|at| (at as f32 * 0.05).sin() * 0.5);
        let sound = Sound::new(24_000, 1, wave.collect()).unwrap();
        for name in ["a.wav", "a.FLAC", "a.opus", "a.mp3"] {
            let path = folder.path().join(name);
            let file = SoundFile::new(&path).unwrap();
            file.write(&sound, BITS_PER_SECOND).unwrap();
            let heard = listen(&fs::read(&path).unwrap(), 24_000, 10.0).unwrap();
            assert!((heard.seconds() - 1.0).abs() < 0.1, "{name}");
        }
        let refused = SoundFile::new(Path::new("a.aac")).unwrap_err();
        assert_eq!(refused.exit(), Some(Exit::Usage));
        assert_eq!(SoundFile::new(Path::new("-")).unwrap().path, None);
    }
}
