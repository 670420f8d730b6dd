//! Models with vision, compared with transformers: prompts with and without images, whole, in chunks and batched.

use candle_core::Tensor;

use super::golden::{Golden, best, gap, load, one_sequence};
use super::{AxisPositions, Batch, Decoder, ImageRows};
use crate::networks::vision::{
    ImageFeatures, VisionFamily,
    golden::{self as vision, FOLDERS},
};
use candle_core::DType;
use muster_kernels::{KvDtype, PAGE_TOKENS, Span};

struct GoldenPrompt {
    tokens: Vec<u32>,
    /// Empty for a model without axes.
    positions: Vec<AxisPositions>,
    /// The rows of each image, and its features.
    images: Vec<(Vec<usize>, ImageFeatures)>,
    is_whole: bool,
}

fn decoder(folder: &str) -> Decoder {
    load(&format!("golden/{folder}"), Some(DType::F32))
}

fn prompts(folder: &str) -> Vec<(&'static str, GoldenPrompt)> {
    let golden = Golden::open(folder);
    let features = vision::features(folder);
    let row = vision::vision(folder).tokens.row;
    let is_whole = decoder(folder)
        .spec()
        .vision
        .is_some_and(VisionFamily::has_blocks);
    let read = |(name, pictures): (&'static str, &[usize])| {
        let tokens = golden.tokens(&format!("{name}.prompt"));
        let axes = format!("{name}.positions");
        let axes = golden.has(&axes).then(|| golden.tokens(&axes));
        let count = tokens.len();
        let positions = axes.iter().flat_map(|axes| {
            (0..count).map(|at| [axes[at], axes[count + at], axes[2 * count + at]])
        });
        let mut rows = (0..count).filter(|&at| tokens[at] == row);
        let images = pictures.iter().map(|&picture| {
            let features = features[picture].clone();
            let own = rows.by_ref().take(features.embeddings.dim(0).unwrap());
            (own.collect(), features)
        });
        let images = images.collect();
        assert_eq!(rows.next(), None, "{folder} {name}");
        let prompt = GoldenPrompt {
            positions: positions.collect(),
            images,
            is_whole,
            tokens,
        };
        (name, prompt)
    };
    vision::prompts(folder).into_iter().map(read).collect()
}

impl GoldenPrompt {
    /// The tokens of a range, with the parts of images in it, after `rows` others of the batch.
    fn add_to(&self, batch: &mut Batch, range: std::ops::Range<usize>, first_page: u32) {
        let before = batch.tokens.len();
        for (rows, features) in &self.images {
            for run in rows.chunk_by(|one, next| one + 1 == *next) {
                let own: Vec<usize> = run
                    .iter()
                    .copied()
                    .filter(|it| range.contains(it))
                    .collect();
                let Some(first) = own.first() else {
                    continue;
                };
                let at = rows.iter().position(|row| row == first).unwrap();
                batch.images.push(ImageRows {
                    first: before + first - range.start,
                    features: features.part(at, own.len()).unwrap(),
                });
            }
        }
        batch.tokens.extend(&self.tokens[range.clone()]);
        let positions = self.positions.iter().skip(range.start).take(range.len());
        batch.positions.extend(positions);
        let pages = range.end.div_ceil(PAGE_TOKENS) as u32;
        batch.spans.push(Span {
            new_tokens: range.len(),
            past_tokens: range.start,
            pages: (first_page..first_page + pages).collect(),
        });
        batch.states.push(first_page);
        let end = batch.tokens.len() as u32;
        batch.logit_rows.extend(before as u32..end);
    }

    /// The end of a chunk of about this size: not inside an image with bidirectional attention.
    fn end(&self, start: usize, size: usize) -> usize {
        let end = (start + size).min(self.tokens.len());
        let images = self.images.iter().filter(|_| self.is_whole);
        let spans = images.map(|(rows, _)| (rows[0], rows[rows.len() - 1] + 1));
        let cut = |(first, last): &(usize, usize)| *first < end && end < *last;
        spans.into_iter().find(cut).map_or(end, |(_, last)| last)
    }

    fn whole(&self) -> Batch {
        let mut batch = Batch::default();
        self.add_to(&mut batch, 0..self.tokens.len(), 0);
        batch
    }
}

#[test]
fn logits_of_prompts_with_images_are_those_of_the_reference() {
    for folder in FOLDERS {
        let (golden, decoder) = (Golden::open(folder), decoder(folder));
        for (name, prompt) in prompts(folder) {
            let mut pages = decoder.new_pages(8, KvDtype::F32).unwrap();
            let found = decoder.forward(&prompt.whole(), &mut pages).unwrap();
            let wanted = golden.tensor(&format!("{name}.logits"));
            let gap = gap(&found, &wanted);
            assert!(gap < 1e-4, "{folder} {name}: {gap}");
        }
    }
}

