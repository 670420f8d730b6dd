//! Jobs beside a chat: its audio parts are written down first.

use std::sync::Arc;

use super::TextEndpoint;
use crate::error::ApiError;
use crate::http::address::LetIn;
use crate::http::openai::encode::Encoder;

impl TextEndpoint {
    /// Writes down the audio parts of messages, where the operator has chosen one.
    pub fn audio_model(&self) -> Option<Arc<str>> {
        self.settings.chat_audio_model.as_deref().map(Arc::from)
    }

    /// For jobs beside this request, of the same client.
    pub fn encoder(&self) -> Result<Encoder, ApiError> {
        let LetIn(address) = self.address.clone()?;
        Ok(Encoder::beside(
            self.board.clone(),
            self.models.clone(),
            self.settings.clone(),
            (self.moderation.clone(), self.cashier.clone()),
            self.asker(address),
            (self.caller.clone(), self.request),
        ))
    }
}
