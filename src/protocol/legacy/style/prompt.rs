//! What a style makes of a prompt: its template with the client's words in it.

use crate::protocol::legacy::error::{Code, Refusal};

use super::{MOST_MODELS, MOST_TAGS};

/// Between what should be seen and what should not.
const NEGATIVE: &str = "###";

pub const IMAGE_TEMPLATE: &str = "{p}{np}";
pub const IMAGE_VARIABLES: [&str; 2] = ["{p}", "{np}"];
pub const TEXT_TEMPLATE: &str = "{p}";
pub const TEXT_VARIABLES: [&str; 1] = ["{p}"];

/// The prompt of an image. A template that has no place for what should not be seen gets one at `{np}`.
pub fn image(template: &str, prompt: &str) -> String {
    let (wanted, unwanted) = prompt.split_once(NEGATIVE).unwrap_or((prompt, ""));
    let unwanted = match template.contains(NEGATIVE) || unwanted.is_empty() {
        true => unwanted.to_owned(),
        false => format!("{NEGATIVE}{unwanted}"),
    };
    fill(template, |variable| match variable {
        "p" => Some(wanted.to_owned()),
        "np" => Some(unwanted.clone()),
        _ => None,
    })
}

/// The prompt of a text. Variables nobody fills become nothing.
pub fn text(template: &str, prompt: &str) -> String {
    fill(template, |variable| match variable {
        "p" => Some(prompt.to_owned()),
        word if is_word(word) => Some(String::new()),
        _ => None,
    })
}

/// Replaces what stands in braces, once: what was put in is not looked into. `None` leaves the braces as they are.
fn fill(template: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let (before, from_brace) = rest.split_at(open);
        filled.push_str(before);
        let inside = &from_brace[1..];
        let found = inside
            .find(['{', '}'])
            .filter(|end| inside[*end..].starts_with('}'))
            .and_then(|end| Some((value(&inside[..end])?, &inside[end + 1..])));
        match found {
            Some((value, after)) => {
                filled.push_str(&value);
                rest = after;
            }
            None => {
                filled.push('{');
                rest = inside;
            }
        }
    }
    filled.push_str(rest);
    filled
}

fn is_word(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|letter| letter.is_alphanumeric() || letter == '_')
}

pub fn check_template(template: &str, variables: &[&str]) -> Result<(), Refusal> {
    match variables.iter().all(|variable| template.contains(variable)) {
        true => Ok(()),
        false => Err(Code::StylePromptMissingVars.into()),
    }
}

pub fn check_lists(models: Option<&[String]>, tags: Option<&[String]>) -> Result<(), Refusal> {
    if let Some(models) = models.filter(|models| models.is_empty() || models.len() > MOST_MODELS) {
        let message = format!("found {} models, wanted 1 to {MOST_MODELS}", models.len());
        return Err(Refusal::new(Code::BadRequest, message));
    }
    if let Some(tags) = tags.filter(|tags| tags.len() > MOST_TAGS) {
        let message = format!("found {} tags, wanted at most {MOST_TAGS}", tags.len());
        return Err(Refusal::new(Code::BadRequest, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{image, text};

    #[test]
    fn an_image_style_has_a_place_for_both_parts() {
        let check =
            |template, prompt, expected: &str| assert_eq!(image(template, prompt), expected);
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
        assert_eq!(image("{p}|{np}", "{np}###{p}"), "{np}|###{p}");
        assert_eq!(text("<{p}>", "{p}{x}"), "<{p}{x}>");
    }

    #[test]
    fn a_text_style_loses_what_nobody_fills() {
        assert_eq!(
            text("{system}Q: {p}\nA:{x} {not a word}", "why?"),
            "Q: why?\nA: {not a word}"
        );
        assert_eq!(text("{p", "x"), "{p");
    }
}
