//! Images in prompts: preprocessing, token positions, and rope positions after an image.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::kv_cache::{ImageDigest, ImageSpan};
use super::text::Language;
use super::{Chat, Failure, Prompt};
use crate::networks::text::AxisPositions;
use crate::networks::vision::{ImageGrid, ImagePart, ImageProcessor, ProcessedImage};

/// How a model takes images.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageInput {
    processor: ImageProcessor,
    /// The placeholder that the chat template writes for an image.
    mark: String,
    /// The token that is replaced by image features, and its text.
    row: (u32, String),
}

/// The texts that take the places of images in a rendered chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageTexts {
    pub mark: String,
    /// Per image.
    pub texts: Vec<String>,
}

/// The resolution at which an image is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageDetail {
    /// The model's default.
    Full,
    /// At most 512 by 512 pixels.
    Low,
}

/// Pixels of an image in low detail.
const LOW_PIXELS: usize = 512 * 512;

/// An image as a model takes it.
#[derive(Clone)]
pub struct ChatImage {
    image: Arc<ProcessedImage>,
    digest: ImageDigest,
}

/// The images of a prompt, in the order of their tokens.
#[derive(Debug, Clone, Default)]
pub struct PromptImages(Vec<PromptImage>);

#[derive(Debug, Clone)]
pub struct PromptImage {
    /// All tokens from its first row to its last.
    pub tokens: Range<usize>,
    /// Ranges of its rows, separated by text tokens.
    pub runs: Vec<Range<usize>>,
    pub image: ChatImage,
}

impl ImageInput {
    /// `names` are the texts of the template's image placeholder and of the token that features replace.
    pub fn new(processor: ImageProcessor, row: u32, names: [String; 2]) -> Self {
        let [mark, name] = names;
        Self {
            processor,
            mark,
            row: (row, name),
        }
    }

    /// The processor of the published models of Qwen3-VL.
    pub fn published(token: u32) -> Self {
        let name = "<|image_pad|>".to_owned();
        Self::new(ImageProcessor::published(), token, [name.clone(), name])
    }

    fn processor(&self, detail: ImageDetail) -> ImageProcessor {
        match detail {
            ImageDetail::Full => self.processor.clone(),
            ImageDetail::Low => self.processor.within(LOW_PIXELS),
        }
    }

    /// Number of feature tokens of an image of this width and height, without text tokens between its rows.
    pub fn tokens(&self, size: [usize; 2], detail: ImageDetail) -> Result<usize, Failure> {
        let rows = self.processor(detail).rows(size);
        rows.map_err(|error| Failure::BadRequest(error.to_string()))
    }

    /// Resizes an image of RGB bytes, rows from the top.
    pub fn process(
        &self,
        bytes: &[u8],
        size: [usize; 2],
        detail: ImageDetail,
    ) -> Result<ChatImage, Failure> {
        if Some(bytes.len())
            != size[0]
                .checked_mul(size[1])
                .and_then(|it| it.checked_mul(3))
        {
            let found = bytes.len();
            let message = format!("{found} bytes are no RGB image of {}x{}", size[0], size[1]);
            return Err(Failure::BadRequest(message));
        }
        let image = self.processor(detail).process(bytes, size);
        let image = image.map_err(|error| Failure::BadRequest(error.to_string()))?;
        let mut hash = Sha256::new();
        for tile in &image.tiles {
            hash.update((tile.width as u64).to_le_bytes());
            hash.update(&tile.bytes);
        }
        Ok(ChatImage {
            image: Arc::new(image),
            digest: ImageDigest(hash.finalize().into()),
        })
    }

    /// The tokens of a prompt, and the positions of its images. `prefix` is as in [`Language::read`].
    pub fn read(
        &self,
        language: &Language,
        prompt: &Prompt,
        prefix: bool,
    ) -> Result<(Vec<u32>, PromptImages), Failure> {
        let Prompt::Chat(chat) = prompt else {
            return Ok((language.read(prompt, prefix)?, PromptImages::default()));
        };
        let texts = ImageTexts {
            mark: self.mark.clone(),
            texts: chat.images.iter().map(|it| self.text_of(it)).collect(),
        };
        let written = Chat {
            image_texts: Some(texts),
            ..chat.clone()
        };
        let tokens = language.read(&Prompt::Chat(written), prefix)?;
        let images = self.placed(&tokens, &chat.images)?;
        Ok((tokens, images))
    }

