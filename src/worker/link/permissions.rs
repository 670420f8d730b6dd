//! What the owner lets jobs of a coordinator ask for.

use muster_protocol::job::Body;
use muster_protocol::link::{Exclusion, Payload};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// Images that may be not safe for work.
    pub nsfw: bool,
    /// LoRAs of images, and adapters of text models.
    pub loras: bool,
    /// Images for clients behind a VPN or a proxy.
    pub hidden_addresses: bool,
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            nsfw: true,
            loras: true,
            hidden_addresses: true,
        }
    }
}

impl Permissions {
    /// As a coordinator of ours is told them. LoRAs are an ability, which is left out where they are not permitted.
    pub fn exclusions(self) -> Vec<Exclusion> {
        let all = [
            (self.nsfw, Exclusion::Nsfw),
            (self.hidden_addresses, Exclusion::HiddenAddresses),
        ];
        let excluded = all.into_iter().filter(|(is_permitted, _)| !is_permitted);
        excluded.map(|(_, exclusion)| exclusion).collect()
    }

    /// Whether a job may be done, as far as it tells: coordinators of other versions know no exclusions.
    pub fn allow(self, payload: &Payload) -> bool {
        let has_loras = match payload {
            Payload::Neutral(Body::Image(image)) => !image.loras.is_empty(),
            Payload::Public(keys) => {
                let loras = keys.get("loras").and_then(Value::as_array);
                loras.is_some_and(|loras| !loras.is_empty())
            }
            _ => false,
        };
        self.loras || !has_loras
    }
}
