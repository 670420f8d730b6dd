//! The channel of a sequence's events. Sending never blocks.
//!
//! Events that do not fit into the channel are merged into the next event. Three slots of the channel are reserved, so
//! that the rest of the prompt, the last text and the final event always arrive.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::{Event, TokenInfo};

/// Events a reader may leave unread before text starts to gather here.
pub const UNREAD_EVENTS: usize = 64;
/// Limit of buffered tokens, after which the reader counts as gone.
pub const SLOW_READER_TOKENS: usize = 4096;
/// Without text, tokens are sent in groups of this size to save events.
const SILENT_TOKENS: usize = 32;

/// More than [`SLOW_READER_TOKENS`] tokens wait for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooSlow;

#[derive(Debug)]
pub struct Outbox {
    events: mpsc::Sender<Event>,
    last_of_prompt: mpsc::OwnedPermit<Event>,
    last_text: mpsc::OwnedPermit<Event>,
    last_word: mpsc::OwnedPermit<Event>,
    /// Final text that has not left yet.
    pub text: String,
    pub tokens: Vec<TokenInfo>,
    /// Tokens of the prompt with their log probabilities.
    pub prompt: Vec<TokenInfo>,
    /// Number of prompt tokens sent before those in `prompt`.
    prompt_start: usize,
}

impl Outbox {
    /// `None` if the channel has no space for the reserved events, which a new one of [`channel`](Self::channel) has.
    pub fn new(events: mpsc::Sender<Event>) -> Option<Self> {
        Some(Self {
            last_of_prompt: events.clone().try_reserve_owned().ok()?,
            last_text: events.clone().try_reserve_owned().ok()?,
            last_word: events.clone().try_reserve_owned().ok()?,
            events,
            text: String::new(),
            tokens: Vec::new(),
            prompt: Vec::new(),
            prompt_start: 0,
        })
    }

    pub fn channel() -> (mpsc::Sender<Event>, mpsc::Receiver<Event>) {
        mpsc::channel(UNREAD_EVENTS + 3)
    }

    pub fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }

    pub fn start(&mut self, prompt_tokens: usize, cached_tokens: usize) {
        // The first event of all always fits.
        let _ = self.events.try_send(Event::Started {
            prompt_tokens,
            cached_tokens,
        });
    }

    /// Sends text and tokens if there are enough of them and the channel has space.
    pub fn flush(&mut self) -> Result<(), TooSlow> {
        self.flush_prompt()?;
        let has_prompt = !self.prompt.is_empty();
        if has_prompt || self.text.is_empty() && self.tokens.len() < SILENT_TOKENS {
            return Ok(());
        }
        let event = self.take();
        match self.events.try_send(event) {
            Err(TrySendError::Full(Event::Text { text, tokens })) => {
                (self.text, self.tokens) = (text, tokens);
                if self.tokens.len() > SLOW_READER_TOKENS {
                    Err(TooSlow)
                } else {
                    Ok(())
                }
            }
            // A closed channel is noticed before the next step.
            _ => Ok(()),
        }
    }

    fn flush_prompt(&mut self) -> Result<(), TooSlow> {
        if self.prompt.is_empty() {
            return Ok(());
        }
        let (start, count) = (self.prompt_start, self.prompt.len());
        let tokens = std::mem::take(&mut self.prompt);
        match self.events.try_send(Event::Prompt { start, tokens }) {
            Err(TrySendError::Full(Event::Prompt { tokens, .. })) => {
                self.prompt = tokens;
                match count > SLOW_READER_TOKENS {
                    true => Err(TooSlow),
                    false => Ok(()),
                }
            }
            _ => {
                self.prompt_start += count;
                Ok(())
            }
        }
    }

    /// Sends the rest, then the final event.
    pub fn finish(mut self, last: Event) {
        let rest = self.take();
        let (start, tokens) = (self.prompt_start, self.prompt);
        if !tokens.is_empty() {
            self.last_of_prompt.send(Event::Prompt { start, tokens });
        }
        if !matches!(&rest, Event::Text { text, tokens } if text.is_empty() && tokens.is_empty()) {
            self.last_text.send(rest);
        }
        self.last_word.send(last);
    }

    fn take(&mut self) -> Event {
        Event::Text {
            text: std::mem::take(&mut self.text),
            tokens: std::mem::take(&mut self.tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Outbox, SLOW_READER_TOKENS, TooSlow, UNREAD_EVENTS};
    use crate::runtime::{Event, Failure, TokenInfo};

    fn token(id: u32) -> TokenInfo {
        TokenInfo {
            id,
            logprob: None,
            top: Vec::new(),
        }
    }

    #[test]
    fn a_slow_reader_gets_everything_in_fewer_events() {
        let (sender, mut events) = Outbox::channel();
        let mut outbox = Outbox::new(sender).unwrap();
        let count = UNREAD_EVENTS as u32 + 50;
        for id in 0..count {
            outbox.text.push('x');
            outbox.tokens.push(token(id));
            assert_eq!(outbox.flush(), Ok(()));
        }
        outbox.finish(Event::Failed(Failure::Stopped));
        let (mut text, mut ids, mut messages) = (String::new(), Vec::new(), 0);
        while let Ok(Event::Text { text: more, tokens }) = events.try_recv() {
            text.push_str(&more);
            ids.extend(tokens.iter().map(|token| token.id));
            messages += 1;
        }
        assert_eq!((text.len(), ids), (count as usize, (0..count).collect()));
        assert_eq!(messages, UNREAD_EVENTS + 1);
    }

    #[test]
    fn a_reader_that_never_reads_is_given_up() {
        let (sender, _events) = Outbox::channel();
        let mut outbox = Outbox::new(sender).unwrap();
        let mut given_up_at = None;
        for id in 0..2 * SLOW_READER_TOKENS as u32 {
            outbox.text.push('x');
            outbox.tokens.push(token(id));
            if outbox.flush() == Err(TooSlow) {
                given_up_at = Some(id as usize);
                break;
            }
        }
        assert_eq!(given_up_at, Some(UNREAD_EVENTS + SLOW_READER_TOKENS));
    }
}
