//! Constraints on the decoder's next token.

use muster_kernels::cpu::{largest, log_sum_exp};

use super::vocabulary::HearingVocabulary;

/// Time tokens that may come first: up to one second.
const LATEST_FIRST: usize = 50;

/// Sets the scores of forbidden tokens to minus infinity. `written` are the tokens of this window so far.
pub fn forbid(scores: &mut [f32], written: &[u32], vocabulary: &HearingVocabulary) {
    let never = f32::NEG_INFINITY;
    let first_time = vocabulary.first_time as usize;
    if written.is_empty() {
        for &token in &vocabulary.blank {
            scores[token as usize] = never;
        }
    }
    for &token in &vocabulary.suppressed {
        scores[token as usize] = never;
    }
    scores[vocabulary.no_times as usize] = never;
    let is_time = |back: usize| {
        let place = written.len().checked_sub(back)?;
        Some(vocabulary.is_time(written[place]))
    };
    let was_time = is_time(1) == Some(true);
    // A single one opens a segment; two close one and open the next.
    let was_opened = was_time && is_time(2) != Some(false);
    if was_opened {
        scores[first_time..].fill(never);
    } else if was_time {
        scores[..vocabulary.end as usize].fill(never);
    }
    let mut times = written.iter().filter(|&&token| vocabulary.is_time(token));
    if let Some(&last) = times.next_back() {
        let is_closing = was_time && !was_opened;
        let least = last as usize + usize::from(!is_closing);
        scores[first_time..least.max(first_time)].fill(never);
    }
    if written.is_empty() {
        scores[..first_time].fill(never);
        let after = first_time + LATEST_FIRST + 1;
        if let Some(later) = scores.get_mut(after..) {
            later.fill(never);
        }
    }
    let (texts, times) = scores.split_at(first_time);
    // All times together outweigh the best text.
    if log_sum_exp(times) > largest(texts) {
        scores[..first_time].fill(never);
    }
}
