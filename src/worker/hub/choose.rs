//! Which files of a repository make a model: pure.

use super::{
    error::HubError,
    source::{FilePath, Repository},
};

/// Supported files next to safetensors.
const COMPANIONS: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "model.safetensors.index.json",
];

const IMAGE_INDEX: &str = "model_index.json";

/// Supported folders of an image model, and the names of their weights.
const COMPONENTS: [(&str, Option<&str>); 7] = [
    ("scheduler", None),
    ("text_encoder", Some("model")),
    ("text_encoder_2", Some("model")),
    ("tokenizer", None),
    ("tokenizer_2", None),
    ("unet", Some("diffusion_pytorch_model")),
    ("vae", Some("diffusion_pytorch_model")),
];

/// Supported files next to a component's weights.
const COMPONENT_FILES: &[&str] = &[
    "config.json",
    "scheduler_config.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
];

/// The requested file, by its path or by a part of its name such as the quantization; or the files of the repository's
/// only model.
pub fn choose(
    repository: &Repository,
    listing: &[FilePath],
    wanted: Option<&str>,
) -> Result<Vec<FilePath>, HubError> {
    let Some(wanted) = wanted else {
        return whole(repository, listing);
    };
    let weights = || listing.iter().filter(|file| file.is_weights());
    named(repository, listing, wanted)?.ok_or_else(|| which(repository, weights()))
}

/// The file with this path or this part in its name, and its companions. `None` if no file matches.
pub fn named(
    repository: &Repository,
    listing: &[FilePath],
    wanted: &str,
) -> Result<Option<Vec<FilePath>>, HubError> {
    if let Some(file) = listing.iter().find(|file| file.as_str() == wanted) {
        let is_bare = file.is_weights() && !file.is_gguf();
        let companions = listing.iter().filter(|file| is_bare && is_companion(file));
        return Ok(Some(companions.chain([file]).cloned().collect()));
    }
    let wanted = wanted.to_lowercase();
    let matches = |file: &&FilePath| file.as_str().to_lowercase().contains(&wanted);
    let found: Vec<&FilePath> = ggufs(listing).filter(matches).collect();
    match found.as_slice() {
        [file] => Ok(Some(vec![(*file).clone()])),
        [] => Ok(None),
        several => Err(which(repository, several.iter().copied())),
    }
}

fn whole(repository: &Repository, listing: &[FilePath]) -> Result<Vec<FilePath>, HubError> {
    let has = |name: &str| listing.iter().any(|file| file.as_str() == name);
    if has(IMAGE_INDEX)
        && let Some(files) = components(listing)
    {
        return Ok(files);
    }
    let weights: Vec<&FilePath> = listing.iter().filter(|file| is_model(file)).collect();
    if !weights.is_empty() && has("config.json") && has("tokenizer.json") {
        let companions = listing.iter().filter(|file| is_companion(file));
        return Ok(companions.chain(weights).cloned().collect());
    }
    let ggufs: Vec<&FilePath> = ggufs(listing).collect();
    match ggufs.as_slice() {
        [file] => Ok(vec![(*file).clone()]),
        [] => Err(HubError::NothingUsable {
            repository: repository.clone(),
        }),
        several => Err(which(repository, several.iter().copied())),
    }
}

/// The files of an image model, as diffusers keeps it: the index, the settings of each component, and the smaller
/// of two forms of the same weights. `None` where a network has no weights.
fn components(listing: &[FilePath]) -> Option<Vec<FilePath>> {
    let find = |path: &str| listing.iter().find(|file| file.as_str() == path).cloned();
    let mut files = vec![find(IMAGE_INDEX)?];
    for (folder, stem) in COMPONENTS {
        let read = |name: &str| find(&format!("{folder}/{name}"));
        let beside: Vec<FilePath> = COMPONENT_FILES
            .iter()
            .filter_map(|name| read(name))
            .collect();
        if let Some(stem) = stem.filter(|_| !beside.is_empty()) {
            let forms = [".fp16", ""].map(|form| format!("{folder}/{stem}{form}.safetensors"));
            files.push(forms.iter().find_map(|path| find(path))?);
        }
        files.extend(beside);
    }
    Some(files)
}

