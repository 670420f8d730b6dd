//! Any sound file as one channel at one rate, for models that hear. A file is decoded packet by packet, so that memory
//! is that of the result.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use audioadapter_buffers::direct::InterleavedSlice;
use opus_pure::{MAX_PACKET_SAMPLES, OggOpusReader, OpusDecoder, OpusHead, Trim};
use rubato::{Fft, FixedSync, Indexing, Resampler};
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as DecodingError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;

use super::{Sound, SoundError, inspect};
use crate::MediaType;

/// Rates of files that are taken, in Hz.
const RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;
const MOST_CHANNELS: usize = 64;
/// Frames that are resampled at once.
const CHUNK: usize = 1024;
const OPUS_RATE: u32 = 48_000;

/// The types of files that [`listen`] takes, for messages.
pub const HEARD_TYPES: &str = "flac, m4a, mp3, mp4, mpeg, mpga, oga, ogg, opus, wav and webm";

/// The sound of a file, all channels mixed to one, at `rate`. A file of more than `most` seconds is refused.
pub fn listen(bytes: &[u8], rate: u32, most: f64) -> Result<Sound, SoundError> {
    // The decoders are of many authors, the bytes of unknown ones.
    let heard = catch_unwind(AssertUnwindSafe(|| {
        let mut mixer = Mixer::new(rate, most);
        decode(bytes, &mut mixer)?;
        mixer.finish()
    }));
    heard.unwrap_or(Err(SoundError::NoSound))
}

fn decode(bytes: &[u8], mixer: &mut Mixer) -> Result<(), SoundError> {
    let media_type = MediaType::sniff(bytes);
    match media_type {
        Some(MediaType::Opus) => return decode_opus(bytes, mixer),
        // These say how long they are: one that holds less was cut off.
        Some(media_type @ (MediaType::Wav | MediaType::Flac)) => match inspect(bytes, media_type) {
            Err(truncated @ SoundError::Truncated) => return Err(truncated),
            Ok(header) if header.seconds() > mixer.most => {
                return Err(SoundError::TooLong {
                    found: header.seconds(),
                    most: mixer.most,
                });
            }
            _ => {}
        },
        _ => {}
    }
    // The format takes what it reads from for ever.
    let stream = MediaSourceStream::new(Box::new(Cursor::new(bytes.to_vec())), Default::default());
    let probe = symphonia::default::get_probe();
    let hint = Hint::new();
    let (format, metadata) = (FormatOptions::default(), MetadataOptions::default());
    let mut format = probe
        .probe(&hint, stream, format, metadata)
        .map_err(|_| SoundError::NoSound)?;
    let track = format.default_track(TrackType::Audio);
    let track = track.ok_or(SoundError::NoSound)?;
    let id = track.id;
    let parameters = track
        .codec_params
        .as_ref()
        .and_then(|parameters| parameters.audio());
    let parameters = parameters.ok_or(SoundError::NoSound)?;
    let mut decoder = PacketDecoder::new(parameters)?;
    // The end of a file that was cut off is an error too: the sound before it counts.
    while let Ok(Some(packet)) = format.next_packet() {
        if packet.track_id == id {
            decoder.decode(&packet, mixer)?;
        }
    }
    Ok(())
}

enum PacketDecoder {
    Own(Box<dyn AudioDecoder>),
    /// In a container that is not Ogg.
    Opus {
        decoder: Box<OpusDecoder>,
        channels: usize,
        block: Vec<f32>,
    },
}

impl PacketDecoder {
    fn new(parameters: &AudioCodecParameters) -> Result<Self, SoundError> {
        if parameters.codec == CODEC_ID_OPUS {
            let channels = parameters
                .channels
                .as_ref()
                .map_or(1, |channels| channels.count());
            let channels = channels.clamp(1, 2);
            let rate = i32::try_from(OPUS_RATE).unwrap_or(i32::MAX);
            return Ok(Self::Opus {
                decoder: OpusDecoder::new(rate, channels)
                    .map(Box::new)
                    .map_err(|_| SoundError::NoSound)?,
                channels,
                block: vec![0.0; MAX_PACKET_SAMPLES * channels],
            });
        }
        let codecs = symphonia::default::get_codecs();
        let decoder = codecs.make_audio_decoder(parameters, &AudioDecoderOptions::default());
        decoder.map(Self::Own).map_err(|_| SoundError::NoSound)
    }

