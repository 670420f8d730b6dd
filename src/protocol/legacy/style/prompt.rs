//! Applies a style's template to the client's prompt.

use crate::job::NEGATIVE;
use crate::legacy::error::{Code, Refusal};
use crate::legacy::image::check::LONGEST_PROMPT as LONGEST_IMAGE_PROMPT;
use crate::legacy::text::check::LONGEST_PROMPT as LONGEST_TEXT_PROMPT;

use super::{MOST_MODELS, MOST_TAGS};

pub const IMAGE_TEMPLATE: &str = "{p}{np}";
pub const IMAGE_VARIABLES: [&str; 2] = ["{p}", "{np}"];
pub const TEXT_TEMPLATE: &str = "{p}";
pub const TEXT_VARIABLES: [&str; 1] = ["{p}"];

/// A template may name its variables so often, all together.
const MOST_PLACES: usize = 16;

/// The prompt of an image. A template without a negative prompt gets the client's at `{np}`.
pub fn image(template: &str, prompt: &str) -> Result<String, Refusal> {
    let (wanted, unwanted) = prompt.split_once(NEGATIVE).unwrap_or((prompt, ""));
    let unwanted = match template.contains(NEGATIVE) || unwanted.is_empty() {
        true => unwanted.to_owned(),
        false => format!("{NEGATIVE}{unwanted}"),
    };
    let parts = filled(template, |variable| match variable {
        "p" => Some(wanted),
        "np" => Some(unwanted.as_str()),
        _ => None,
    });
    joined(&parts, LONGEST_IMAGE_PROMPT)
}

/// The prompt of a text. Variables without a value become empty.
pub fn text(template: &str, prompt: &str) -> Result<String, Refusal> {
    let parts = filled(template, |variable| match variable {
        "p" => Some(prompt),
        word if is_word(word) => Some(""),
        _ => None,
    });
    joined(&parts, LONGEST_TEXT_PROMPT)
}

/// Parts of the template with variables replaced, once: inserted text is not searched again. `None` leaves the braces
/// unchanged.
fn filled<'a>(template: &'a str, value: impl Fn(&str) -> Option<&'a str>) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let (before, from_brace) = rest.split_at(open);
        parts.push(before);
        let (brace, inside) = from_brace.split_at(1);
        let found = inside
            .find(['{', '}'])
            .filter(|end| inside[*end..].starts_with('}'))
            .and_then(|end| Some((value(&inside[..end])?, &inside[end + 1..])));
        let (part, after) = found.unwrap_or((brace, inside));
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// Joins the parts, up to `most` bytes: a short request may name a style that repeats its prompt.
fn joined(parts: &[&str], most: usize) -> Result<String, Refusal> {
    let length = parts.iter().map(|part| part.len());
    let length = length.fold(0, usize::saturating_add);
    if length > most {
        let message =
            format!("the prompt with its style must have at most {most} bytes, found {length}");
        return Err(Refusal::new(Code::InvalidPromptSize, message));
    }
    Ok(parts.concat())
}

fn is_word(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|letter| letter.is_alphanumeric() || letter == '_')
}

pub fn check_template(template: &str, variables: &[&str]) -> Result<(), Refusal> {
    let places = |variable: &&str| template.matches(*variable).count();
    Code::StylePromptMissingVars.when(variables.iter().map(places).any(|places| places == 0))?;
    let places: usize = variables.iter().map(places).sum();
    if places > MOST_PLACES {
        let message = format!(
            "the style prompt must use its variables at most {MOST_PLACES} times, found {places}"
        );
        return Err(Refusal::new(Code::BadRequest, message));
    }
    Ok(())
}