fn ggufs(listing: &[FilePath]) -> impl Iterator<Item = &FilePath> {
    listing.iter().filter(|file| file.is_gguf())
}

fn is_companion(file: &FilePath) -> bool {
    COMPANIONS.contains(&file.as_str())
}

/// `model.safetensors` or `model-00001-of-00002.safetensors`; other names are the same weights in another form.
fn is_model(file: &FilePath) -> bool {
    let path = file.as_str();
    file.is_weights() && !file.is_gguf() && path.starts_with("model") && !path.contains('/')
}

fn which<'a>(repository: &Repository, files: impl Iterator<Item = &'a FilePath>) -> HubError {
    let files: Vec<String> = files.map(ToString::to_string).collect();
    match files.is_empty() {
        true => HubError::NothingUsable {
            repository: repository.clone(),
        },
        false => HubError::WhichFile {
            repository: repository.clone(),
            files,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names chosen of these, or the message.
    fn check(files: &[&str], wanted: Option<&str>, expected: Result<&[&str], &str>) {
        let listing: Vec<FilePath> = files.iter().map(|file| file.parse().unwrap()).collect();
        let repository = "org/name".parse().unwrap();
        match (choose(&repository, &listing, wanted), expected) {
            (Ok(found), Ok(expected)) => {
                let found: Vec<&str> = found.iter().map(FilePath::as_str).collect();
                assert_eq!(found, expected);
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("found {found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn the_only_model_of_a_repository_needs_no_name() {
        check(&["README.txt", "a-q8_0.gguf"], None, Ok(&["a-q8_0.gguf"]));
        check(
            &[
                "config.json",
                "consolidated.safetensors",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
                "onnx/config.json",
                "tokenizer.json",
            ],
            None,
            Ok(&[
                "config.json",
                "tokenizer.json",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
            ]),
        );
    }

    #[test]
    fn one_of_several_is_named_by_its_quantization_or_its_path() {
        let files = ["a-Q4_K_M.gguf", "a-Q8_0.gguf"];
        check(
            &files,
            None,
            Err("org/name has several models: a-Q4_K_M.gguf, a-Q8_0.gguf; choose one"),
        );
        check(&files, Some("q4_k_m"), Ok(&["a-Q4_K_M.gguf"]));
        check(&files, Some("a-Q8_0.gguf"), Ok(&["a-Q8_0.gguf"]));
        check(&files, Some("q"), Err("choose one"));
        check(&files, Some("q5"), Err("has several models: a-Q4_K_M.gguf"));
    }

    #[test]
    fn an_image_model_is_its_index_and_its_components() {
        let files = [
            "model_index.json",
            "safety_checker/config.json",
            "safety_checker/model.safetensors",
            "sd_xl_base_1.0.safetensors",
            "scheduler/scheduler_config.json",
            "text_encoder/config.json",
            "text_encoder/model.safetensors",
            "tokenizer/merges.txt",
            "tokenizer/vocab.json",
            "unet/config.json",
            "unet/diffusion_pytorch_model.fp16.safetensors",
            "unet/diffusion_pytorch_model.safetensors",
            "vae/config.json",
            "vae/diffusion_pytorch_model.safetensors",
        ];
        let expected = [
            "model_index.json",
            "scheduler/scheduler_config.json",
            "text_encoder/model.safetensors",
            "text_encoder/config.json",
            "tokenizer/vocab.json",
            "tokenizer/merges.txt",
            "unet/diffusion_pytorch_model.fp16.safetensors",
            "unet/config.json",
            "vae/diffusion_pytorch_model.safetensors",
            "vae/config.json",
        ];
        check(&files, None, Ok(&expected));
        check(&files[..13], None, Err("has no supported files"));
    }

    #[test]
    fn a_repository_without_a_model_is_refused() {
        check(&["config.json"], None, Err("has no supported files"));
        check(
            &["config.json"],
            Some("q8_0"),
            Err("has no supported files"),
        );
        check(&["model.safetensors"], None, Err("has no supported files"));
    }
}
