//! What an image job asks for: one image. Whatever the client left unset is `None`.
//!
//! It holds every setting that more than one kind of worker takes. Settings of polling workers alone stand in the
//! job's [`super::Original`], in their own words.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageRequest {
    pub prompt: String,
    /// What should not be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub negative_prompt: Option<String>,
    pub width: u32,
    pub height: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// How closely it follows the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cfg_scale: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub karras: Option<bool>,
    /// A noise schedule that `karras` cannot express, as the poll API names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_skip: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loras: Vec<Lora>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inversions: Vec<TextualInversion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceImage>,
    /// How much of the source is drawn anew, up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// Fits to itself at opposite edges.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tiling: bool,
    /// Drawn smaller first where it is larger than the model's own size.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hires_fix: bool,
    /// How much of the enlarged image `hires_fix` draws anew, up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hires_strength: Option<f64>,
    /// Which of the request's images with this seed.
    pub index: u32,
    /// Previews that the client wants at most.
    #[serde(skip_serializing_if = "is_zero")]
    pub previews: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lora {
    pub name: String,
    pub model: f64,
    pub clip: f64,
    pub is_version: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject_trigger: Option<String>,
}

/// A textual inversion that the client lists beside its prompts. Prompts name others as `embedding:NAME`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextualInversion {
    pub name: String,
    /// How much it counts where the worker adds it to a prompt.
    pub strength: f64,
    /// The prompt that the worker adds it to; none where a prompt names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptSide>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptSide {
    Shown,
    Excluded,
}

/// In a prompt, before the name of a textual inversion.
const INVERSION: &str = "embedding:";

/// The textual inversions that a prompt names, as far as their names end at a space, a comma or a bracket.
pub fn named_inversions(prompt: &str) -> impl Iterator<Item = &str> {
    let places = prompt.match_indices(INVERSION);
    places.filter_map(|(at, _)| {
        let before = prompt[..at].chars().next_back();
        let is_start = before.is_none_or(|it| it.is_whitespace() || matches!(it, '(' | ')'));
        let rest = &prompt[at + INVERSION.len()..];
        let ends = |it: char| it.is_whitespace() || matches!(it, ',' | ':' | '(' | ')');
        let name = &rest[..rest.find(ends).unwrap_or(rest.len())];
        (is_start && !name.is_empty()).then_some(name)
    })
}

/// The images it begins with, by their keys in the media store; on the link to a worker, by signed links.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceImage {
    pub image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
    /// Further ones, and what each weighs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<(String, f64)>,
}

#[cfg(test)]
mod tests {
    use super::named_inversions;

    #[test]
    fn prompts_name_textual_inversions() {
        let check = |prompt: &str, expected: &[&str]| {
            let found: Vec<_> = named_inversions(prompt).collect();
            assert_eq!(found, expected, "{prompt}");
        };
        check("a cat", &[]);
        check("embedding: a", &[]);
        check("disembedding:x", &[]);
        check(
            "embedding:owl, (embedding:fox-2:1.2)\nembedding:a.b",
            &["owl", "fox-2", "a.b"],
        );
    }
}
