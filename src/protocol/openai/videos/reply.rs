//! Videos as OpenAI's API shows them.

use serde_json::{Value, json};

use crate::job::{FailureKind, Retry};

/// A requested video.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VideoObject {
    pub id: String,
    pub model: String,
    pub status: VideoStatus,
    /// In percent.
    pub progress: u8,
    /// Seconds since the epoch.
    pub created: i64,
    pub completed: Option<i64>,
    pub expires: i64,
    /// `None` until the video is finished, if the request leaves the size to the model.
    pub size: Option<(u32, u32)>,
    pub seconds: Option<f64>,
    pub prompt: String,
    /// The code of the failure.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VideoStatus {
    #[default]
    Queued,
    InProgress,
    Completed,
    Failed,
}

impl VideoStatus {
    pub const WORDS: [&str; 4] = ["queued", "in_progress", "completed", "failed"];

    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

impl VideoObject {
    pub fn render(&self) -> Value {
        let size = self.size.map(|(width, height)| format!("{width}x{height}"));
        let error = self.error.as_ref();
        let error = error.map(|code| json!({"code": code, "message": reason(code)}));
        json!({
            "id": self.id,
            "object": "video",
            "model": self.model,
            "status": self.status.word(),
            "progress": self.progress,
            "created_at": self.created,
            "completed_at": self.completed,
            "expires_at": self.expires,
            "prompt": self.prompt,
            "size": size,
            "seconds": self.seconds.map(|seconds| seconds.to_string()),
            "remixed_from_video_id": null,
            "error": error,
        })
    }
}

/// Why there is no video, and the client's remedy.
fn reason(code: &str) -> String {
    let mut kinds = FailureKind::ALL.iter().copied();
    let kind = kinds.find(|kind| kind.row().code == code);
    let cause = match kind {
        Some(FailureKind::WorkerFailed) => "the worker failed",
        Some(FailureKind::WorkerLost) => "the worker disconnected",
        Some(FailureKind::Stalled) => "the worker made no progress",
        Some(FailureKind::EmptyResult) => "the worker delivered no video",
        Some(FailureKind::Expired) => "no worker finished it in time",
        Some(FailureKind::NoWorker | FailureKind::ModelOffline) => "no worker serves the model now",
        Some(FailureKind::ContentRefused) => "the content is not allowed here",
        Some(FailureKind::Cancelled) => "the request was cancelled",
        _ => code,
    };
    let remedy = match kind.map(|kind| kind.row().retry) {
        Some(Retry::Later) => "; send the request again",
        Some(Retry::Never) | None => "",
    };
    format!("making the video failed: {cause}{remedy}")
}

/// A page of videos.
pub fn list(videos: &[VideoObject], has_more: bool) -> Value {
    let data: Vec<Value> = videos.iter().map(VideoObject::render).collect();
    json!({
        "object": "list",
        "data": data,
        "first_id": videos.first().map(|video| &video.id),
        "last_id": videos.last().map(|video| &video.id),
        "has_more": has_more,
    })
}

pub fn deleted(id: &str) -> Value {
    json!({"id": id, "object": "video.deleted", "deleted": true})
}