    /// The text that replaces an image's placeholder in a prompt.
    fn text_of(&self, image: &ChatImage) -> String {
        let parts = image.image.parts.iter().map(|part| match part {
            ImagePart::Text(text) => text.clone(),
            ImagePart::Rows(rows) => self.row.1.repeat(*rows),
        });
        parts.collect()
    }

    /// Finds the rows of the images.
    fn placed(&self, tokens: &[u32], images: &[ChatImage]) -> Result<PromptImages, Failure> {
        let is_row = |at: &usize| tokens[*at] == self.row.0;
        let mut rows = (0..tokens.len()).filter(is_row);
        let mut placed = Vec::with_capacity(images.len());
        for image in images {
            let mut runs = Vec::new();
            for part in &image.image.parts {
                let ImagePart::Rows(count) = part else {
                    continue;
                };
                let run: Vec<usize> = rows.by_ref().take(*count).collect();
                let (Some(first), Some(last)) = (run.first(), run.last()) else {
                    return Err(misplaced());
                };
                if last + 1 - first != *count {
                    return Err(misplaced());
                }
                runs.push(*first..last + 1);
            }
            let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
                return Err(misplaced());
            };
            placed.push(PromptImage {
                tokens: first.start..last.end,
                runs,
                image: image.clone(),
            });
        }
        if rows.next().is_some() {
            return Err(misplaced());
        }
        if tokens.last() == Some(&self.row.0) {
            let message = "the model's chat template ends with an image".to_owned();
            return Err(Failure::BrokenTemplate(message));
        }
        Ok(PromptImages(placed))
    }
}

fn misplaced() -> Failure {
    let message = "texts beside images must not contain the model's image tokens";
    Failure::BadRequest(message.to_owned())
}

impl ImageTexts {
    /// A rendered chat with the texts in the places of its images.
    pub fn put_into(&self, rendered: &str) -> Result<String, Failure> {
        let pieces = rendered.split(self.mark.as_str());
        let places = pieces.clone().count() - 1;
        if places != self.texts.len() {
            let message = format!(
                "the rendered chat has {places} places for {} images; texts beside images must not contain the model's \
                 image token",
                self.texts.len()
            );
            return Err(Failure::BadRequest(message));
        }
        let texts = std::iter::once("").chain(self.texts.iter().map(String::as_str));
        Ok(texts
            .zip(pieces)
            .flat_map(|(text, piece)| [text, piece])
            .collect())
    }
}

impl ChatImage {
    /// Whether its tokens see each other, so that they are read in one step.
    pub fn is_whole(&self) -> bool {
        self.image.is_whole
    }

    /// Number of tokens that features replace.
    pub fn rows(&self) -> usize {
        self.image.rows()
    }

    pub fn digest(&self) -> ImageDigest {
        self.digest
    }

    pub fn processed(&self) -> &ProcessedImage {
        &self.image
    }
}

impl fmt::Debug for ChatImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self
            .image
            .tiles
            .iter()
            .map(|tile| [tile.width, tile.height]);
        write!(f, "ChatImage({:?})", sizes.collect::<Vec<_>>())
    }
}

impl PromptImages {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether tokens have positions by rows and columns.
    pub fn has_axes(&self) -> bool {
        self.0.iter().any(|image| image.image.image.axes.is_some())
    }

    pub fn iter(&self) -> std::slice::Iter<'_, PromptImage> {
        self.0.iter()
    }

    /// The spans that are part of the names of pages.
    pub fn spans(&self) -> Arc<[ImageSpan]> {
        let span = |image: &PromptImage| ImageSpan {
            tokens: image.tokens.clone(),
            digest: image.image.digest(),
        };
        self.0.iter().map(span).collect()
    }

    /// The rope position of a token: rows and columns of an image count from its start, and text continues after the
    /// largest of them.
    pub fn position(&self, token: usize) -> AxisPositions {
        let mut skipped = 0;
        for image in &self.0 {
            if token < image.tokens.start {
                break;
            }
            let Some(ImageGrid { rows, columns }) = image.image.image.axes else {
                continue;
            };
            if token < image.tokens.end {
                let first = image.tokens.start - skipped;
                let at = token - image.tokens.start;
                return [first, first + at / columns, first + at % columns].map(|at| at as u32);
            }
            skipped += image.tokens.len() - rows.max(columns);
        }
        [(token - skipped) as u32; 3]
    }
}

