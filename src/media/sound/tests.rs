use std::f32::consts::TAU;

use proptest::prelude::*;

use super::{
    MP3_RATES, Mp3Stream, OpusStream, Sound, SoundBounds, SoundError, SoundHeader, WavFormat,
    from_opus, from_wav, inspect, listen, to_flac, to_mp3, to_opus, to_wav,
};
use crate::MediaType;

const BOUNDS: SoundBounds = SoundBounds {
    seconds: 10.0,
    channels: 2,
};
const SOUNDS: [MediaType; 4] = [
    MediaType::Wav,
    MediaType::Flac,
    MediaType::Opus,
    MediaType::Mp3,
];

/// A tone in the first channel, a higher one in the second.
fn tone(rate: u32, channels: u16, frames: usize) -> Sound {
    let samples = (0..frames * usize::from(channels)).map(|at| {
        let (frame, channel) = (at / usize::from(channels), at % usize::from(channels));
        let hertz = 220.0 * (channel + 1) as f32;
        (TAU * hertz * frame as f32 / rate as f32).sin() * 0.5
    });
    Sound::new(rate, channels, samples.collect()).unwrap()
}

fn written(media_type: MediaType, sound: &Sound) -> Vec<u8> {
    match media_type {
        MediaType::Wav => to_wav(sound, WavFormat::Int16).unwrap(),
        MediaType::Flac => to_flac(sound).unwrap(),
        MediaType::Opus => to_opus(sound, 96_000).unwrap(),
        _ => to_mp3(sound, 96_000).unwrap(),
    }
}

fn loudest_difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    let pairs = one.iter().zip(other);
    pairs.fold(0.0, |most, (one, other)| most.max((one - other).abs()))
}

#[test]
fn samples_fill_their_channels() {
    assert!(Sound::new(48_000, 2, vec![0.0; 3]).is_err());
    assert!(Sound::new(0, 1, vec![0.0; 3]).is_err());
    assert!(Sound::new(48_000, 0, Vec::new()).is_err());
    let sound = Sound::new(48_000, 2, vec![0.0; 96_000]).unwrap();
    assert_eq!((sound.frames(), sound.seconds()), (48_000, 1.0));
}

#[test]
fn wav_comes_back() {
    let sound = tone(44_100, 2, 10_000);
    let float = to_wav(&sound, WavFormat::Float32).unwrap();
    assert_eq!(from_wav(&float, BOUNDS).unwrap(), sound);
    let short = to_wav(&sound, WavFormat::Int16).unwrap();
    let again = from_wav(&short, BOUNDS).unwrap();
    assert_eq!((again.rate(), again.channels()), (44_100, 2));
    assert!(loudest_difference(again.samples(), sound.samples()) < 1e-4);
}

#[test]
fn samples_beyond_full_scale_are_clipped() {
    let sound = Sound::new(8_000, 1, vec![2.0, -2.0, f32::NAN, f32::INFINITY]).unwrap();
    let wav = to_wav(&sound, WavFormat::Int16).unwrap();
    let again = from_wav(&wav, BOUNDS).unwrap();
    let expected = [1.0, -1.0, 0.0, 1.0];
    assert!(loudest_difference(again.samples(), &expected) < 1e-4);
}

#[test]
fn flac_comes_back() {
    for (rate, channels, frames) in [(44_100, 2, 10_000), (24_000, 1, 4096), (48_000, 2, 4097)] {
        let sound = tone(rate, channels, frames);
        let flac = to_flac(&sound).unwrap();
        let mut reader = claxon::FlacReader::new(&*flac).unwrap();
        assert_eq!(reader.streaminfo().sample_rate, rate);
        let samples = reader
            .samples()
            .map(|sample| sample.unwrap() as f32 / 32_767.0);
        let samples: Vec<f32> = samples.collect();
        assert!(loudest_difference(&samples, sound.samples()) < 1e-4);
    }
}

