//! Text requests: create, status, cancel.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::body::{read, with_memory};
use super::moderation::Door;
use super::paying::{self, Till};
use super::progress;
use super::requested::{
    Asking, find, made, notice, priced, refusal, resolved, room_to_tell, targets, unavailable,
};
use super::service::takes_requests;
use super::streamed::{self, Source};
use crate::accounts::{Caller, Payer};
use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::legacy::webhook;
use crate::http::reply;
use crate::http::room::Memory;
use crate::moderation::{Medium, Prompt};
use crate::modes::Modes;
use crate::requests::orders::{Asked, Sent, Whose};
use crate::requests::{Made, NewRequest, Order, Output, Request, Requests, results};
use crate::rigs::Rigs;
use crate::sharing::Sharing;
use crate::state::DoorSettings;
use crate::storage::Store;
use crate::styles::Styles;
use crate::switchboard::Switchboard;
use crate::values::Roles;
use muster_process::tasks::Tasks;
use muster_protocol::job::{Kind, RequestId};
use muster_protocol::legacy::requests::{RequestAsync, ResolvedRequest};
use muster_protocol::legacy::text::request::GenerationInputText;
use muster_protocol::legacy::text::status::{GenerationText, RequestStatusText};
use muster_protocol::legacy::{Code, Refusal};

/// `POST /api/v2/generate/text/async`
pub async fn ask(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(settings): State<Arc<DoorSettings>>,
    (State(modes), State(rigs), door): (State<Modes>, State<Rigs>, Door),
    (State(styles), State(sharing), State(memory)): (State<Styles>, State<Sharing>, State<Memory>),
    Admitted(caller): Admitted,
    body: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let (mut asked, room) = read::<GenerationInputText>(body)?;
    // Checked first, since a style would hide it.
    Code::MissingPrompt.when(asked.prompt.is_empty())?;
    let sent = Sent::text(&mut asked, &caller);
    let (mut asked, style) = styles.text(asked).await.map_err(Refusal::from)?;
    let resolved = resolved(asked.dry_run, style.as_ref());
    let resolved = resolved.map(|style| ResolvedRequest::text(&asked, style));
    let style = style.map(|style| style.usage);
    takes_requests(&modes)?;
    webhook::check(asked.webhook.as_deref())?;
    // Requests of education accounts go to trusted workers only.
    asked.trusted_workers |= caller.roles.contains(Roles::EDUCATION);
    let patron = sharing
        .patron(style.and_then(|style| style.shared_key))
        .await?;
    let payer = Payer::of(
        &caller,
        patron.as_ref(),
        asked.allow_downgrade,
        wall_clock(),
    )?;
    let mut payer = payer.admitted(settings.anonymous)?;
    let asking = Asking {
        caller: &caller,
        pays: patron.as_ref().unwrap_or(&caller),
        payer: &payer,
        kind: Kind::Text,
        jobs: asked.outputs(),
        models: &asked.models,
        end_user: asked.proxied_account.as_deref(),
    };
    asking.check_end_user()?;
    let price = paying::estimate(&asked, &settings) + paying::surcharge(0, style.as_ref(), &payer);
    let is_trusted = caller.roles.contains(Roles::TRUSTED);
    if asked.dry_run {
        asked.check(is_trusted)?;
        return Ok(priced(price, resolved, &memory)?);
    }
    let whose = Whose {
        workers: targets(&rigs, asked.targets(), asked.worker_blacklist).await?,
        is_hidden: door.is_hidden(&caller),
    };
    asked.check_batch(is_trusted)?;
    // The payer's concurrency limit applies, not the caller's.
    let place = asking.leave_room(&requests, &settings)?;
    door.keep_out_blocked()?;
    asked.check(is_trusted)?;
    door.refuse_raiders(&caller, &modes)?;
    door.refuse_blocked_clients()?;
    asked = moderated(&door, &caller, asked).await?;
    // Differs from the request id in replies and logs, because this id gives access to the text.
    let id = RequestId::random();
    let of_key = paying::cover(&mut payer, paying::kudos(price), (&requests, id)).await?;
    let till = Till {
        requests: &requests,
        request: id,
        payer: &payer,
        crowd: paying::crowd(&board.overview(), Kind::Text),
    };
    let kept = paying::upfront(&mut asked, &till, &settings).await?;
    if let Some(limits) = payer.limits() {
        limits.admit_text(asked.params.max_length)?;
    }
    let order = Order::new(id, &payer, Asked::text(asked));
    let order = order.for_workers(whose).sent_as(sent);
    let request = NewRequest {
        kept: of_key.into_iter().chain(kept).collect(),
        place,
        ..order.request(payer.standing, style, &settings.names)
    };
    // Each job has the prompt.
    let copies = request.jobs.len();
    let accepted = requests.accept(with_memory(request, copies, &room)?).await;
    let accepted = accepted.map_err(|error| refusal(&error))?;
    let mut answer = RequestAsync::accepted(id, 0.0);
    let is_possible = progress::is_possible(&accepted, &board).await;
    answer.message = notice(&order, &modes, is_possible);
    Ok(reply::json(StatusCode::ACCEPTED, &answer))
}

