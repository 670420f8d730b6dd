//! Word timestamps by alignment: the cross-attention of a text's tokens.

use candle_core::{D, Result};
use muster_kernels::cpu::log_sum_exp;

use super::HearingModel;
use super::segments::TranscriptSegment;
use super::vocabulary::{HearingVocabulary, TIME_STEP};
use crate::networks::sound::{SpokenText, WindowKeys};

/// A word, with the space before it. Times are seconds from the beginning of the sound.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimedWord {
    pub word: String,
    pub from: f64,
    pub to: f64,
    pub probability: f32,
}

/// A word on its way to its segment.
struct AlignedWord {
    text: String,
    tokens: Vec<u32>,
    from: f64,
    to: f64,
    probability: f32,
}

/// Frames on each side and the middle, of which the median is taken.
const MEDIAN_WIDTH: usize = 7;
const PREPENDED: &str = "\"'“¿([{-";
const APPENDED: &str = "\"'.。,，!！?？:：”)]}、";
const SENTENCE_ENDS: &str = ".。!！?？";
/// Languages that are written without spaces.
const UNSPACED: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];
/// A typical word is not taken for longer, in seconds.
const LONGEST_TYPICAL: f64 = 0.7;

/// Finds the words of a window's segments. `last` is the end of the last word before it.
pub fn add_words(
    model: &HearingModel,
    cross: &WindowKeys,
    opening: &[u32],
    frames: usize,
    segments: &mut [TranscriptSegment],
    mut last: f64,
) -> Result<()> {
    let vocabulary = &model.vocabulary;
    let text_of = |segment: &TranscriptSegment| -> Vec<u32> {
        let text = segment.tokens.iter().copied();
        text.filter(|&token| token < vocabulary.end).collect()
    };
    let per_segment: Vec<Vec<u32>> = segments.iter().map(text_of).collect();
    let Some(seek) = segments.first().map(|segment| segment.seek) else {
        return Ok(());
    };
    let offset = seek as f64 / 100.0;
    let mut words = align(model, cross, opening, frames, &per_segment.concat())?;
    let typical = typical_length(&words);
    let longest = typical * 2.0;
    if !words.is_empty() && longest > 0.0 {
        shorten_at_sentence_ends(&mut words, longest);
    }
    join_punctuation(&mut words);
    let mut next = 0;
    for (segment, tokens) in segments.iter_mut().zip(&per_segment) {
        let mut saved = 0;
        let mut found: Vec<TimedWord> = Vec::new();
        while saved < tokens.len() && next < words.len() {
            let word = &words[next];
            if !word.text.is_empty() {
                found.push(TimedWord {
                    word: word.text.clone(),
                    from: round(offset + word.from),
                    to: round(offset + word.to),
                    probability: word.probability,
                });
            }
            saved += word.tokens.len();
            next += 1;
        }
        settle(segment, &mut found, typical, longest, last);
        last = segment.to;
        segment.words = found;
    }
    Ok(())
}