#[test]
fn silence_fills_a_flac_of_a_few_samples() {
    for frames in [0, 1] {
        let flac = to_flac(&tone(48_000, 2, frames)).unwrap();
        let mut reader = claxon::FlacReader::new(&*flac).unwrap();
        assert_eq!(reader.samples().count(), 32);
    }
}

#[test]
fn opus_comes_back() {
    for (rate, channels) in [(48_000, 2), (24_000, 1), (16_000, 1)] {
        let sound = tone(rate, channels, rate as usize + 77);
        let opus = to_opus(&sound, 96_000).unwrap();
        let again = from_opus(&opus, BOUNDS).unwrap();
        let ticks = 48_000 / rate as usize;
        assert_eq!(again.frames(), sound.frames() * ticks);
        let every = again.samples().chunks_exact(usize::from(channels));
        let every: Vec<f32> = every.step_by(ticks).flatten().copied().collect();
        let energy = |samples: &[f32]| samples.iter().map(|one| one * one).sum::<f32>();
        let errors = every.iter().zip(sound.samples());
        let errors: Vec<f32> = errors.map(|(one, other)| one - other).collect();
        let noise = energy(&errors) / energy(sound.samples());
        assert!(noise < 0.05, "{rate} Hz: {noise}");
    }
}

/// Like a song: chords of partials that fade, and noise of a drum.
fn music(rate: u32, channels: u16) -> Sound {
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let samples = (0..3 * rate * u32::from(channels)).map(|at| {
        let (frame, channel) = (at / u32::from(channels), at % u32::from(channels));
        let time = frame as f32 / rate as f32;
        let beat = time % 0.5;
        let partials = [220.0, 277.2, 329.6, 440.0, 880.0, 1760.0, 3520.0].into_iter();
        let chord: f32 = partials
            .map(|hertz| (TAU * hertz * (1.0 + 0.01 * channel as f32) * time).sin())
            .sum();
        (chord * (-3.0 * beat).exp() + 0.5 * noise() * (-40.0 * beat).exp()) * 0.1
    });
    Sound::new(rate, channels, samples.collect()).unwrap()
}

/// Like a voice: partials of a pitch that glides, through two formants, in syllables.
fn voice(rate: u32) -> Sound {
    let mut phase = 0f32;
    let samples = (0..3 * rate).map(|at| {
        let time = at as f32 / rate as f32;
        let pitch = 120.0 + 30.0 * (TAU * 0.7 * time).sin();
        phase += TAU * pitch / rate as f32;
        let first = 500.0 + 200.0 * (TAU * 1.3 * time).sin();
        let formant = |hertz: f32, center: f32| (-((hertz - center) / 150.0).powi(2)).exp();
        let partials = (1..30u8).map(|number| {
            let hertz = pitch * f32::from(number);
            let level = 0.05 + formant(hertz, first) + 0.5 * formant(hertz, 1800.0);
            level * (phase * f32::from(number)).sin()
        });
        let syllable = (TAU * 2.0 * time).sin().max(0.0);
        partials.sum::<f32>() * syllable * 0.12
    });
    Sound::new(rate, 1, samples.collect()).unwrap()
}

/// Signal-to-noise ratio in decibels after encoding, with all channels mixed.
fn signal_to_noise(sound: &Sound, file: &[u8]) -> f64 {
    let again = listen(file, sound.rate(), 10.0).unwrap();
    let channels = usize::from(sound.channels());
    let frames = sound.samples().chunks_exact(channels);
    let mixed: Vec<f32> = frames
        .map(|frame| frame.iter().sum::<f32>() / channels as f32)
        .collect();
    assert_eq!(again.frames(), mixed.len(), "the delay is left out");
    let energy = |samples: &[f32]| samples.iter().map(|one| f64::from(one * one)).sum::<f64>();
    let errors = mixed.iter().zip(again.samples());
    let errors: Vec<f32> = errors.map(|(one, other)| one - other).collect();
    10.0 * (energy(&mixed) / energy(&errors)).log10()
}

