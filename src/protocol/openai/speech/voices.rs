//! The requested voice among those of a model.

use std::borrow::Cow;

use crate::openai::Problem;

/// OpenAI's voices, with the most similar voices of Kokoro, best first. For other models the first voice of the same
/// gender is used, or else the first voice.
const OPENAI: [(&str, Gender, &[&str]); 13] = [
    ("alloy", Gender::Woman, &["af_alloy", "af_kore", "af_sarah"]),
    ("ash", Gender::Man, &["am_michael", "am_eric"]),
    ("ballad", Gender::Man, &["bm_george", "bm_lewis"]),
    ("cedar", Gender::Man, &["am_fenrir", "am_adam"]),
    ("coral", Gender::Woman, &["af_bella", "af_jessica"]),
    ("echo", Gender::Man, &["am_echo", "am_puck"]),
    ("fable", Gender::Man, &["bm_fable", "bm_george"]),
    ("marin", Gender::Woman, &["af_sarah", "af_sky"]),
    ("nova", Gender::Woman, &["af_nova", "af_heart"]),
    ("onyx", Gender::Man, &["am_onyx", "am_fenrir"]),
    ("sage", Gender::Woman, &["bf_emma", "af_kore"]),
    ("shimmer", Gender::Woman, &["af_aoede", "af_nicole"]),
    ("verse", Gender::Man, &["am_puck", "am_liam"]),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gender {
    Woman,
    Man,
}

/// Voices in a refusal.
const MOST_NAMES: usize = 60;

/// A voice or a mixture such as `a+b` or `a(2)+b(1)`, with the names that the model has. A name without its prefix will
/// do where only one voice has it: `alloy` is `af_alloy`. OpenAI's names stand for voices of the model.
pub fn resolve(asked: &str, voices: &[impl AsRef<str>]) -> Result<String, Problem> {
    let parts = asked.split('+').map(|part| {
        let part = part.trim();
        let (name, weight) = part.split_at(part.find('(').unwrap_or(part.len()));
        let name = known(name.trim(), voices)?;
        Ok(Cow::Owned(format!("{name}{weight}")))
    });
    let parts: Result<Vec<Cow<'_, str>>, Problem> = parts.collect();
    Ok(parts?.join("+"))
}

fn known<'v>(name: &str, voices: &'v [impl AsRef<str>]) -> Result<&'v str, Problem> {
    let names = || voices.iter().map(AsRef::as_ref);
    if let Some(same) = names().find(|voice| *voice == name) {
        return Ok(same);
    }
    let is_tail = |voice: &&str| {
        let tail = voice.split_once('_').map(|(_, tail)| tail);
        tail.is_some_and(|tail| tail.eq_ignore_ascii_case(name))
    };
    let mut alike = names().filter(is_tail);
    if let (Some(one), None) = (alike.next(), alike.next()) {
        return Ok(one);
    }
    if let Some(voice) = stand_in(name, voices) {
        return Ok(voice);
    }
    let listed: Vec<&str> = names().take(MOST_NAMES).collect();
    let name: String = name.chars().take(64).collect();
    let message = format!(
        "the model has no voice {name:?}; use one of {}",
        listed.join(", ")
    );
    Err(Problem::invalid("voice", message))
}

/// The voice in place of one of OpenAI's.
fn stand_in<'v>(name: &str, voices: &'v [impl AsRef<str>]) -> Option<&'v str> {
    let names = || voices.iter().map(AsRef::as_ref);
    let row = OPENAI.iter().find(|row| row.0.eq_ignore_ascii_case(name));
    let (_, gender, alike) = row?;
    let found = alike
        .iter()
        .find_map(|wanted| names().find(|voice| voice == wanted));
    // Kokoro's voices begin with their language and gender; English is `a` or `b`.
    let same = |languages: &[char]| {
        names().find(|voice| {
            let mut letters = voice.chars();
            let language = letters.next().is_some_and(|one| languages.contains(&one));
            let letter = match gender {
                Gender::Woman => 'f',
                Gender::Man => 'm',
            };
            language && letters.next() == Some(letter) && letters.next() == Some('_')
        })
    };
    found
        .or_else(|| same(&['a', 'b']))
        .or_else(|| names().next())
}

#[cfg(test)]
mod tests {
    use super::{OPENAI, resolve};

    const VOICES: [&str; 4] = ["af_alloy", "am_adam", "bf_emma", "zf_emma"];

    #[test]
    fn voices_are_found_by_their_names_and_by_the_ends_of_them() {
        let check = |asked: &str, wanted: &str| {
            assert_eq!(resolve(asked, &VOICES).unwrap(), wanted);
        };
        check("am_adam", "am_adam");
        check("alloy", "af_alloy");
        check("Alloy", "af_alloy");
        check("alloy + bf_emma", "af_alloy+bf_emma");
        check("am_adam(2)+alloy(1)", "am_adam(2)+af_alloy(1)");
    }

    #[test]
    fn voices_of_openai_stand_for_those_of_the_model() {
        let check = |asked: &str, voices: &[&str], wanted: &str| {
            assert_eq!(resolve(asked, voices).unwrap(), wanted, "{asked}");
        };
        check("nova", &["af_heart", "af_nova"], "af_nova");
        check("nova", &["af_bella", "af_heart"], "af_heart");
        check("onyx", &VOICES, "am_adam");
        check("Shimmer", &VOICES, "af_alloy");
        check("verse+nova(2)", &VOICES, "am_adam+af_alloy(2)");
        for (name, ..) in OPENAI {
            check(name, &["demo"], "demo");
        }
    }

    #[test]
    fn a_voice_that_no_model_has_is_refused_with_the_list() {
        for asked in ["novella", "emma", "af_", "", "am_adam+", "am_adam+novella"] {
            let problem = resolve(asked, &VOICES).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some("voice"), "{asked}");
            assert!(problem.to_string().contains("af_alloy, am_adam"));
        }
    }
}