fn round(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

/// The first words after a pause come out too long, and so does the last of a segment.
fn settle(
    segment: &mut TranscriptSegment,
    words: &mut [TimedWord],
    typical: f64,
    longest: f64,
    last: f64,
) {
    let count = words.len();
    let Some(first) = words.first().cloned() else {
        return;
    };
    let is_late = first.to - last > typical * 4.0;
    let second_is_late = count > 1 && words[1].to - first.from > longest * 2.0;
    if is_late && (first.to - first.from > longest || second_is_late) {
        if count > 1 && words[1].to - words[1].from > longest {
            let border = (words[1].to / 2.0).max(words[1].to - longest);
            words[0].to = border;
            words[1].from = border;
        }
        words[0].from = (words[0].to - longest).max(0.0);
    }
    // A segment's own time is nearer to the truth where the first or last word is too long.
    if segment.from < words[0].to && segment.from - 0.5 > words[0].from {
        words[0].from = (words[0].to - typical).min(segment.from).max(0.0);
    } else {
        segment.from = words[0].from;
    }
    let end = &mut words[count - 1];
    if segment.to > end.from && segment.to + 0.5 < end.to {
        end.to = (end.from + typical).max(segment.to);
    } else {
        segment.to = end.to;
    }
}

fn typical_length(words: &[AlignedWord]) -> f64 {
    let mut lengths: Vec<f64> = words
        .iter()
        .map(|word| word.to - word.from)
        .filter(|length| *length > 0.0)
        .collect();
    lengths.sort_by(f64::total_cmp);
    let median = match lengths.len() {
        0 => 0.0,
        count if count % 2 == 1 => lengths[count / 2],
        count => (lengths[count / 2 - 1] + lengths[count / 2]) / 2.0,
    };
    median.min(LONGEST_TYPICAL)
}

fn shorten_at_sentence_ends(words: &mut [AlignedWord], longest: f64) {
    let is_end = |word: &AlignedWord| {
        let text = word.text.trim();
        !text.is_empty() && SENTENCE_ENDS.contains(text)
    };
    for at in 1..words.len() {
        if words[at].to - words[at].from <= longest {
            continue;
        }
        if is_end(&words[at]) {
            words[at].to = words[at].from + longest;
        } else if is_end(&words[at - 1]) {
            words[at].from = words[at].to - longest;
        }
    }
}

/// Appends punctuation to the neighbouring word.
fn join_punctuation(words: &mut [AlignedWord]) {
    let mut at = words.len();
    let mut following = words.len().saturating_sub(1);
    while at > 1 {
        at -= 1;
        let before = at - 1;
        let is_opening =
            words[before].text.starts_with(' ') && PREPENDED.contains(words[before].text.trim());
        if is_opening && !words[before].text.trim().is_empty() {
            let text = std::mem::take(&mut words[before].text);
            let tokens = std::mem::take(&mut words[before].tokens);
            let word = &mut words[following];
            word.text.insert_str(0, &text);
            word.tokens.splice(0..0, tokens);
        } else {
            following = before;
        }
    }
    let mut previous = 0;
    for at in 1..words.len() {
        let joins = !words[previous].text.ends_with(' ')
            && !words[at].text.is_empty()
            && APPENDED.contains(words[at].text.as_str());
        if joins {
            let text = std::mem::take(&mut words[at].text);
            let tokens = std::mem::take(&mut words[at].tokens);
            words[previous].text.push_str(&text);
            words[previous].tokens.extend(tokens);
        } else {
            previous = at;
        }
    }
}

fn align(
    model: &HearingModel,
    cross: &WindowKeys,
    opening: &[u32],
    frames: usize,
    text: &[u32],
) -> Result<Vec<AlignedWord>> {
    let vocabulary = &model.vocabulary;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let tokens = [opening, &[vocabulary.no_times], text, &[vocabulary.end]].concat();
    let mut cache = model.network.cache()?;
    let spoken = SpokenText {
        cache: &mut cache,
        cross,
        tokens: &tokens,
    };
    let (states, scores) = model.network.attention(spoken, &model.alignment)?;
    let from = opening.len();
    let logits = model.network.logits(&states.narrow(0, from, text.len())?)?;
    let logits = logits
        .narrow(1, 0, vocabulary.end as usize)?
        .to_vec2::<f32>()?;
    let probabilities: Vec<f32> = logits
        .iter()
        .zip(text)
        .map(|(scores, &token)| (scores[token as usize] - log_sum_exp(scores)).exp())
        .collect();

    let scores = scores.narrow(D::Minus1, 0, frames / 2)?;
    let weights = softmax_standardized(&scores)?;
    let (heads, rows, columns) = (weights.len(), tokens.len(), frames / 2);
    let mut cost = vec![0.0f32; rows * columns];
    for head in &weights {
        for (row, values) in head.chunks_exact(columns).enumerate() {
            let filtered = median(values);
            let row = &mut cost[row * columns..][..columns];
            for (sum, value) in row.iter_mut().zip(filtered) {
                *sum -= value / heads as f32;
            }
        }
    }
    // Aligns the text and the end token; prompt tokens have no time.
    let kept = &cost[from * columns..(rows - 1) * columns];
    let path = warp(kept, rows - 1 - from, columns);
    let mut begins = vec![0.0; rows - 1 - from];
    let mut previous = None;
    for (token, frame) in path {
        if previous != Some(token) {
            begins[token] = frame as f64 * TIME_STEP;
        }
        previous = Some(token);
    }
    let mut at = 0;
    let words = split(vocabulary, opening, &[text, &[vocabulary.end]].concat());
    let found = words.into_iter().filter_map(|tokens| {
        let (from, to) = (at, at + tokens.len());
        at = to;
        let end = *begins.get(to)?;
        let own = &probabilities[from..to];
        Some(AlignedWord {
            text: vocabulary.decode(&tokens),
            from: begins[from],
            to: end,
            probability: own.iter().sum::<f32>() / own.len() as f32,
            tokens,
        })
    });
    Ok(found.collect())
}

/// Each head's weights, softmax over frames, then standardized over the tokens of each frame.
fn softmax_standardized(scores: &candle_core::Tensor) -> Result<Vec<Vec<f32>>> {
    let largest = scores.max_keepdim(D::Minus1)?;
    let powers = scores.broadcast_sub(&largest)?.exp()?;
    let weights = powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)?;
    let mean = weights.mean_keepdim(1)?;
    let centred = weights.broadcast_sub(&mean)?;
    let deviation = centred.sqr()?.mean_keepdim(1)?.sqrt()?;
    let standard = centred.broadcast_div(&deviation)?;
    let (heads, _, _) = standard.dims3()?;
    (0..heads)
        .map(|head| standard.get(head)?.flatten_all()?.to_vec1())
        .collect()
}