#[test]
fn mp3_sounds_like_its_source() {
    for (sound, bits, least) in [
        (voice(24_000), 64_000, 15.0),
        (voice(24_000), 96_000, 20.0),
        (voice(44_100), 64_000, 15.0),
        (music(24_000, 2), 160_000, 15.0),
        (music(44_100, 2), 128_000, 12.0),
        (music(48_000, 2), 192_000, 15.0),
        (music(44_100, 1), 128_000, 15.0),
    ] {
        let file = to_mp3(&sound, bits).unwrap();
        let size = f64::from(bits) / 8.0 * sound.seconds();
        assert!((file.len() as f64 / size - 1.0).abs() < 0.1, "{bits}");
        let found = signal_to_noise(&sound, &file);
        let about = (sound.rate(), sound.channels(), bits);
        assert!(found > least, "{about:?}: {found:.1} dB");
    }
}

#[test]
fn mp3_of_every_rate_has_the_length_of_its_sound() {
    for rate in MP3_RATES {
        for frames in [0, 1, 575, 1152, 5000] {
            let sound = tone(rate, 1, frames);
            let file = to_mp3(&sound, 64_000).unwrap();
            let header = inspect(&file, MediaType::Mp3).unwrap();
            assert_eq!((header.rate, header.frames), (rate, frames as u64));
        }
    }
    let refused = to_mp3(&tone(96_000, 1, 100), 64_000).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "MP3 takes no sound of 1 channels at 96000 Hz"
    );
    assert!(to_mp3(&tone(48_000, 3, 100), 64_000).is_err());
}

#[test]
fn an_mp3_leaves_while_its_samples_come() {
    let sound = voice(24_000);
    let mut stream = Mp3Stream::new(24_000, 1, 64_000).unwrap();
    let mut file = stream.push(&sound.samples()[..24_000]).unwrap();
    assert!(file.len() > 7_000, "{}", file.len());
    assert_eq!(MediaType::sniff(&file), Some(MediaType::Mp3));
    file.extend(stream.push(&sound.samples()[24_000..]).unwrap());
    file.extend(stream.finish().unwrap());
    let heard = listen(&file, 24_000, 10.0).unwrap();
    // The delay and the filling of the last frame stay.
    assert!((heard.seconds() - sound.seconds()).abs() < 0.1);
    let header = inspect(&file, MediaType::Mp3).unwrap();
    assert!((header.seconds() - sound.seconds()).abs() < 0.1);
}

#[test]
fn rates_that_a_codec_lacks_are_refused_by_name() {
    let refused = to_opus(&tone(44_100, 1, 100), 32_000).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Ogg Opus takes no sound of 1 channels at 44100 Hz"
    );
    assert!(to_opus(&tone(48_000, 3, 100), 32_000).is_err());
    assert!(to_flac(&tone(48_000, 9, 100)).is_err());
}

#[test]
fn headers_tell_the_length() {
    let sound = tone(24_000, 2, 12_345);
    for media_type in SOUNDS {
        let bytes = written(media_type, &sound);
        assert_eq!(MediaType::sniff(&bytes), Some(media_type));
        let header = inspect(&bytes, media_type).unwrap();
        assert_eq!(header.channels, 2, "{media_type}");
        assert!(
            (header.seconds() - sound.seconds()).abs() < 1e-9,
            "{media_type}"
        );
        let other = SOUNDS.into_iter().find(|other| *other != media_type);
        let refused = inspect(&bytes, other.unwrap()).unwrap_err();
        assert!(matches!(refused, SoundError::Unreadable { .. }));
    }
}

