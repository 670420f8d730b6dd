//! What all requests that are asked for later have in common at the door.

use std::sync::Arc;

use crate::coordinator::accounts::Caller;
use crate::coordinator::modes::{ModeSet, Modes};
use crate::coordinator::requests::{NotAccepted, Order, Request, Requests};
use crate::coordinator::rigs::Rigs;
use crate::coordinator::state::DoorSettings;
use crate::coordinator::switchboard::Overview;
use crate::protocol::job::{Kind, RequestId, Targets};
use crate::protocol::legacy::{Code, Refusal};

/// As many jobs of a kind may wait or run for an account as its limit says.
pub fn leave_room(
    requests: &Requests,
    caller: &Caller,
    settings: &DoorSettings,
    kind: Kind,
    wanted: u32,
) -> Result<(), Refusal> {
    let most = settings.concurrency(caller);
    if most == usize::MAX {
        return Ok(());
    }
    let (name, most) = match kind {
        Kind::Text => ("texts", most),
        // A form is little work.
        Kind::Interrogation => ("forms", most.saturating_mul(10)),
        _ => ("images", most),
    };
    let open = requests.open_jobs(caller.account, |request| request.kind == kind);
    if open.saturating_add(wanted as usize) <= most {
        return Ok(());
    }
    let message = format!(
        "{open} of your {name} are waiting or being made, and {most} may be; {wanted} more do not fit"
    );
    Err(Refusal::new(Code::TooManyPrompts, message))
}

/// The workers of these ids, or all but those.
pub async fn targets(rigs: &Rigs, ids: &[String], denied: bool) -> Result<Targets, Refusal> {
    let targets = rigs.targets(ids, denied).await;
    let targets = targets.map_err(|_| unavailable())?;
    targets.ok_or_else(|| Code::WorkerNotFound.into())
}

/// Knowing its id is all that is needed.
pub fn find(requests: &Requests, id: &str, kind: Kind) -> Result<Arc<Request>, Refusal> {
    let id = id.parse().ok().map(RequestId);
    let found = id.and_then(|id| requests.find(id));
    found
        .filter(|request| request.kind == kind)
        .ok_or_else(|| Code::RequestNotFound.into())
}

/// What whoever asks should know. In a raid nobody learns from it who is online.
pub fn notice(
    order: &Order,
    modes: &Modes,
    overview: &Overview,
    settings: &DoorSettings,
) -> Option<String> {
    let names = &settings.names;
    match modes.are_on(ModeSet::RAID) && !order.is_possible(overview, names) {
        true => None,
        false => order.notice(overview, names),
    }
}

pub fn refusal(error: &NotAccepted) -> Refusal {
    match error {
        NotAccepted::Refused(refusal) => Refusal::plain(503, refusal.to_string()),
        NotAccepted::Storage(_) => unavailable(),
    }
}

pub fn unavailable() -> Refusal {
    Refusal::plain(503, "the store cannot be written now, try again later")
}
