//! Monthly kudos.

use muster_protocol::job::Kudos;

use crate::values::Roles;

use super::MOST_CREATED;

/// Monthly kudos of moderators, besides their own.
const OFFICE: Kudos = Kudos(300_000_000);

/// A user's monthly kudos, up to the most that can be paid at once. Moderators get an extra amount, administrators do
/// not.
pub fn allowance(own: Kudos, roles: Roles) -> Kudos {
    let has_office = roles.contains(Roles::MODERATOR) && !roles.contains(Roles::ADMIN);
    let allowance = match has_office {
        true => Kudos(own.0.saturating_add(OFFICE.0)),
        false => own,
    };
    allowance.min(MOST_CREATED)
}