/// `GET /api/v2/generate/text/status/{id}`
pub async fn status(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(store): State<Store>,
    State(settings): State<Arc<DoorSettings>>,
    (State(memory), State(tasks)): (State<Memory>, State<Tasks>),
    headers: HeaderMap,
    path: Named,
) -> Result<Response, Refused> {
    let request = find(&requests, &path, Kind::Text).await?;
    if streamed::is_wanted(&headers) {
        let source = Source {
            request,
            board,
            store,
            memory,
        };
        let streamed = streamed::open(source, settings.heartbeat, tasks.stopping());
        return Ok(streamed.await?);
    }
    let progress = progress::of(&request, &board, &store).await;
    let made = made(&request);
    let room = room_to_tell(&made, &memory)?;
    let status = RequestStatusText {
        progress,
        generations: generations(&made),
    };
    Ok(reply::json_in(room, StatusCode::OK, &status))
}

/// `DELETE /api/v2/generate/text/status/{id}`: cancels, and returns the status before that. If the memory budget is
/// exhausted, the request is cancelled all the same, and the client may retry.
pub async fn cancel(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(store): State<Store>,
    State(memory): State<Memory>,
    path: Named,
) -> Result<Response, Refused> {
    let request = find(&requests, &path, Kind::Text).await?;
    let progress = progress::of(&request, &board, &store).await;
    let made = made(&request);
    let cancelled = requests.cancel(&request).await;
    cancelled.map_err(|_| unavailable())?;
    let room = room_to_tell(&made, &memory)?;
    let status = RequestStatusText {
        progress,
        generations: generations(&made),
    };
    Ok(reply::json_in(room, StatusCode::OK, &status))
}

/// The request with its prompt moderated.
async fn moderated(
    door: &Door,
    caller: &Caller,
    mut asked: GenerationInputText,
) -> Result<GenerationInputText, Refusal> {
    let prompt = Prompt {
        text: &asked.prompt,
        medium: Medium::Text,
        // This API has no field for it.
        may_be_rewritten: false,
        models: &asked.models,
    };
    if let Some(rewritten) = door.examine(prompt, caller).await? {
        asked.prompt = rewritten;
    }
    Ok(asked)
}

pub(super) async fn look(
    request: &Request,
    board: &Switchboard,
    store: &Store,
) -> RequestStatusText {
    RequestStatusText {
        progress: progress::of(request, board, store).await,
        generations: generations(&made(request)),
    }
}

fn generations(made: &[(&Output, &Made)]) -> Vec<GenerationText> {
    let made = made.iter();
    made.map(|(output, made)| results::text(output, made))
        .collect()
}
