//! `POST /api/v2/generate/async`: queues an image request.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::super::body::{read, with_memory};
use super::super::moderation::Door;
use super::super::paying::{Till, cover, crowd, kudos, surcharge};
use super::super::progress;
use super::super::requested::{Asking, notice, priced, refusal, resolved, targets};
use super::super::service::takes_requests;
use super::{paying, sources};
use crate::accounts::{Caller, Payer};
use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::MediaWhole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::webhook;
use crate::http::reply;
use crate::http::room::{Memory, Room};
use crate::moderation::{Medium, Prompt};
use crate::modes::Modes;
use crate::pictures::Sources;
use crate::requests::orders::{Asked, Sent, Whose};
use crate::requests::{NewRequest, Order, Place, Requests};
use crate::rigs::Rigs;
use crate::sender::Sender;
use crate::sharing::Sharing;
use crate::state::DoorSettings;
use crate::styles::Styles;
use crate::switchboard::Switchboard;
use crate::values::styles::Use;
use crate::values::{Alias, Roles};
use muster_protocol::job::{Kind, RequestId};
use muster_protocol::legacy::Refusal;
use muster_protocol::legacy::image::check::{Asker, Known};
use muster_protocol::legacy::image::reference;
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::legacy::requests::{
    RequestAsync, RequestSingleWarning, ResolvedRequest, Warning,
};

/// The parts of the service that accept an image request.
pub struct Counter {
    pub requests: Requests,
    pub board: Switchboard,
    pub sources: Sources,
    pub settings: Arc<DoorSettings>,
    pub modes: Modes,
    /// The owner of the source images.
    pub sender: Sender,
}