/// Median filter with mirrored borders.
fn median(values: &[f32]) -> Vec<f32> {
    let half = MEDIAN_WIDTH / 2;
    if values.len() <= half {
        return values.to_vec();
    }
    let last = values.len() - 1;
    let mirrored = |at: isize| match at {
        at if at < 0 => at.unsigned_abs(),
        at if at as usize > last => 2 * last - at as usize,
        at => at as usize,
    };
    let around = |at: usize| {
        let mut near: [f32; MEDIAN_WIDTH] = std::array::from_fn(|side| {
            values[mirrored(at as isize + side as isize - half as isize)]
        });
        near.sort_by(f32::total_cmp);
        near[half]
    };
    (0..values.len()).map(around).collect()
}

/// Dynamic time warping: pairs of row and column along the cheapest way.
fn warp(cost: &[f32], rows: usize, columns: usize) -> Vec<(usize, usize)> {
    let width = columns + 1;
    let mut sums = vec![f32::INFINITY; (rows + 1) * width];
    let mut moves = vec![0u8; (rows + 1) * width];
    sums[0] = 0.0;
    for column in 1..=columns {
        for row in 1..=rows {
            let at = row * width + column;
            let (both, up, left) = (sums[at - width - 1], sums[at - width], sums[at - 1]);
            let (least, way) = if both < up && both < left {
                (both, 0)
            } else if up < both && up < left {
                (up, 1)
            } else {
                (left, 2)
            };
            sums[at] = cost[(row - 1) * columns + column - 1] + least;
            moves[at] = way;
        }
    }
    let (mut row, mut column) = (rows, columns);
    let mut path = Vec::new();
    while row > 0 || column > 0 {
        path.push((row.saturating_sub(1), column.saturating_sub(1)));
        let way = match (row, column) {
            (0, _) => 2,
            (_, 0) => 1,
            _ => moves[row * width + column],
        };
        row -= usize::from(way != 2);
        column -= usize::from(way != 1);
    }
    path.reverse();
    path
}

/// Tokens word by word: at spaces, or at whole characters where a language has none.
fn split(vocabulary: &HearingVocabulary, opening: &[u32], tokens: &[u32]) -> Vec<Vec<u32>> {
    let language = opening
        .get(1)
        .and_then(|&token| vocabulary.language_code(token));
    let is_unspaced = language.is_some_and(|code| UNSPACED.contains(&code));
    let mut words: Vec<Vec<u32>> = Vec::new();
    for characters in whole_characters(vocabulary, tokens) {
        let text = vocabulary.decode(&characters);
        let is_special = characters[0] >= vocabulary.end;
        let is_punctuation =
            text.trim().len() == 1 && text.trim().chars().all(|c| c.is_ascii_punctuation());
        let begins = is_special || text.starts_with(' ') || is_punctuation;
        match words.last_mut() {
            Some(word) if !begins && !is_unspaced => word.extend(characters),
            _ => words.push(characters),
        }
    }
    words
}

/// Tokens that are whole characters together.
fn whole_characters(vocabulary: &HearingVocabulary, tokens: &[u32]) -> Vec<Vec<u32>> {
    let mut found = Vec::new();
    let mut current = Vec::new();
    for &token in tokens {
        current.push(token);
        if !vocabulary.decode(&current).contains('\u{fffd}') {
            found.push(std::mem::take(&mut current));
        }
    }
    if !current.is_empty() {
        found.push(current);
    }
    found
}
