//! Service modes as they are stored.

use super::named::named_set;

named_set! {
    /// A set of modes.
    ModeSet {
        /// New requests are refused.
        MAINTENANCE = 1 "maintenance",
        /// New workers need an invitation.
        INVITE_ONLY = 2 "invite_only",
        /// The service is under abuse: untrusted callers get fewer permissions and less information.
        RAID = 4 "raid",
    }
}

/// The modes with their revision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    pub revision: i64,
    pub modes: ModeSet,
}

/// Modes to switch on or off.
pub type Switch = (ModeSet, bool);
