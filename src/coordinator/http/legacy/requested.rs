//! Checks and lookups common to all durable requests.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;

use super::asked::Named;
use crate::accounts::{ANONYMOUS, Caller, Payer};
use crate::dispatch;
use crate::error::ApiError;
use crate::http::reply;
use crate::http::room::{Memory, Room};
use crate::modes::Modes;
use crate::requests::{
    Counted, Ended, Known, Made, NoPlace, NotAccepted, Order, Output, Place, Request, Requests,
};
use crate::rigs::Rigs;
use crate::state::DoorSettings;
use crate::styles::Applied;
use crate::values::Roles;
use crate::values::modes::ModeSet;
use muster_protocol::job::{Kind, RequestId, Targets};
use muster_protocol::legacy::requests::{RequestAsync, ResolvedRequest, ResolvedRequestStyle};
use muster_protocol::legacy::{Code, Refusal};

/// While a reply is written, its texts and images exist twice: as values, and as JSON.
pub const COPIES: usize = 2;

/// The caller, and the number of jobs.
pub struct Asking<'a> {
    pub caller: &'a Caller,
    /// The account whose limit applies.
    pub pays: &'a Caller,
    pub payer: &'a Payer,
    pub kind: Kind,
    pub jobs: u32,
    /// Models that may serve the request.
    pub models: &'a [String],
    /// The service's end user.
    pub end_user: Option<&'a str>,
}

impl Asking<'_> {
    /// Only services have end users.
    pub fn check_end_user(&self) -> Result<(), Refusal> {
        let is_service = self.caller.roles.contains(Roles::SERVICE);
        Code::OnlyServiceAccountProxy.when(self.end_user().is_some() && !is_service)
    }

    /// Reserves a place in the account's concurrency limit: `most` texts or images may be queued, ten times as many
    /// forms may be queued or running; a service's limit counts for each of its end users. Anonymous callers share one
    /// limit per known model, so that a popular model does not block the others, and one for all unknown models. The
    /// place is held until the request is queued; `None` if the account has no limit.
    pub fn leave_room(
        &self,
        requests: &Requests,
        settings: &DoorSettings,
    ) -> Result<Option<Place>, Refusal> {
        let most = self.most(settings);
        if most == usize::MAX {
            return Ok(None);
        }
        let (name, most) = match self.kind {
            Kind::Text => ("queued texts", most),
            // A form is little work.
            Kind::Form => ("queued and running forms", most.saturating_mul(10)),
            _ => ("queued images", most),
        };
        let counted = self.counted(|| requests.known_models(&settings.names));
        let place = requests.place(counted, self.jobs as usize, most);
        place.map(Some).map_err(|NoPlace(open)| {
            let message = format!(
                "too many {name}: {open} of {most} in use, {} more requested; retry when some have finished",
                self.jobs
            );
            Refusal::new(Code::TooManyPrompts, message)
        })
    }

    /// The key under which the request is counted. Interrogation forms are counted without their model.
    fn counted(&self, known: impl FnOnce() -> Known) -> Counted {
        let is_of_a_model = self.payer.account == ANONYMOUS && self.kind != Kind::Form;
        let known = is_of_a_model.then(known);
        let sorted = known.as_ref().map(|known| known.sort(self.models));
        let (models, some_are_strange) = sorted.unwrap_or_default();
        Counted {
            account: self.payer.account,
            kind: self.kind,
            end_user: self.end_user().map(Arc::from),
            models,
            strange_to: known.filter(|_| some_are_strange),
        }
    }

    /// A caller whose key cannot pay shares the anonymous limit.
    fn most(&self, settings: &DoorSettings) -> usize {
        match self.payer.account == self.pays.account {
            true => settings.concurrency(self.pays),
            false => settings.concurrency(&Caller::anonymous()),
        }
    }

    fn end_user(&self) -> Option<&str> {
        self.end_user.filter(|name| !name.is_empty())
    }
}

/// The workers of these ids, or all others if `denied`.
pub async fn targets(rigs: &Rigs, ids: &[String], denied: bool) -> Result<Targets, Refusal> {
    let targets = rigs.targets(ids, denied).await;
    let targets = targets.map_err(|_| unavailable())?;
    targets.ok_or_else(|| Code::WorkerNotFound.into())
}

/// Knowing the id is permission to read a request.
pub async fn find(requests: &Requests, path: &Named, kind: Kind) -> Result<Arc<Request>, Refusal> {
    let id = path.id("id").map(RequestId);
    let found = id.and_then(|id| requests.find(id));
    let is_of_api = |request: &Arc<Request>| request.kind == kind && request.wishes.media.is_none();
    let found = found.filter(is_of_api);
    let found = found.ok_or(Code::RequestNotFound)?;
    found.catch_up().await;
    Ok(found)
}

