//! `[hub]`: where models are downloaded from.

use std::path::PathBuf;

use super::secret::Secret;
use super::setting::settings;
use super::value::WebAddress;

settings! {
    /// Where models are downloaded from. HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE, HF_HOME and HF_HUB_OFFLINE count where a setting is not set.
    pub struct HubConfig = "hub" {
        /// The hub's address. Change it to use a mirror.
        endpoint: WebAddress = "https://huggingface.co"; shared &[("HF_ENDPOINT", "")],
        /// Your token, for models that ask for one: its text, "file:PATH" or "env:NAME".
        token: Option<Secret>; unset "none"; shared &[("HF_TOKEN", "")],
        /// Where downloads are kept, shared with other programs that use the hub. Change it to use another disk.
        cache_dir: PathBuf = "~/.cache/huggingface/hub"; shared &[("HF_HUB_CACHE", ""), ("HF_HOME", "/hub"), ("XDG_CACHE_HOME", "/huggingface/hub")],
        /// Never use the network; only what is already here is served.
        offline: bool = false; shared &[("HF_HUB_OFFLINE", "")],
        /// Parts of a file that are fetched at the same time. Lower it on a weak line.
        connections: usize where (1..=64) = 8,
    }
}