pub async fn ask(
    (State(requests), State(board)): (State<Requests>, State<Switchboard>),
    (State(sources), State(styles)): (State<Sources>, State<Styles>),
    (State(sharing), State(memory)): (State<Sharing>, State<Memory>),
    State(settings): State<Arc<DoorSettings>>,
    (State(modes), State(rigs), door): (State<Modes>, State<Rigs>, Door),
    Admitted(caller): Admitted,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, Refused> {
    let whole = whole.map(|MediaWhole(whole)| whole);
    let (mut asked, room) = read::<GenerationInputImage>(whole)?;
    let sent = Sent::image(&mut asked, &caller);
    let (mut asked, style) = styles.image(asked).await.map_err(Refusal::from)?;
    let resolved = resolved(asked.dry_run, style.as_ref());
    let resolved = resolved.map(|style| ResolvedRequest::image(&asked, style));
    let style = style.map(|style| style.usage);
    if caller.roles.contains(Roles::EDUCATION) {
        for_a_class(&mut asked);
    }
    takes_requests(&modes)?;
    webhook::check(asked.webhook.as_deref())?;
    let patron = sharing
        .patron(style.and_then(|style| style.shared_key))
        .await?;
    let payer = Payer::of(
        &caller,
        patron.as_ref(),
        asked.allow_downgrade,
        wall_clock(),
    )?;
    let payer = payer.admitted(settings.anonymous)?;
    let counter = Counter {
        requests,
        board,
        sources,
        settings,
        modes: modes.clone(),
        sender: Sender::of(caller.account, door.address),
    };
    let asking = Asking {
        caller: &caller,
        pays: patron.as_ref().unwrap_or(&caller),
        payer: &payer,
        kind: Kind::Image,
        jobs: asked.params.n,
        models: &asked.models,
        end_user: asked.proxied_account.as_deref(),
    };
    asking.check_end_user()?;
    asked.check_number_of_sources(known(&caller, &alias(&caller)).asker)?;
    let whose = Whose {
        workers: targets(&rigs, asked.targets(), asked.worker_blacklist).await?,
        is_hidden: door.is_hidden(&caller),
    };
    asked.check_batch(known(&caller, &alias(&caller)).asker)?;
    let place = asking.leave_room(&counter.requests, &counter.settings)?;
    door.keep_out_blocked()?;
    door.refuse_raiders(&caller, &modes)?;
    door.refuse_blocked_clients()?;
    let asked = moderated(&door, &caller, asked).await?;
    asked.check(known(&caller, &alias(&caller)))?;
    if asked.dry_run {
        let more = surcharge(asked.extra_source_images().len(), style.as_ref(), &payer);
        return Ok(priced(paying::estimate(&asked) + more, resolved, &memory)?);
    }
    let answer = counter
        .accept((payer, place, room), (asked, sent), style, whose)
        .await?;
    Ok(reply::json(StatusCode::ACCEPTED, &answer))
}

impl Counter {
    async fn accept(
        &self,
        (mut payer, place, room): (Payer, Option<Place>, Room),
        (mut asked, sent): (GenerationInputImage, Sent),
        style: Option<Use>,
        whose: Whose,
    ) -> Result<RequestAsync, Refused> {
        // Differs from the request id in replies and logs, because this id gives access to the images.
        let id = RequestId::random();
        let more = surcharge(asked.extra_source_images().len(), style.as_ref(), &payer);
        let price = kudos(paying::estimate(&asked) + more);
        let of_key = cover(&mut payer, price, (&self.requests, id)).await?;
        let (overview, names) = (self.board.overview(), &self.settings.names);
        let till = Till {
            requests: &self.requests,
            request: id,
            payer: &payer,
            crowd: crowd(&overview, Kind::Image),
        };
        let kept = paying::upfront(&mut asked, &till).await?;
        if let Some(limits) = payer.limits() {
            let params = &asked.params;
            limits.admit_image(params.width, params.height, params.steps())?;
        }
        let sources = sources::take((&self.sources, self.sender), id, &mut asked).await?;
        let price = paying::drawing(&asked).price().round();
        let mut warnings = reference::warnings(&asked.models, &asked.params);
        let order = Order::new(id, &payer, Asked::image(asked));
        let order = order.for_workers(whose).sent_as(sent);
        let request = NewRequest {
            kept: of_key.into_iter().chain(kept).collect(),
            place,
            sources: Some(sources),
            ..order.request(payer.standing, style, names)
        };
        // Each job holds the prompt, and all of them share the rest.
        let copies = 1 + request.jobs.len();
        let request = with_memory(request, copies, &room)?;
        let accepted = self.requests.accept(request).await;
        let accepted = accepted.map_err(|error| refusal(&error))?;
        let mut answer = RequestAsync::accepted(id, price);
        let is_possible = progress::is_possible(&accepted, &self.board).await;
        answer.message = notice(&order, &self.modes, is_possible);
        let told = answer.message.as_deref().filter(|_| !is_possible);
        warnings.extend(told.map(nobody));
        answer.warnings = Some(warnings).filter(|warnings| !warnings.is_empty());
        Ok(answer)
    }
}

/// Requests of education accounts are always SFW, go to trusted workers only and are never shared.
fn for_a_class(asked: &mut GenerationInputImage) {
    asked.nsfw = false;
    asked.censor_nsfw = true;
    asked.trusted_workers = true;
    asked.shared = false;
}

fn alias(caller: &Caller) -> String {
    Alias {
        name: &caller.name,
        account: caller.account,
    }
    .to_string()
}

fn known<'a>(caller: &Caller, alias: &'a str) -> Known<'a> {
    Known {
        baseline: &reference::family,
        asker: Asker {
            alias,
            special: caller.has(Roles::SPECIAL),
            trusted: caller.has(Roles::TRUSTED),
        },
    }
}

/// The request with its prompt moderated.
async fn moderated(
    door: &Door,
    caller: &Caller,
    mut asked: GenerationInputImage,
) -> Result<GenerationInputImage, Refusal> {
    let prompt = Prompt {
        text: &asked.prompt,
        medium: Medium::Image,
        may_be_rewritten: asked.replacement_filter,
        models: &asked.models,
    };
    if let Some(rewritten) = door.examine(prompt, caller).await? {
        asked.prompt = rewritten;
    }
    Ok(asked)
}

fn nobody(message: &str) -> RequestSingleWarning {
    RequestSingleWarning {
        code: Warning::NoAvailableWorker,
        message: message.to_owned(),
    }
}