    fn decode(
        &mut self,
        packet: &symphonia::core::packet::Packet,
        mixer: &mut Mixer,
    ) -> Result<(), SoundError> {
        match self {
            Self::Own(decoder) => {
                let buffer = match decoder.decode(packet) {
                    Ok(buffer) => buffer,
                    // One packet is damaged; the next may not be.
                    Err(DecodingError::DecodeError(_)) => return Ok(()),
                    Err(_) => return Err(SoundError::NoSound),
                };
                let (rate, channels) = (buffer.spec().rate(), buffer.num_planes());
                let mut samples = vec![0.0; buffer.samples_interleaved()];
                buffer.copy_to_slice_interleaved(&mut samples);
                mixer.push(rate, channels, &samples)
            }
            Self::Opus {
                decoder,
                channels,
                block,
            } => match decoder.decode(&packet.data, MAX_PACKET_SAMPLES, block) {
                Ok(frames) => mixer.push(OPUS_RATE, *channels, &block[..frames * *channels]),
                Err(_) => Ok(()),
            },
        }
    }
}

fn decode_opus(bytes: &[u8], mixer: &mut Mixer) -> Result<(), SoundError> {
    let none = |_| SoundError::NoSound;
    let rate = i32::try_from(OPUS_RATE).unwrap_or(i32::MAX);
    let mut reader = OggOpusReader::new(bytes).map_err(none)?;
    let head: &OpusHead = reader.head();
    let channels = usize::from(head.channel_count);
    let mut decoder = head.decoder(rate).map_err(none)?;
    let mut trim = Trim::new(head, rate, channels).map_err(none)?;
    let mut block = vec![0.0; MAX_PACKET_SAMPLES * channels];
    for packet in reader.packets() {
        let Ok(packet) = packet else { break };
        let Ok(frames) = decoder.decode(&packet.data, MAX_PACKET_SAMPLES, &mut block) else {
            continue;
        };
        let kept = trim.keep(&packet, &block[..frames * channels]);
        mixer.push(OPUS_RATE, channels, kept)?;
    }
    Ok(())
}

/// Mixes channels and changes the rate, chunk by chunk.
struct Mixer {
    rate: u32,
    most: f64,
    samples: Vec<f32>,
    /// Of the file, once a packet was decoded.
    found: Option<(u32, Option<Fft<f32>>)>,
    pending: Vec<f32>,
    /// Frames of the file so far.
    frames: u64,
    late: usize,
}

impl Mixer {
    fn new(rate: u32, most: f64) -> Self {
        Self {
            rate,
            most,
            samples: Vec::new(),
            found: None,
            pending: Vec::new(),
            frames: 0,
            late: 0,
        }
    }

    fn push(&mut self, rate: u32, channels: usize, samples: &[f32]) -> Result<(), SoundError> {
        if !RATES.contains(&rate) || channels == 0 || channels > MOST_CHANNELS {
            return Err(SoundError::NoSound);
        }
        if samples.iter().any(|sample| !sample.is_finite()) {
            return Err(SoundError::NotNumbers);
        }
        if self.found.is_none() {
            let resampler = self.resampler(rate)?;
            self.late = resampler
                .as_ref()
                .map_or(0, |resampler| resampler.output_delay());
            self.found = Some((rate, resampler));
        }
        // Few files change their rate in the middle.
        if self.found.as_ref().is_some_and(|(found, _)| *found != rate) {
            return Err(SoundError::NoSound);
        }
        let mixed = samples.chunks_exact(channels);
        self.frames += mixed.len() as u64;
        let share = 1.0 / channels as f32;
        self.pending
            .extend(mixed.map(|frame| frame.iter().sum::<f32>() * share));
        let found = self.frames as f64 / f64::from(rate);
        if found > self.most {
            let most = self.most;
            return Err(SoundError::TooLong { found, most });
        }
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
            run(
                resampler,
                &self.pending[at..at + taken],
                None,
                &mut self.samples,
            )?;
            at += taken;
        }
        self.pending.drain(..at);
        Ok(())
    }

    fn finish(mut self) -> Result<Sound, SoundError> {
        let Some((rate, resampler)) = &mut self.found else {
            return Err(SoundError::NoSound);
        };
        if let Some(resampler) = resampler {
            let wanted = self.frames as f64 * f64::from(self.rate) / f64::from(*rate);
            let wanted = wanted.round() as usize;
            let mut rest = std::mem::take(&mut self.pending);
            // Silence behind the sound brings out the rest.
            while self.samples.len() < wanted + self.late {
                let partial = rest.len();
                rest.resize(resampler.input_frames_next(), 0.0);
                run(resampler, &rest, Some(partial), &mut self.samples)?;
                rest.clear();
            }
            self.samples.drain(..self.late);
            self.samples.truncate(wanted);
        }
        match self.samples.is_empty() {
            true => Err(SoundError::NoSound),
            false => Sound::new(self.rate, 1, self.samples),
        }
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

    /// How far a sound is from the tone, loudest place, away from its ends.
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
