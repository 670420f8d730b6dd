//! `[hub]`: where models are downloaded from.

use std::path::PathBuf;

use super::secret::Secret;
use super::setting::settings;
use super::units::Size;
use super::value::WebAddress;

settings! {
    /// Where models are downloaded from. HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE, HF_HOME and HF_HUB_OFFLINE apply where a setting is not set.
    pub struct HubConfig = "hub" {
        /// URL of the hub. Change it to use a mirror.
        endpoint: WebAddress = "https://huggingface.co"; shared &[("HF_ENDPOINT", "")],
        /// Access token for gated models: the token itself, "file:PATH" or "env:NAME".
        token: Option<Secret>; unset "the token stored by the hub's own tools, if any"; shared &[("HF_TOKEN", "")],
        /// Folder for downloads, shared with other programs that use the hub. Change it to use another disk.
        cache_dir: PathBuf = "~/.cache/huggingface/hub"; shared &[("HF_HUB_CACHE", ""), ("HF_HOME", "/hub"), ("XDG_CACHE_HOME", "/huggingface/hub")],
        /// Never download; serve only models that are on disk. Set it on a machine without internet access.
        offline: bool = false; shared &[("HF_HUB_OFFLINE", "")],
        /// Parallel connections per download. Lower it on a slow network.
        connections: usize where (1..=64) = 8,
        /// Bytes a second that all downloads together may take. Set it to keep the network usable for others.
        bandwidth: Option<Size> where (65536..=1 << 50); unset "as much as there is",
        /// Disk space that all downloaded models together may take. A download that would exceed it first removes the models that were not used for the longest time; models that are configured or loaded stay, and so do files that you or other programs put there. Set it to keep the disk free for others.
        disk: Option<Size> where (1048576..=1 << 60); unset "as much as there is",
    }
}
