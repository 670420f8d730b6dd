//! Errors of parsing a frame. Their text may be logged and sent, since it contains nothing of the frame.

use serde_json::error::Category;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the frame is not a JSON object")]
    NotAnObject,
    #[error("the frame is not valid JSON at byte {at}")]
    NotJson { at: usize },
    #[error("the frame contains more than {most} values")]
    TooManyValues { most: usize },
    #[error("the {kind} frame has a field of the wrong type at byte {at}")]
    WrongShape { kind: &'static str, at: usize },
}

impl FrameError {
    /// The parser's own words are dropped: they quote the frame.
    pub(super) fn from_json(kind: &'static str, error: &serde_json::Error) -> Self {
        let at = error.column();
        match error.classify() {
            Category::Data => Self::WrongShape { kind, at },
            Category::Io | Category::Syntax | Category::Eof => Self::NotJson { at },
        }
    }
}
