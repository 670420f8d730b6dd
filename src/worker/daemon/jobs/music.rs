//! A neutral request for music, as the maker takes it.

use muster_engine::runtime::maker::SoundRequest;
use muster_protocol::job::{Failure, FailureKind, MusicRequest};

pub fn read(music: &MusicRequest) -> Result<SoundRequest, Failure> {
    let unsupported = [
        ("bpm", music.bpm.is_some()),
        ("key_scale", music.key_scale.is_some()),
        ("time_signature", music.time_signature.is_some()),
        ("vocal_language", music.vocal_language.is_some()),
    ];
    if let Some((name, _)) = unsupported.iter().find(|(_, is_set)| *is_set) {
        let message = format!("{name} is not supported by the model");
        return Err(Failure::new(FailureKind::UnsupportedValue, message));
    }
    Ok(SoundRequest {
        prompt: music.prompt.clone(),
        lyrics: music.lyrics.clone(),
        // A speech ends with its text.
        seconds: (!music.is_speech).then_some(music.seconds as f32),
        steps: music.steps,
        seed: music.seed,
        ..SoundRequest::default()
    })
}

#[cfg(test)]
mod tests {
    use super::read;
    use muster_protocol::job::{Blame, MusicRequest};

    #[test]
    fn a_setting_that_no_model_takes_is_refused_by_name() {
        let music = MusicRequest {
            prompt: "a piano".to_owned(),
            seconds: 12.0,
            seed: Some(7),
            ..MusicRequest::default()
        };
        let sound = read(&music).unwrap();
        assert_eq!((sound.seconds, sound.seed), (Some(12.0), Some(7)));
        let speech = MusicRequest {
            is_speech: true,
            ..music.clone()
        };
        assert_eq!(read(&speech).unwrap().seconds, None);
        let refusal = read(&MusicRequest {
            bpm: Some(120),
            ..music
        })
        .unwrap_err();
        assert_eq!(refusal.blame, Blame::Client);
        assert!(refusal.message.contains("bpm"), "{refusal}");
    }
}
