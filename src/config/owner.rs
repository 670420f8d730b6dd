//! `[owner]`: what the machine's owner keeps for themselves.

use super::setting::settings;
use super::units::Size;

settings! {
    /// What you keep for yourself.
    pub struct OwnerConfig = "owner" {
        /// Memory of the device that models never take. Raise it to keep working on the same machine.
        keep_free: Size where (0..=1 << 50) = "512 MiB",
    }
}
