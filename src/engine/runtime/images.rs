//! Images in prompts: what a model takes of one, where its tokens stand, and how positions go on after them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Failure;
use super::kv_cache::{ImageDigest, ImageSpan};
use crate::networks::text::AxisPositions;
use crate::networks::vision::{ImageGrid, ImageProcessor, ProcessedImage};

/// How a model takes images.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageInput {
    processor: ImageProcessor,
    /// What its template writes for an image: one such token.
    token: u32,
}

/// How closely an image is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageDetail {
    /// As the model's processor does it.
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
    pub tokens: Range<usize>,
    pub image: ChatImage,
}

impl ImageInput {
    pub fn new(processor: ImageProcessor, token: u32) -> Self {
        Self { processor, token }
    }

    /// As the published models of Qwen3-VL take them.
    pub fn published(token: u32) -> Self {
        Self::new(ImageProcessor::published(), token)
    }

    fn processor(&self, detail: ImageDetail) -> ImageProcessor {
        match detail {
            ImageDetail::Full => self.processor.clone(),
            ImageDetail::Low => self.processor.within(LOW_PIXELS),
        }
    }

    /// How many tokens an image of this width and height becomes.
    pub fn tokens(&self, size: [usize; 2], detail: ImageDetail) -> Result<usize, Failure> {
        let grid = self.processor(detail).grid(size);
        let grid = grid.map_err(|error| Failure::BadRequest(error.to_string()))?;
        Ok(grid.tokens())
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
        hash.update((image.width as u64).to_le_bytes());
        hash.update(&image.bytes);
        Ok(ChatImage {
            image: Arc::new(image),
            digest: ImageDigest(hash.finalize().into()),
        })
    }

    /// Puts as many tokens as each image has in the place of its one token.
    pub fn expand(
        &self,
        prompt: Vec<u32>,
        images: &[ChatImage],
    ) -> Result<(Vec<u32>, PromptImages), Failure> {
        let places = prompt.iter().filter(|&&token| token == self.token).count();
        if places != images.len() {
            let message = format!(
                "the rendered chat has {places} places for {} images; texts beside images must not contain the model's \
                 image token",
                images.len()
            );
            return Err(Failure::BadRequest(message));
        }
        if prompt.last() == Some(&self.token) {
            let message = "the model's chat template ends with an image".to_owned();
            return Err(Failure::BrokenTemplate(message));
        }
        let mut expanded = Vec::with_capacity(prompt.len());
        let mut placed = Vec::with_capacity(images.len());
        let mut images = images.iter();
        for token in prompt {
            let image = images.as_slice().first().filter(|_| token == self.token);
            let Some(image) = image else {
                expanded.push(token);
                continue;
            };
            images.next();
            let first = expanded.len();
            expanded.resize(first + image.image.grid.tokens(), token);
            placed.push(PromptImage {
                tokens: first..expanded.len(),
                image: image.clone(),
            });
        }
        Ok((expanded, PromptImages(placed)))
    }
}

impl ChatImage {
    pub fn grid(&self) -> ImageGrid {
        self.image.grid
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
        let ProcessedImage { width, height, .. } = *self.image;
        write!(f, "ChatImage({width}x{height})")
    }
}

impl PromptImages {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, PromptImage> {
        self.0.iter()
    }

    /// What pages with their tokens are named by.
    pub fn spans(&self) -> Arc<[ImageSpan]> {
        let span = |image: &PromptImage| ImageSpan {
            tokens: image.tokens.clone(),
            digest: image.image.digest(),
        };
        self.0.iter().map(span).collect()
    }

    /// The position of a token: rows and columns of an image count from where it begins, and text goes on after the
    /// largest of them.
    pub fn position(&self, token: usize) -> AxisPositions {
        let mut skipped = 0;
        for image in &self.0 {
            if token < image.tokens.start {
                break;
            }
            let ImageGrid { rows, columns } = image.image.grid();
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
    use super::{Failure, ImageDetail, ImageInput};
    use crate::networks::vision::golden;

    fn input() -> ImageInput {
        let network = golden::open();
        let token = network.config()["image_token_id"].as_u64().unwrap() as u32;
        ImageInput::new(golden::tower(&network).processor().clone(), token)
    }

    /// Prompt and positions as the reference has them.
    #[test]
    fn prompts_are_expanded_and_positioned_as_the_reference_does_it() {
        use crate::networks::text::golden::Golden;
        let golden = Golden::open("qwen3-vl");
        let wanted = golden.tokens("both.prompt");
        let axes = golden.tokens("both.positions");
        let input = input();
        let mut short = wanted.clone();
        short.dedup_by(|next, last| next == last && *next == input.token);
        let images = golden::PICTURES
            .map(|size| input.process(&golden::image(size), size, ImageDetail::Full));
        let images = images.map(Result::unwrap);
        let (found, images) = input.expand(short, &images).unwrap();
        assert_eq!(found, wanted);
        let count = wanted.len();
        for token in 0..count {
            let wanted = [axes[token], axes[count + token], axes[2 * count + token]];
            assert_eq!(images.position(token), wanted, "token {token}");
        }
        let last = images.position(count - 1)[0];
        assert_eq!(images.position(count + 7), [last + 8; 3]);
    }

    #[test]
    fn an_image_token_in_a_text_is_refused_beside_images_alone() {
        let input = input();
        let size = golden::PICTURES[0];
        let image = input
            .process(&golden::image(size), size, ImageDetail::Full)
            .unwrap();
        let refused = input.expand(
            vec![1, input.token, input.token, 2],
            std::slice::from_ref(&image),
        );
        assert!(
            matches!(refused, Err(Failure::BadRequest(_))),
            "{refused:?}"
        );
        let refused = input.expand(vec![1, input.token], &[image]);
        assert!(
            matches!(refused, Err(Failure::BrokenTemplate(_))),
            "{refused:?}"
        );
        assert!(input.process(&[0; 5], [1, 2], ImageDetail::Full).is_err());
    }

    #[test]
    fn digests_tell_images_apart() {
        let input = input();
        let [one, other] = golden::PICTURES;
        let digest = |size| {
            input
                .process(&golden::image(size), size, ImageDetail::Full)
                .unwrap()
                .digest()
        };
        assert_eq!(digest(one), digest(one));
        assert_ne!(digest(one), digest(other));
    }
}
