//! Any sound file as one channel at one rate, for models that transcribe. Memory is that of a block.

use std::panic::{AssertUnwindSafe, catch_unwind};

use audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Indexing, Resampler};

use super::{DecodeBounds, DecodedSound, Sound, SoundError, decode};

/// Frames that are resampled at once.
const CHUNK: usize = 1024;

/// The sound of a file, all channels mixed to one, at `rate`. A file of more than `most` seconds is refused.
pub fn listen(bytes: &[u8], rate: u32, most: f64) -> Result<Sound, SoundError> {
    let mut samples = Vec::new();
    let bounds = DecodeBounds::seconds(most);
    listen_in_blocks(bytes.to_vec(), rate, bounds, |block| samples.extend(block))?;
    Sound::new(rate, 1, samples)
}

/// The same in blocks. Returns the file's properties at the end.
pub fn listen_in_blocks(
    bytes: Vec<u8>,
    rate: u32,
    bounds: DecodeBounds,
    mut each: impl FnMut(&[f32]),
) -> Result<DecodedSound, SoundError> {
    // The decoders are of many authors, the bytes of unknown ones.
    let heard = catch_unwind(AssertUnwindSafe(|| {
        let mut mixer = Mixer::new(rate);
        let found = decode(bytes, bounds, |rate, channels, samples| {
            mixer.push(rate, channels, samples)?;
            mixer.give(&mut each);
            Ok(())
        })?;
        mixer.finish()?;
        mixer.give(&mut each);
        match mixer.given {
            0 => Err(SoundError::NoSound),
            _ => Ok(found),
        }
    }));
    heard.unwrap_or(Err(SoundError::NoSound))
}

/// Mixes channels and changes the rate, chunk by chunk.
struct Mixer {
    rate: u32,
    /// At the requested rate, not returned yet.
    samples: Vec<f32>,
    /// Rate of the file, once a block was decoded.
    found: Option<(u32, Option<Fft<f32>>)>,
    pending: Vec<f32>,
    /// Number of the file's frames.
    frames: u64,
    /// Samples at the beginning that are the resampler's delay.
    late: usize,
    given: u64,
}

impl Mixer {
    fn new(rate: u32) -> Self {
        Self {
            rate,
            samples: Vec::new(),
            found: None,
            pending: Vec::new(),
            frames: 0,
            late: 0,
            given: 0,
        }
    }

    fn push(&mut self, rate: u32, channels: usize, samples: &[f32]) -> Result<(), SoundError> {
        if self.found.is_none() {
            let resampler = self.resampler(rate)?;
            self.late = resampler
                .as_ref()
                .map_or(0, |resampler| resampler.output_delay());
            self.found = Some((rate, resampler));
        }
        let mixed = samples.chunks_exact(channels);
        self.frames += mixed.len() as u64;
        let share = 1.0 / channels as f32;
        self.pending
            .extend(mixed.map(|frame| frame.iter().sum::<f32>() * share));
        self.resample()
    }

    fn resampler(&self, from: u32) -> Result<Option<Fft<f32>>, SoundError> {
        if from == self.rate {
            return Ok(None);
        }
        let resampler = Fft::new(
            from as usize,
            self.rate as usize,
            CHUNK,
            1,
            FixedSync::Input,
        );
        resampler.map(Some).map_err(|_| SoundError::NoSound)
    }

    fn resample(&mut self) -> Result<(), SoundError> {
        let Some((_, Some(resampler))) = &mut self.found else {
            self.samples.append(&mut self.pending);
            return Ok(());
        };
        let mut at = 0;
        while self.pending.len() - at >= resampler.input_frames_next() {
            let taken = resampler.input_frames_next();
            let input = &self.pending[at..at + taken];
            run(resampler, input, None, &mut self.samples)?;
            at += taken;
        }
        self.pending.drain(..at);
        Ok(())
    }

    /// Hands on the samples that are ready, without the delay at the beginning.
    fn give(&mut self, each: &mut impl FnMut(&[f32])) {
        let late = self.late.min(self.samples.len());
        self.late -= late;
        let ready = &self.samples[late..];
        if !ready.is_empty() {
            self.given += ready.len() as u64;
            each(ready);
        }
        self.samples.clear();
    }

    /// Flushes the resampler with silence.
    fn finish(&mut self) -> Result<(), SoundError> {
        let Some((rate, resampler)) = &mut self.found else {
            return Err(SoundError::NoSound);
        };
        let Some(resampler) = resampler else {
            return Ok(());
        };
        let wanted = self.frames as f64 * f64::from(self.rate) / f64::from(*rate);
        let left = (wanted.round() as u64).saturating_sub(self.given);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let mut rest = std::mem::take(&mut self.pending);
        while self.samples.len() < left.saturating_add(self.late) {
            let partial = rest.len();
            rest.resize(resampler.input_frames_next(), 0.0);
            run(resampler, &rest, Some(partial), &mut self.samples)?;
            rest.clear();
        }
        self.samples.truncate(left.saturating_add(self.late));
        Ok(())
    }
}

