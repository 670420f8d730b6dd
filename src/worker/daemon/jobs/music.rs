//! A neutral request for music, as the maker takes it.

use muster_engine::runtime::maker::SoundRequest;
use muster_protocol::job::MusicRequest;

/// The pipeline of a model refuses settings that it does not have.
pub fn read(music: &MusicRequest) -> SoundRequest {
    SoundRequest {
        prompt: music.prompt.clone(),
        lyrics: music.lyrics.clone(),
        bpm: music.bpm,
        key_scale: music.key_scale.clone(),
        time_signature: music.time_signature.clone(),
        vocal_language: music.vocal_language.clone(),
        // A speech ends with its text.
        seconds: (!music.is_speech).then_some(music.seconds as f32),
        steps: music.steps,
        seed: music.seed,
        voice: music.voice.clone(),
        speed: music.speed.map(|speed| speed as f32),
        ..SoundRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use muster_protocol::job::MusicRequest;

    #[test]
    fn settings_are_those_of_the_request() {
        let music = MusicRequest {
            prompt: "a piano".to_owned(),
            seconds: 12.0,
            seed: Some(7),
            bpm: Some(120),
            key_scale: Some("C# minor".to_owned()),
            time_signature: Some("3".to_owned()),
            vocal_language: Some("fr".to_owned()),
            ..MusicRequest::default()
        };
        let sound = read(&music);
        assert_eq!((sound.seconds, sound.seed), (Some(12.0), Some(7)));
        assert_eq!(
            (sound.bpm, sound.key_scale),
            (Some(120), music.key_scale.clone())
        );
        let names = (sound.time_signature, sound.vocal_language);
        assert_eq!(names, (Some("3".to_owned()), Some("fr".to_owned())));
        let speech = MusicRequest {
            is_speech: true,
            voice: Some("af_heart".to_owned()),
            speed: Some(1.5),
            ..music
        };
        let speech = read(&speech);
        assert_eq!((speech.seconds, speech.speed), (None, Some(1.5)));
        assert_eq!(speech.voice.as_deref(), Some("af_heart"));
    }
}
