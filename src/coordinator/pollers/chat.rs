//! Chats answered as plain text by polling workers: finds the end of the reply and its finish reason, since such
//! workers send only the text.

use std::sync::Arc;

use crate::dispatch::Offer;
use crate::metering::{Belief, Meter, Output};
use muster_protocol::job::{Body, Event, FinishReason, Job, TextInput, TokenEvent};
use muster_protocol::legacy::text::chat;

/// A chat on a polling worker.
#[derive(Debug)]
pub struct Turn {
    job: Arc<Job>,
    stops: Vec<String>,
    /// Token limit sent to the worker.
    longest: u32,
}

impl Turn {
    /// `None` if the job is no chat. `longest` is the worker's limit of output tokens, for requests without one.
    pub fn of(offer: &Offer, longest: u32) -> Option<Self> {
        let Body::Text(request) = &offer.job.body else {
            return None;
        };
        matches!(request.input, TextInput::Chat(_)).then_some(())?;
        let marks = chat::stops(&offer.model).iter();
        let marks = marks.map(|mark| (*mark).to_owned());
        Some(Self {
            stops: request.stop.iter().cloned().chain(marks).collect(),
            longest: request
                .max_tokens
                .map_or(longest, |asked| asked.min(longest)),
            job: offer.job.clone(),
        })
    }

    /// The reply and its finish reason: `length` if it has the maximum number of tokens by our count.
    pub async fn read(&self, text: &str, meter: &Meter) -> (String, FinishReason) {
        let answer = chat::answer(text, &self.stops);
        let mut output = Output::default();
        output.note(&Event::Token(TokenEvent {
            text: answer.clone(),
            ..TokenEvent::default()
        }));
        let counted = meter.count(self.job.clone(), output, Belief::Nothing);
        let counted = counted.await;
        let finish = match counted.output_tokens >= self.longest && !self.is_ended(text) {
            true => FinishReason::Length,
            false => FinishReason::Stop,
        };
        (answer, finish)
    }

    fn is_ended(&self, text: &str) -> bool {
        self.stops.iter().any(|stop| text.contains(stop.as_str()))
    }
}
