//! Images of chats. URLs are fetched here, within this service's limits, so that no worker fetches a client's URL;
//! invalid image data is refused before kudos are held.

use serde_json::Value;

use super::TextEndpoint;
use muster_protocol::job::Capabilities;
use muster_protocol::openai::Problem;

use crate::error::ApiError;
use crate::http::auto::Auto;
use crate::http::generation::refused_source;
use crate::http::room::Room;
use crate::moderation::Asker;
use crate::sender::Sender;

/// In one request.
pub(super) const MOST_IMAGES: usize = 100;

impl TextEndpoint {
    /// Loads images of a chat for a model that reads images, and returns the bytes by which the chat grew. Other models
    /// refuse images themselves.
    pub(super) async fn take_images(
        &self,
        chat: &mut Value,
        who: &Asker,
        room: &mut Room,
    ) -> Result<usize, ApiError> {
        let name = chat["model"].as_str().unwrap_or_default().to_owned();
        let mut images = images(chat);
        if images.is_empty() || !self.reads_images(&name).await {
            return Ok(0);
        }
        if let Some((place, _)) = images.get(MOST_IMAGES) {
            let message = format!("a request may have at most {MOST_IMAGES} images");
            return Err(Problem::invalid(place.clone(), message).into());
        }
        let sender = Sender::of(who.account, who.address);
        let mut grown = 0;
        for (place, url) in &mut images {
            let checked = self.sources.check_shown(sender, url).await;
            if let Some(fetched) = checked.map_err(|error| refused_source(place, &error))? {
                room.cover_in_time(fetched.len()).await?;
                grown += fetched.len();
                **url = fetched;
            }
        }
        Ok(grown)
    }

    pub(super) async fn reads_images(&self, name: &str) -> bool {
        let overview = self.admission.board.current().await;
        let named = self.admission.models.id(name);
        let is_meant = |model: &str| model == &*named || Auto::called(name).is_some();
        let mut models = overview.models.iter();
        models.any(|model| {
            is_meant(&model.name) && model.capabilities.contains(Capabilities::IMAGE_INPUT)
        })
    }
}

/// The image links in messages, with their paths.
pub(super) fn images(chat: &mut Value) -> Vec<(String, &mut String)> {
    let messages = chat.get_mut("messages").and_then(Value::as_array_mut);
    let messages = messages.into_iter().flatten().enumerate();
    let parts = messages.flat_map(|(at, message)| {
        let content = message.get_mut("content").and_then(Value::as_array_mut);
        let parts = content.into_iter().flatten().enumerate();
        parts.map(move |(part_at, part)| (format!("messages[{at}].content[{part_at}]"), part))
    });
    parts
        .filter(|(_, part)| part["type"] == "image_url")
        .filter_map(
            |(place, part)| match part.get_mut("image_url")?.get_mut("url")? {
                Value::String(url) => Some((format!("{place}.image_url"), url)),
                _ => None,
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::images;

    #[test]
    fn images_are_found_by_their_places() {
        let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
        let mut chat = json!({"messages": [
            {"role": "system", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "b"}, image("u")]},
            {"role": "user", "content": [image("v"), {"type": "image_url", "image_url": {"url": 3}}]},
        ]});
        let found = images(&mut chat);
        let found: Vec<_> = found
            .iter()
            .map(|(place, url)| (&**place, &***url))
            .collect();
        let expected = [
            ("messages[1].content[1].image_url", "u"),
            ("messages[2].content[0].image_url", "v"),
        ];
        assert_eq!(found, expected);
    }
}