fn run(
    resampler: &mut Fft<f32>,
    input: &[f32],
    partial_len: Option<usize>,
    samples: &mut Vec<f32>,
) -> Result<(), SoundError> {
    let mut output = vec![0.0; resampler.output_frames_next()];
    let frames = output.len();
    let source = InterleavedSlice::new(input, 1, input.len()).map_err(|_| SoundError::NoSound)?;
    let mut target =
        InterleavedSlice::new_mut(&mut output, 1, frames).map_err(|_| SoundError::NoSound)?;
    let indexing = Indexing {
        partial_len,
        ..Indexing::default()
    };
    let ran = resampler.process_into_buffer(&source, &mut target, Some(&indexing));
    let (_, written) = ran.map_err(|_| SoundError::NoSound)?;
    samples.extend(&output[..written]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::listen;
    use crate::sound::{Sound, SoundError, WavFormat, to_flac, to_opus, to_wav};

    const MOST: f64 = 20.0;

    fn tone(rate: u32, channels: usize, seconds: f32) -> Sound {
        let count = (rate as f32 * seconds) as usize;
        let wave =
            |at: usize| (at as f32 / rate as f32 * 440.0 * std::f32::consts::TAU).sin() * 0.5;
        let samples = (0..count).flat_map(|at| vec![wave(at); channels]);
        Sound::new(rate, channels as u16, samples.collect()).unwrap()
    }

    /// The largest difference of a sound and the tone, except at the ends.
    fn gap(heard: &Sound) -> f32 {
        let wanted = tone(heard.rate(), 1, heard.seconds() as f32);
        let pairs = heard.samples().iter().zip(wanted.samples());
        let inner = pairs
            .skip(800)
            .take(heard.samples().len().saturating_sub(1600));
        inner.fold(0.0, |most, (a, b)| most.max((a - b).abs()))
    }

    #[test]
    fn rates_and_channels_become_one() {
        for (rate, channels) in [
            (16_000, 1),
            (44_100, 2),
            (48_000, 2),
            (8_000, 1),
            (11_025, 1),
            (4_000, 1),
        ] {
            let file = to_wav(&tone(rate, channels, 1.5), WavFormat::Int16).unwrap();
            let heard = listen(&file, 16_000, MOST).unwrap();
            assert_eq!((heard.rate(), heard.channels()), (16_000, 1), "{rate}");
            // The tone itself is a part of a sample too short where its rate is odd.
            assert!(
                heard.frames().abs_diff(24_000) <= 1,
                "{rate}: {}",
                heard.frames()
            );
            // Less than a sample late.
            assert!(gap(&heard) < 0.086, "{rate}: {}", gap(&heard));
        }
    }

    #[test]
    fn our_own_files_are_heard() {
        let sound = tone(48_000, 2, 1.0);
        let files = [
            to_flac(&sound).unwrap(),
            to_opus(&sound, 96_000).unwrap(),
            to_wav(&sound, WavFormat::Float32).unwrap(),
        ];
        for (at, file) in files.iter().enumerate() {
            let heard = listen(file, 16_000, MOST).unwrap();
            assert_eq!(heard.frames(), 16_000, "{at}");
            assert!(gap(&heard) < 0.03, "{at}: {}", gap(&heard));
        }
    }

    #[test]
    fn bytes_without_sound_are_refused() {
        assert_eq!(listen(b"", 16_000, MOST), Err(SoundError::NoSound));
        assert_eq!(listen(&[7; 5000], 16_000, MOST), Err(SoundError::NoSound));
        let empty = to_wav(&tone(16_000, 1, 0.0), WavFormat::Int16).unwrap();
        assert_eq!(listen(&empty, 16_000, MOST), Err(SoundError::NoSound));
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_is_decoded() {
        let long = to_flac(&tone(16_000, 1, 30.0)).unwrap();
        let refused = listen(&long, 16_000, MOST).unwrap_err();
        assert!(matches!(refused, SoundError::TooLong { .. }), "{refused}");
        let opus = to_opus(&tone(16_000, 1, 30.0), 16_000).unwrap();
        let refused = listen(&opus, 16_000, MOST).unwrap_err();
        assert!(matches!(refused, SoundError::TooLong { .. }), "{refused}");
    }

    #[test]
    fn a_header_that_promises_more_is_named() {
        let whole = to_wav(&tone(16_000, 1, 1.0), WavFormat::Int16).unwrap();
        let refused = listen(&whole[..whole.len() / 2], 16_000, MOST);
        assert_eq!(refused, Err(SoundError::Truncated));
    }

    #[test]
    fn samples_that_are_no_numbers_are_named() {
        let mut sound = tone(16_000, 1, 1.0).into_samples();
        sound[100] = f32::NAN;
        let file = to_wav(&Sound::new(16_000, 1, sound).unwrap(), WavFormat::Float32).unwrap();
        assert_eq!(listen(&file, 16_000, MOST), Err(SoundError::NotNumbers));
    }
}
