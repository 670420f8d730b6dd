//! A request as text: the form in which the text encoder was trained to read it.

use std::fmt::Display;

/// The task, as every text names it.
const INSTRUCTION: &str = "Fill the audio semantic mask based on the given conditions:";
const END: &str = "<|endoftext|>";
/// Value of settings that a request omits.
const OPEN: &str = "N/A";
/// Default language of lyrics.
const LANGUAGE: &str = "en";

/// A song in words.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SongText<'a> {
    pub prompt: &'a str,
    pub lyrics: &'a str,
    pub seconds: f32,
    pub bpm: Option<u32>,
    /// A note and a mode.
    pub key_scale: Option<&'a str>,
    pub time_signature: Option<&'a str>,
    /// Two letters.
    pub vocal_language: Option<&'a str>,
}

impl SongText<'_> {
    pub fn description(&self) -> String {
        let set = |text: Option<&str>| {
            let text = text.filter(|text| !text.trim().is_empty());
            text.unwrap_or(OPEN).to_owned()
        };
        let bpm = self.bpm.map_or(OPEN.to_owned(), |bpm| bpm.to_string());
        let line = |name: &str, value: &dyn Display| format!("- {name}: {value}\n");
        let settings = [
            line("bpm", &bpm),
            line("timesignature", &set(self.time_signature)),
            line("keyscale", &set(self.key_scale)),
            line("duration", &format_args!("{} seconds", self.seconds as u32)),
        ];
        format!(
            "# Instruction\n{INSTRUCTION}\n\n# Caption\n{}\n\n# Metas\n{}{END}\n",
            self.prompt,
            settings.concat(),
        )
    }

    pub fn lyrics(&self) -> String {
        let language = self.vocal_language.unwrap_or(LANGUAGE);
        format!("# Languages\n{language}\n\n# Lyric\n{}{END}", self.lyrics)
    }
}

#[cfg(test)]
mod tests {
    use super::SongText;

    #[test]
    fn settings_stand_in_their_lines() {
        let text = SongText {
            prompt: "a piano",
            lyrics: "[verse]\nla",
            seconds: 12.9,
            bpm: Some(120),
            key_scale: Some("C# minor"),
            time_signature: Some("3"),
            vocal_language: Some("fr"),
        };
        let settings =
            "- bpm: 120\n- timesignature: 3\n- keyscale: C# minor\n- duration: 12 seconds\n";
        let described = text.description();
        assert!(described.contains(&format!("# Caption\na piano\n\n# Metas\n{settings}<|")));
        assert_eq!(
            text.lyrics(),
            "# Languages\nfr\n\n# Lyric\n[verse]\nla<|endoftext|>"
        );
        let open = SongText {
            prompt: "a piano",
            seconds: 30.0,
            key_scale: Some(" "),
            ..SongText::default()
        };
        let settings =
            "- bpm: N/A\n- timesignature: N/A\n- keyscale: N/A\n- duration: 30 seconds\n";
        assert!(open.description().contains(settings));
        assert!(open.lyrics().starts_with("# Languages\nen\n"));
    }
}
