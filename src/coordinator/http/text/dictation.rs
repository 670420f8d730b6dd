//! Transcription jobs for the audio parts of a chat, before the chat itself.

use std::sync::Arc;

use super::TextEndpoint;
use crate::error::ApiError;
use crate::http::generation::encode::Encoder;

impl TextEndpoint {
    /// The operator's transcription model for audio parts.
    pub fn audio_model(&self) -> Option<Arc<str>> {
        self.admission
            .settings
            .chat_audio_model
            .as_deref()
            .map(Arc::from)
    }

    /// For the transcription jobs of this request.
    pub fn encoder(&self) -> Result<Encoder, ApiError> {
        let admitted = self.admission.asker()?;
        Ok(Encoder::of(self.admission.clone(), admitted))
    }
}
