//! The owner's restrictions on a coordinator's jobs.

use muster_protocol::job::Body;
use muster_protocol::link::{Exclusion, Extension, Extensions, Payload};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// Images that may be not safe for work.
    pub nsfw: bool,
    /// LoRAs of images, and adapters of text models.
    pub loras: bool,
    /// Images for clients behind a VPN or a proxy.
    pub hidden_addresses: bool,
    /// Jobs of other accounts.
    pub others: bool,
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            nsfw: true,
            loras: true,
            hidden_addresses: true,
            others: true,
        }
    }
}

impl Permissions {
    pub fn extensions(self) -> Extensions {
        match self.others {
            true => Extensions::all().without(Extension::OwnJobs),
            false => Extensions::all(),
        }
    }

    /// The exclusions sent to our coordinators. LoRAs are a capability, which is omitted if they are not permitted.
    pub fn exclusions(self) -> Vec<Exclusion> {
        let all = [
            (self.nsfw, Exclusion::Nsfw),
            (self.hidden_addresses, Exclusion::HiddenAddresses),
        ];
        let excluded = all.into_iter().filter(|(is_permitted, _)| !is_permitted);
        excluded.map(|(_, exclusion)| exclusion).collect()
    }

    /// Whether a job is permitted, as far as its content shows: coordinators of other versions support no exclusions.
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
