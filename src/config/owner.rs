//! `[owner]`: what the machine's owner keeps for themselves.

use super::setting::settings;
use super::units::Size;

settings! {
    /// Resources kept for the owner of the machine.
    pub struct OwnerConfig = "owner" {
        /// Device memory that models never use. Raise it to work on the same machine.
        keep_free: Size where (0..=1 << 50) = "512 MiB",
    }
}