/// The applied style, for dry runs: a dry run shows its effect on the request.
pub fn resolved(dry_run: bool, style: Option<&Applied>) -> Option<ResolvedRequestStyle> {
    let style = style.filter(|_| dry_run)?;
    Some(ResolvedRequestStyle {
        id: style.usage.style,
        name: style.name.clone(),
    })
}

/// The reply to a dry run.
pub fn priced(
    kudos: f64,
    resolved: Option<ResolvedRequest>,
    memory: &Memory,
) -> Result<Response, ApiError> {
    let prompt = resolved.as_ref().map_or(0, |it| it.prompt.len());
    let mut room = memory.room_to_tell();
    room.cover(prompt.saturating_mul(COPIES))?;
    let priced = RequestAsync {
        resolved,
        ..RequestAsync::priced(kudos)
    };
    Ok(reply::json_in(room, StatusCode::OK, &priced))
}

/// The finished outputs so far.
pub fn made(request: &Request) -> Vec<(&Output, &Made)> {
    let made = request.outputs.iter();
    let made = made.filter_map(|output| match output.ended() {
        Some(Ended::Made(made)) => Some((output, made)),
        _ => None,
    });
    made.collect()
}

/// The memory permit of a reply with these texts.
pub fn room_to_tell(made: &[(&Output, &Made)], memory: &Memory) -> Result<Room, ApiError> {
    let texts = made.iter().map(|(_, made)| made.product.text().len());
    let bytes: usize = texts.sum();
    let mut room = memory.room_to_tell();
    room.cover(bytes.saturating_mul(COPIES))?;
    Ok(room)
}

/// A warning for the client: no online worker can serve the request, or some workers ignore part of it. Raid mode hides
/// whether workers are online.
pub fn notice(order: &Order, modes: &Modes, is_possible: bool) -> Option<String> {
    match is_possible {
        true => order.caveat(),
        false if modes.are_on(ModeSet::RAID) => None,
        false => Some(
            "no online worker can serve this request; it stays queued until one can".to_owned(),
        ),
    }
}

pub fn refusal(error: &NotAccepted) -> Refusal {
    match error {
        // The operator may allow fewer than the account's own limit.
        NotAccepted::Refused(
            refusal @ (dispatch::Refusal::InFlight { .. } | dispatch::Refusal::TooManyJobs { .. }),
        ) => Refusal::new(Code::TooManyPrompts, refusal.to_string()),
        NotAccepted::Refused(refusal) => Refusal::plain(503, refusal.to_string()),
        NotAccepted::Storage(_) => unavailable(),
    }
}

pub fn unavailable() -> Refusal {
    Refusal::plain(503, "the database is unavailable; retry later")
}

#[cfg(test)]
mod tests {
    use super::{Asking, Caller, Kind, Known, Payer, dispatch, refusal};
    use crate::clock::wall_clock;
    use crate::requests::NotAccepted;
    use muster_protocol::legacy::Code;

    #[test]
    fn who_has_no_key_is_counted_by_models_and_never_by_forms() {
        let caller = Caller::anonymous();
        let payer = Payer::of(&caller, None, false, wall_clock()).unwrap();
        // The first model is listed, the second is unknown.
        let models = ["stable_diffusion", "made up"].map(str::to_owned);
        let counted = |kind| {
            let asking = Asking {
                caller: &caller,
                pays: &caller,
                payer: &payer,
                kind,
                jobs: 1,
                models: &models,
                end_user: None,
            };
            let counted = asking.counted(Known::default);
            (counted.models.len(), counted.strange_to.is_some())
        };
        let kinds = [Kind::Text, Kind::Image, Kind::Form];
        assert_eq!(kinds.map(counted), [(1, true), (1, true), (0, false)]);
    }

    #[test]
    fn who_has_as_many_jobs_as_the_operator_allows_is_told_to_wait_for_them() {
        let refused = |why| refusal(&NotAccepted::Refused(why));
        let full = refused(dispatch::Refusal::InFlight {
            open: 4,
            most: 4,
            wait: std::time::Duration::from_secs(1),
        });
        assert_eq!(
            (full.status(), full.code()),
            (429, Some(Code::TooManyPrompts))
        );
        assert_eq!(refused(dispatch::Refusal::ShuttingDown).status(), 503);
    }
}
