//! Sizes of queued events, and merging of consecutive ones.

use muster_protocol::job::Event;

/// Size of an event besides its text.
const EVENT_BYTES: usize = 96;
/// Limit of joined pieces: clients read streams line by line.
const PIECE: usize = 4096;

pub fn weight(event: &Event) -> usize {
    EVENT_BYTES
        + match event {
            Event::Token(token) => {
                let top = token.logprobs.iter().map(|one| 64 + 48 * one.top.len());
                token.text.len() + 4 * token.ids.len() + top.sum::<usize>()
            }
            Event::ToolCall(call) => call.arguments.len() + 4 * call.ids.len(),
            Event::Prompt(prompt) => {
                let tokens = prompt.tokens.iter();
                tokens.map(|one| 64 + 48 * one.top.len()).sum()
            }
            Event::Preview { bytes, .. } => bytes.len(),
            Event::Part(result) => result.weight(),
            _ => 0,
        }
}

/// Merges an event into the last unread one, without loss of text; of progress reports and previews, only the newer one
/// stays. Returns an event that cannot be merged.
pub fn join(last: &mut Event, next: Event) -> Option<Event> {
    let is_full = weight(last) >= PIECE;
    match (last, next) {
        (Event::Token(last), Event::Token(next)) if !is_full && last.channel == next.channel => {
            last.text.push_str(&next.text);
            last.ids.extend(next.ids);
            last.logprobs.extend(next.logprobs);
        }
        (Event::Prompt(last), Event::Prompt(next))
            if !is_full && next.start == last.start.saturating_add(last.len()) =>
        {
            last.tokens.extend(next.tokens);
        }
        (Event::ToolCall(last), Event::ToolCall(next))
            if !is_full && last.index == next.index && next.id.is_none() && next.name.is_none() =>
        {
            last.arguments.push_str(&next.arguments);
            last.ids.extend(next.ids);
        }
        (last @ Event::Progress(_), next @ Event::Progress(_))
        | (last @ Event::Preview { .. }, next @ Event::Preview { .. })
        | (last @ Event::Usage(_), next @ Event::Usage(_)) => *last = next,
        (_, next) => return Some(next),
    }
    None
}