/// Positions of text are equal on all axes, so that the usual rope table suffices.
#[test]
fn a_text_without_images_turns_as_in_any_decoder() {
    for folder in FOLDERS {
        let (golden, decoder) = (Golden::open(folder), decoder(folder));
        let tokens = golden.tokens("plain.prompt");
        let mut pages = decoder.new_pages(8, KvDtype::F32).unwrap();
        let found = decoder.forward(&one_sequence(&tokens, 0), &mut pages);
        let gap = gap(&found.unwrap(), &golden.tensor("plain.logits"));
        assert!(gap < 1e-4, "{folder}: {gap}");
    }
}

/// Bits of all rows of a prompt in chunks of about this size, batched with another prompt.
fn in_chunks(
    decoder: &Decoder,
    prompt: &GoldenPrompt,
    size: usize,
    beside: Option<&GoldenPrompt>,
) -> Vec<u32> {
    let mut pages = decoder.new_pages(16, KvDtype::F32).unwrap();
    let (mut found, mut start, mut other) = (Vec::new(), 0, 0);
    while start < prompt.tokens.len() {
        let mut batch = Batch::default();
        if let Some(beside) = beside {
            let end = beside.end(other, size);
            if other < end {
                beside.add_to(&mut batch, other..end, 8);
            }
            other = end;
        }
        let others = batch.tokens.len();
        let end = prompt.end(start, size);
        prompt.add_to(&mut batch, start..end, 0);
        let logits = decoder.forward(&batch, &mut pages).unwrap();
        let rows = logits.dim(0).unwrap();
        found.push(logits.narrow(0, others, rows - others).unwrap());
        start = end;
    }
    let found = Tensor::cat(&found, 0).unwrap().flatten_all().unwrap();
    found
        .to_vec1::<f32>()
        .unwrap()
        .into_iter()
        .map(f32::to_bits)
        .collect()
}

#[test]
fn chunks_that_cut_images_and_neighbours_change_no_bit() {
    for folder in FOLDERS {
        let decoder = decoder(folder);
        let prompts = prompts(folder);
        for (name, prompt) in &prompts {
            let whole = in_chunks(&decoder, prompt, 1000, None);
            for size in [1, 5, 13, 40] {
                for (other, beside) in &prompts {
                    let found = in_chunks(&decoder, prompt, size, Some(beside));
                    assert!(found == whole, "{folder}: {name} by {size} beside {other}");
                }
            }
        }
    }
}

#[test]
fn greedy_texts_after_images_are_those_of_the_reference() {
    for folder in FOLDERS {
        let (golden, decoder) = (Golden::open(folder), decoder(folder));
        for (name, prompt) in prompts(folder) {
            let mut pages = decoder.new_pages(8, KvDtype::F32).unwrap();
            let mut batch = prompt.whole();
            let wanted = golden.tokens(&format!("{name}.greedy"));
            let mut written = Vec::<u32>::new();
            for past in prompt.tokens.len().. {
                let logits = decoder.forward(&batch, &mut pages).unwrap();
                written.push(*best(&logits).last().unwrap());
                if written.len() == wanted.len() {
                    break;
                }
                batch = one_sequence(&written[written.len() - 1..], past);
                if let Some(last) = prompt.positions.last() {
                    let shift = prompt.tokens.len() as u32 - last[0] - 1;
                    batch.positions = vec![[past as u32 - shift; 3]];
                }
            }
            assert_eq!(written, wanted, "{folder} {name}");
        }
    }
}

#[test]
fn images_that_do_not_fit_a_step_are_refused() {
    let folder = "qwen3-vl";
    let decoder = decoder(folder);
    let mut pages = decoder.new_pages(8, KvDtype::F32).unwrap();
    let prompts = prompts(folder);
    let (_, both) = prompts.iter().find(|(name, _)| *name == "both").unwrap();
    let whole = both.whole();
    let mut late = whole.clone();
    late.images.last_mut().unwrap().first = 1000;
    let mut fewer = whole.clone();
    fewer.positions.pop();
    let mut deep = whole;
    let added = deep.images[0].features.added[0].clone();
    deep.images[0].features.added = vec![added; 4];
    for (batch, named) in [(late, "do not fit"), (fewer, "positions"), (deep, "layers")] {
        let error = decoder.forward(&batch, &mut pages).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let other = load("golden/qwen3", Some(DType::F32));
    let mut batch = one_sequence(&[1], 0);
    batch.positions = vec![[0; 3]];
    let mut pages = other.new_pages(1, KvDtype::F32).unwrap();
    let error = other.forward(&batch, &mut pages).unwrap_err().to_string();
    assert!(error.contains("no axes"), "{error}");
}