#[test]
fn truncated_sound_is_refused_by_name() {
    let sound = tone(24_000, 1, 24_000);
    for media_type in [MediaType::Wav, MediaType::Opus, MediaType::Mp3] {
        let bytes = written(media_type, &sound);
        for length in [bytes.len() - 1, bytes.len() / 2] {
            let refused = inspect(&bytes[..length], media_type).unwrap_err();
            assert_eq!(refused, SoundError::Truncated, "{media_type}, {length}");
        }
    }
    for media_type in SOUNDS {
        let bytes = written(media_type, &sound);
        assert!(inspect(&bytes[..20], media_type).is_err(), "{media_type}");
    }
}

#[test]
fn a_header_that_claims_hours_is_refused() {
    let mut wav = written(MediaType::Wav, &tone(8_000, 1, 100));
    wav[40..44].copy_from_slice(&2_000_000_000_u32.to_le_bytes());
    assert_eq!(inspect(&wav, MediaType::Wav), Err(SoundError::Truncated));
    // A stream declares an unknown length, and ends with its bytes.
    wav[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(inspect(&wav, MediaType::Wav).unwrap().frames, 100);
    let mut flac = written(MediaType::Flac, &tone(8_000, 1, 100));
    flac[21] |= 0x0f;
    flac[22..26].fill(0xff);
    assert_eq!(inspect(&flac, MediaType::Flac), Err(SoundError::Truncated));
    let long = SoundHeader {
        rate: 8_000,
        channels: 1,
        frames: 80_001,
    };
    assert!(matches!(
        BOUNDS.check(long),
        Err(SoundError::TooLong { .. })
    ));
    let wide = SoundHeader {
        channels: 3,
        frames: 1,
        ..long
    };
    assert!(matches!(
        BOUNDS.check(wide),
        Err(SoundError::TooManyChannels { found: 3, most: 2 })
    ));
}

/// Sounds of every type, and bytes of them turned.
fn broken() -> impl Strategy<Value = (MediaType, Vec<u8>)> {
    let turned = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12);
    let cut = any::<prop::sample::Index>();
    (prop::sample::select(SOUNDS.to_vec()), turned, cut).prop_map(|(media_type, turned, cut)| {
        let mut bytes = written(media_type, &tone(8_000, 1, 400));
        for (at, byte) in turned {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() * 2).max(1));
        (media_type, bytes)
    })
}

proptest! {
    #[test]
    fn fuzz_decoding_sound_ends_within_bounds((media_type, bytes) in broken()) {
        let _ = inspect(&bytes, media_type);
        for sound in [from_wav(&bytes, BOUNDS), from_opus(&bytes, BOUNDS)].into_iter().flatten() {
            prop_assert!(sound.seconds() <= BOUNDS.seconds && sound.channels() <= BOUNDS.channels);
        }
    }
}

#[test]
fn opus_is_the_same_however_its_samples_come() {
    let sound = tone(24_000, 1, 24_000 + 123);
    let whole = to_opus(&sound, 48_000).unwrap();
    let mut stream = OpusStream::new(24_000, 1, 48_000).unwrap();
    let mut file = Vec::new();
    for part in sound.samples().chunks(777) {
        file.extend(stream.push(part).unwrap());
    }
    file.extend(stream.finish().unwrap());
    assert_eq!(file, whole);

    let mut stream = OpusStream::new(24_000, 1, 48_000).unwrap().in_small_pages();
    let mut file = stream.push(&sound.samples()[..12_000]).unwrap();
    // Half a second is on its way but for a page.
    assert!(file.len() > 1500, "{}", file.len());
    file.extend(stream.push(&sound.samples()[12_000..]).unwrap());
    file.extend(stream.finish().unwrap());
    let bounds = SoundBounds {
        seconds: 2.0,
        channels: 1,
    };
    let small = from_opus(&file, bounds).unwrap();
    assert_eq!(small, from_opus(&whole, bounds).unwrap());
    let nothing = OpusStream::new(24_000, 1, 48_000).unwrap().finish();
    assert_eq!(MediaType::sniff(&nothing.unwrap()), Some(MediaType::Opus));
}
