//! A complete response, gathered from its events.

use std::sync::Arc;

use serde_json::Value;

use crate::job::{Event, FinishReason, Usage};
use crate::openai::chat::{Ending, Grid, ReplyBuilder};

use super::dialect::Recorder;
use super::output::{OutputItems, OutputOptions};
use super::response::Frame;

#[derive(Debug)]
pub struct ResponseBuilder {
    frame: Frame,
    output: OutputItems,
    ending: Option<Ending>,
    recorder: Option<Arc<dyn Recorder>>,
}

impl ResponseBuilder {
    pub fn new(frame: Frame, options: OutputOptions, recorder: Option<Arc<dyn Recorder>>) -> Self {
        Self {
            output: OutputItems::new(&frame.id, options),
            frame,
            ending: None,
            recorder,
        }
    }
}

impl ReplyBuilder for ResponseBuilder {
    fn event(&mut self, _: u32, event: Event) {
        match event {
            Event::Token(token) => {
                self.output.token(&token);
            }
            Event::ToolCall(piece) => {
                self.output.call(&piece);
            }
            _ => {}
        }
    }

    fn restart(&mut self, _: u32) {
        self.output.clear();
    }

    fn end(&mut self, _: u32, ending: Ending) {
        self.ending = Some(ending);
    }

    fn render(self: Box<Self>, grid: &Grid) -> Value {
        let ending = self.ending.unwrap_or(Ending {
            finish: FinishReason::Stop,
            usage: Usage::default(),
        });
        let response = self.frame.ended(&self.output, &ending, grid);
        if let Some(recorder) = &self.recorder {
            recorder.ended(&response);
        }
        response
    }
}