impl<'a> IntoIterator for &'a PromptImages {
    type Item = &'a PromptImage;
    type IntoIter = std::slice::Iter<'a, PromptImage>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Chat, ChatImage, Failure, ImageDetail, ImageInput, Language, Prompt};
    use crate::networks::golden::fixtures;
    use crate::networks::text::golden::Golden;
    use crate::networks::vision::golden::{self, FOLDERS, PICTURES, image};
    use crate::runtime::text::TextSource;

    fn language(folder: &str) -> Language {
        let folder = fixtures().join("golden").join(folder);
        let source = TextSource {
            folder: Some(&folder),
            ..TextSource::default()
        };
        Language::open(source).unwrap()
    }

    fn input(folder: &str) -> ImageInput {
        let vision = golden::vision(folder);
        let tokens = vision.tokens;
        let names = language(folder).names(&[tokens.mark, tokens.row]).unwrap();
        ImageInput::new(vision.processor, tokens.row, names.try_into().unwrap())
    }

    fn picture(input: &ImageInput, size: [usize; 2]) -> ChatImage {
        input
            .process(&image(size), size, ImageDetail::Full)
            .unwrap()
    }

    fn chat(content: Value, images: Vec<ChatImage>) -> Prompt {
        Prompt::Chat(Chat {
            messages: vec![json!({"role": "user", "content": content})],
            images,
            ..Chat::default()
        })
    }

    /// Prompts and positions as the reference has them.
    #[test]
    fn prompts_are_expanded_and_positioned_as_the_reference_does_it() {
        for folder in FOLDERS {
            let (golden, input) = (Golden::open(folder), input(folder));
            for (name, pictures) in golden::prompts(folder) {
                let wanted = golden.tokens(&format!("{name}.prompt"));
                let images = pictures.iter().map(|&at| picture(&input, PICTURES[at]));
                let prompt = chat(golden::content(pictures.len()), images.collect());
                let (found, images) = input.read(&language(folder), &prompt, false).unwrap();
                assert_eq!(found, wanted, "{folder} {name}");
                if !golden.has(&format!("{name}.positions")) {
                    assert!(!images.has_axes());
                    continue;
                }
                let axes = golden.tokens(&format!("{name}.positions"));
                let count = wanted.len();
                for token in 0..count {
                    let wanted = [axes[token], axes[count + token], axes[2 * count + token]];
                    assert_eq!(images.position(token), wanted, "token {token}");
                }
                let last = images.position(count - 1)[0];
                assert_eq!(images.position(count + 7), [last + 8; 3]);
            }
        }
    }

    #[test]
    fn an_image_token_in_a_text_is_refused_beside_images_alone() {
        for folder in FOLDERS {
            let (language, input) = (language(folder), input(folder));
            let one = picture(&input, PICTURES[0]);
            for text in [&input.mark, &input.row.1] {
                let content = json!([{"type": "text", "text": text}, {"type": "image"}]);
                let beside = chat(content, vec![one.clone()]);
                let refused = input.read(&language, &beside, false);
                assert!(
                    matches!(refused, Err(Failure::BadRequest(_))),
                    "{refused:?}"
                );
            }
            let tokens = [1, input.row.0];
            let none = input.placed(&tokens[..1], std::slice::from_ref(&one));
            assert!(matches!(none, Err(Failure::BadRequest(_))), "{none:?}");
            let last = vec![input.row.0; one.rows()];
            let refused = input.placed(&last, &[one]);
            assert!(refused.is_err(), "{refused:?}");
            assert!(input.process(&[0; 5], [1, 2], ImageDetail::Full).is_err());
        }
    }

    #[test]
    fn digests_tell_images_apart() {
        for folder in FOLDERS {
            let input = input(folder);
            let [one, other, _] = PICTURES;
            let digest = |size| picture(&input, size).digest();
            assert_eq!(digest(one), digest(one));
            assert_ne!(digest(one), digest(other));
        }
    }
}
