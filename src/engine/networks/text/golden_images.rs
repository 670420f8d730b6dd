//! Qwen3-VL against transformers: prompts with two images and without, whole, in chunks and side by side.

use candle_core::Tensor;

use super::golden::{Golden, best, gap, load, one_sequence};
use super::{AxisPositions, Batch, Decoder, ImageRows};
use crate::networks::vision::{ImageFeatures, golden as vision};
use candle_core::DType;
use muster_kernels::{KvDtype, PAGE_TOKENS, Span};

struct GoldenPrompt {
    tokens: Vec<u32>,
    positions: Vec<AxisPositions>,
    /// Where each image begins, and what its tower says.
    images: Vec<(usize, ImageFeatures)>,
}

fn decoder() -> Decoder {
    load("golden/qwen3-vl", Some(DType::F32))
}

fn prompt(golden: &Golden, name: &str) -> GoldenPrompt {
    let tokens = golden.tokens(&format!("{name}.prompt"));
    let axes = golden.tokens(&format!("{name}.positions"));
    let count = tokens.len();
    let positions = (0..count).map(|at| [axes[at], axes[count + at], axes[2 * count + at]]);
    let network = vision::open();
    let tower = vision::tower(&network);
    let image = network.config()["image_token_id"].as_u64().unwrap() as u32;
    let begins = |at: &usize| tokens[*at] == image && (*at == 0 || tokens[at - 1] != image);
    let begins: Vec<usize> = (0..count).filter(begins).collect();
    let images = begins.into_iter().enumerate();
    let images = images.map(|(picture, first)| (first, vision::features(&tower, picture)));
    GoldenPrompt {
        positions: positions.collect(),
        images: images.collect(),
        tokens,
    }
}

impl GoldenPrompt {
    /// The tokens of a range, with the parts of images in it, after `rows` others of the batch.
    fn add_to(&self, batch: &mut Batch, range: std::ops::Range<usize>, first_page: u32) {
        let rows = batch.tokens.len();
        for (first, features) in &self.images {
            let count = features.embeddings.dim(0).unwrap();
            let (start, end) = (range.start.max(*first), range.end.min(first + count));
            if start < end {
                batch.images.push(ImageRows {
                    first: rows + start - range.start,
                    features: features.part(start - first, end - start).unwrap(),
                });
            }
        }
        batch.tokens.extend(&self.tokens[range.clone()]);
        batch.positions.extend(&self.positions[range.clone()]);
        let pages = range.end.div_ceil(PAGE_TOKENS) as u32;
        batch.spans.push(Span {
            new_tokens: range.len(),
            past_tokens: range.start,
            pages: (first_page..first_page + pages).collect(),
        });
        let end = batch.tokens.len() as u32;
        batch.logit_rows.extend(rows as u32..end);
    }

    fn whole(&self) -> Batch {
        let mut batch = Batch::default();
        self.add_to(&mut batch, 0..self.tokens.len(), 0);
        batch
    }
}

#[test]
fn logits_of_a_prompt_with_images_are_those_of_the_reference() {
    let (golden, decoder) = (Golden::open("qwen3-vl"), decoder());
    for name in ["both", "plain"] {
        let mut pages = decoder.new_pages(8, KvDtype::F32).unwrap();
        let prompt = prompt(&golden, name);
        let found = decoder.forward(&prompt.whole(), &mut pages).unwrap();
        let wanted = golden.tensor(&format!("{name}.logits"));
        let gap = gap(&found, &wanted);
        assert!(gap < 1e-4, "{name}: {gap}");
    }
}

/// Positions of text are the same on all axes, so that no table of its own is needed.
#[test]
fn a_text_without_images_turns_as_in_any_decoder() {
    let (golden, decoder) = (Golden::open("qwen3-vl"), decoder());
    let tokens = golden.tokens("plain.prompt");
    let mut pages = decoder.new_pages(8, KvDtype::F32).unwrap();
    let found = decoder.forward(&one_sequence(&tokens, 0), &mut pages);
    let gap = gap(&found.unwrap(), &golden.tensor("plain.logits"));
    assert!(gap < 1e-4, "{gap}");
}

#[test]
fn chunks_that_cut_images_and_neighbours_change_nothing() {
    let (golden, decoder) = (Golden::open("qwen3-vl"), decoder());
    let (both, plain) = (prompt(&golden, "both"), prompt(&golden, "plain"));
    for size in [1, 5, 13, 40] {
        let mut pages = decoder.new_pages(16, KvDtype::F32).unwrap();
        let (mut found, mut beside) = (Vec::new(), Vec::new());
        for start in (0..both.tokens.len()).step_by(size) {
            let mut batch = Batch::default();
            let own = (start + size).min(plain.tokens.len());
            if start < own {
                plain.add_to(&mut batch, start..own, 8);
            }
            let others = batch.tokens.len();
            both.add_to(&mut batch, start..(start + size).min(both.tokens.len()), 0);
            let logits = decoder.forward(&batch, &mut pages).unwrap();
            let rows = logits.dim(0).unwrap();
            if others > 0 {
                beside.push(logits.narrow(0, 0, others).unwrap());
            }
            found.push(logits.narrow(0, others, rows - others).unwrap());
        }
        for (found, name) in [(found, "both"), (beside, "plain")] {
            let found = Tensor::cat(&found, 0).unwrap();
            let gap = gap(&found, &golden.tensor(&format!("{name}.logits")));
            assert!(gap < 1e-4, "{name} in chunks of {size}: {gap}");
        }
    }
}

#[test]
fn greedy_texts_after_images_are_those_of_the_reference() {
    let (golden, decoder) = (Golden::open("qwen3-vl"), decoder());
    for name in ["both", "plain"] {
        let mut pages = decoder.new_pages(8, KvDtype::F32).unwrap();
        let prompt = prompt(&golden, name);
        let mut batch = prompt.whole();
        let shift = prompt.tokens.len() as u32 - prompt.positions.last().unwrap()[0] - 1;
        let mut written = Vec::<u32>::new();
        for past in prompt.tokens.len().. {
            let logits = decoder.forward(&batch, &mut pages).unwrap();
            written.push(*best(&logits).last().unwrap());
            if written.len() == 32 {
                break;
            }
            batch = one_sequence(&written[written.len() - 1..], past);
            batch.positions = vec![[past as u32 - shift; 3]];
        }
        assert_eq!(written, golden.tokens(&format!("{name}.greedy")), "{name}");
    }
}

#[test]
fn images_that_do_not_fit_a_step_are_refused() {
    let (golden, decoder) = (Golden::open("qwen3-vl"), decoder());
    let mut pages = decoder.new_pages(8, KvDtype::F32).unwrap();
    let whole = prompt(&golden, "both").whole();
    let mut late = whole.clone();
    late.images[1].first = 60;
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
