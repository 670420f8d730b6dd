//! The voice that a client names, among those of a model.

use std::borrow::Cow;

use crate::openai::Problem;

/// Voices in a refusal.
const MOST_NAMES: usize = 60;

/// A voice or a mixture such as `a+b` or `a(2)+b(1)`, with the names that the model has. A name without its prefix will
/// do where only one voice has it: `alloy` is `af_alloy`.
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
    let listed: Vec<&str> = names().take(MOST_NAMES).collect();
    let name: String = name.chars().take(64).collect();
    let message = format!(
        "the model has no voice {name:?}; use one of {}",
        listed.join(", ")
    );
    Err(Problem::invalid("voice", message))
}

#[cfg(test)]
mod tests {
    use super::resolve;

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
    fn a_voice_that_no_model_has_is_refused_with_the_list() {
        for asked in ["nova", "emma", "af_", "", "am_adam+", "am_adam+nova"] {
            let problem = resolve(asked, &VOICES).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some("voice"), "{asked}");
            assert!(problem.to_string().contains("af_alloy, am_adam"));
        }
    }
}