pub fn check_lists(models: Option<&[String]>, tags: Option<&[String]>) -> Result<(), Refusal> {
    if let Some(models) = models.filter(|models| models.is_empty() || models.len() > MOST_MODELS) {
        let message = format!(
            "models must contain 1 to {MOST_MODELS} entries, found {}",
            models.len()
        );
        return Err(Refusal::new(Code::BadRequest, message));
    }
    if let Some(tags) = tags.filter(|tags| tags.len() > MOST_TAGS) {
        let message = format!(
            "tags must contain at most {MOST_TAGS} entries, found {}",
            tags.len()
        );
        return Err(Refusal::new(Code::BadRequest, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        IMAGE_VARIABLES, LONGEST_IMAGE_PROMPT, LONGEST_TEXT_PROMPT, MOST_PLACES, TEXT_VARIABLES,
        check_template, image, text,
    };
    use crate::legacy::{Code, Refusal};

    #[test]
    fn an_image_style_has_a_place_for_both_parts() {
        let check = |template, prompt, expected: &str| {
            assert_eq!(image(template, prompt).unwrap(), expected)
        };
        check("oil, {p}{np}", "a cat###a dog", "oil, a cat###a dog");
        check("oil, {p}{np}", "a cat", "oil, a cat");
        check(
            "{p}, oil###ugly, {np}",
            "a cat###a dog",
            "a cat, oil###ugly, a dog",
        );
        check("{p}, oil###ugly, {np}", "a cat", "a cat, oil###ugly, ");
        check("{p} {other} {np} { } {{p}}", "x", "x {other}  { } {x}");
    }

    #[test]
    fn what_a_client_writes_is_not_a_variable() {
        assert_eq!(image("{p}|{np}", "{np}###{p}").unwrap(), "{np}|###{p}");
        assert_eq!(text("<{p}>", "{p}{x}").unwrap(), "<{p}{x}>");
    }

    #[test]
    fn a_text_style_loses_what_nobody_fills() {
        assert_eq!(
            text("{system}Q: {p}\nA:{x} {not a word}", "why?").unwrap(),
            "Q: why?\nA: {not a word}"
        );
        assert_eq!(text("{p", "x").unwrap(), "{p");
    }

    fn code<T>(result: Result<T, Refusal>) -> Option<Code> {
        result.err().and_then(|refusal| refusal.code())
    }

    #[test]
    fn a_style_repeats_a_prompt_only_up_to_the_longest_there_is() {
        let all = "{p}".repeat(21_000);
        let check = |made: Result<String, Refusal>, most: usize, fits: bool| match fits {
            true => assert_eq!(made.unwrap().len(), most),
            false => assert_eq!(code(made), Some(Code::InvalidPromptSize)),
        };
        let (half, long) = ("x".repeat(LONGEST_IMAGE_PROMPT / 2), "x".repeat(4 << 20));
        check(image("{p}{p}{np}", &half), LONGEST_IMAGE_PROMPT, true);
        check(image("{p}{p}{np}.", &half), LONGEST_IMAGE_PROMPT, false);
        check(image(&all, &long), LONGEST_IMAGE_PROMPT, false);
        check(text("{p}", &long), LONGEST_TEXT_PROMPT, true);
        check(text("{p}.", &long), LONGEST_TEXT_PROMPT, false);
        check(text(&all, &long), LONGEST_TEXT_PROMPT, false);
    }

    #[test]
    fn a_template_names_its_variables_a_few_times() {
        let named = |times: usize| "{p}".repeat(times);
        let check = |template: &str, variables: &[&str], expected| {
            assert_eq!(code(check_template(template, variables)), expected);
        };
        check(&named(MOST_PLACES), &TEXT_VARIABLES, None);
        check(
            &named(MOST_PLACES + 1),
            &TEXT_VARIABLES,
            Some(Code::BadRequest),
        );
        let both = format!("{}{{np}}", named(MOST_PLACES));
        check(&both, &IMAGE_VARIABLES, Some(Code::BadRequest));
        check(
            &named(MOST_PLACES + 1),
            &IMAGE_VARIABLES,
            Some(Code::StylePromptMissingVars),
        );
    }
}
