//! Images in the vision tower, one block per step, so that text generation continues; and the features of images whose
//! tokens are not computed yet.

use std::collections::BTreeMap;
use std::ops::Range;

use candle_core::{Result, bail};

use crate::networks::text::{Batch, ImageRows};
use crate::networks::vision::{ImageFeatures, TowerPass};
use crate::runtime::images::PromptImages;
use crate::runtime::kv_cache::ImageDigest;
use crate::runtime::model::Model;
use crate::runtime::scheduler::{Row, Scheduler, SequenceId};
use crate::runtime::sequence::Sequence;

#[derive(Default)]
pub struct Images {
    features: BTreeMap<ImageDigest, ImageFeatures>,
    pass: Option<(ImageDigest, TowerPass)>,
}

/// A pass failed: its image, and why.
pub struct FailedPass {
    pub digest: ImageDigest,
    pub error: candle_core::Error,
}

impl Images {
    /// Runs one block for the image that the oldest sequence needs next. Drops images that no prompt needs.
    pub fn advance(
        &mut self,
        model: &dyn Model,
        sequences: &BTreeMap<SequenceId, Sequence>,
        scheduler: &Scheduler,
    ) -> std::result::Result<(), FailedPass> {
        let seeing = sequences
            .iter()
            .filter(|(_, sequence)| !sequence.images().is_empty());
        // Sequences that wait begin anew when they are admitted.
        let unread = seeing.filter_map(|(id, sequence)| {
            let computed = scheduler.computed(*id)?;
            let mut images = sequence.images().iter();
            images.find(|image| image.tokens.end > computed)
        });
        let next: Vec<_> = unread.collect();
        let is_needed = |digest: &ImageDigest| next.iter().any(|it| it.image.digest() == *digest);
        self.features.retain(|digest, _| is_needed(digest));
        self.pass.take_if(|(digest, _)| !is_needed(digest));
        let mut missing = next
            .iter()
            .filter(|it| !self.features.contains_key(&it.image.digest()));
        let Some(image) = missing.next() else {
            return Ok(());
        };
        let (digest, mut pass) = match self.pass.take() {
            Some(begun) => begun,
            None => {
                let digest = image.image.digest();
                let pass = model.begin_image(image.image.processed());
                let pass = pass.map_err(|error| FailedPass { digest, error })?;
                (digest, pass)
            }
        };
        match model.advance_image(&mut pass) {
            Ok(Some(features)) => drop(self.features.insert(digest, features)),
            Ok(None) => self.pass = Some((digest, pass)),
            Err(error) => return Err(FailedPass { digest, error }),
        }
        Ok(())
    }

    /// Forgets all images: no prompt is being read.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The end of the prefill when these tokens are next: before an image without features, and not inside an image
    /// with bidirectional attention, which may be longer than a prefill chunk.
    pub fn readable(&self, images: &PromptImages, tokens: Range<usize>) -> usize {
        let missing = images.iter().find(|image| {
            image.tokens.end > tokens.start && !self.features.contains_key(&image.image.digest())
        });
        let end = missing.map_or(usize::MAX, |image| image.tokens.start);
        let end = end.min(tokens.end);
        let mut cut = images.iter().filter(|image| image.image.is_whole());
        let cut = cut.find(|image| (image.tokens.start + 1..image.tokens.end).contains(&end));
        match cut {
            None => end,
            Some(image) if image.tokens.start > tokens.start => image.tokens.start,
            Some(image) => image.tokens.end,
        }
    }

    /// Adds the image features of a row, whose tokens start at `first` in the batch.
    pub fn add_rows(
        &self,
        batch: &mut Batch,
        first: usize,
        row: &Row,
        images: &PromptImages,
    ) -> Result<()> {
        for image in images {
            let mut rows = 0;
            for run in &image.runs {
                let start = run.start.max(row.tokens.start);
                let end = run.end.min(row.tokens.end);
                if start < end {
                    let Some(features) = self.features.get(&image.image.digest()) else {
                        bail!("a prompt is read before its image");
                    };
                    batch.images.push(ImageRows {
                        first: first + start - row.tokens.start,
                        features: features.part(rows + start - run.start, end - start)?,
                    });
                }
                rows += run.len();
            }
        }
        Ok(())
    }
}
