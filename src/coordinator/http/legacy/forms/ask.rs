//! `POST /api/v2/interrogate/async`: queues an interrogation of an image.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::super::body::{read, with_memory};
use super::super::images::look_at;
use super::super::moderation::Door;
use super::super::progress;
use super::super::requested::{Asking, notice, refusal};
use super::super::service::takes_requests;
use crate::accounts::Payer;
use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::MediaWhole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::webhook;
use crate::http::reply;
use crate::modes::Modes;
use crate::pictures::Sources;
use crate::requests::orders::{Asked, Whose};
use crate::requests::{NewRequest, Order, Requests};
use crate::sender::Sender;
use crate::state::DoorSettings;
use crate::switchboard::Switchboard;
use muster_protocol::job::{Kind, RequestId};
use muster_protocol::legacy::interrogation::{
    ModelInterrogationInputImage, RequestInterrogationResponse,
};
use muster_protocol::legacy::words::Word;

pub async fn ask(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(sources): State<Sources>,
    State(settings): State<Arc<DoorSettings>>,
    (State(modes), door): (State<Modes>, Door),
    Admitted(caller): Admitted,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, Refused> {
    let whole = whole.map(|MediaWhole(whole)| whole);
    let (mut asked, room) = read::<ModelInterrogationInputImage>(whole)?;
    asked.check()?;
    takes_requests(&modes)?;
    webhook::check(asked.webhook.as_deref())?;
    let forms = asked.forms.iter().flatten();
    let forms: Vec<String> = forms.map(|form| form.name.word().to_owned()).collect();
    let payer = Payer::of(&caller, None, false, wall_clock())?;
    let asking = Asking {
        caller: &caller,
        pays: &caller,
        payer: &payer,
        kind: Kind::Form,
        jobs: u32::try_from(forms.len()).unwrap_or(u32::MAX),
        models: &forms,
        end_user: None,
    };
    let place = asking.leave_room(&requests, &settings)?;
    door.refuse_raiders(&caller, &modes)?;
    door.refuse_blocked_clients()?;
    // Differs from the request id in replies and logs, because this id gives access to the results.
    let id = RequestId::random();
    let sender = Sender::of(caller.account, door.address);
    let (size, sources) = match forms.is_empty() {
        // Requests without forms are stored as failed (F-119 of the AI Horde API), so their image is not checked.
        true => {
            asked.source_image.clear();
            ((0, 0), sources.holding())
        }
        false => look_at((&sources, sender), id, &mut asked.source_image).await?,
    };
    let whose = Whose {
        is_hidden: door.is_hidden(&caller),
        ..Whose::default()
    };
    let order = Order::new(id, &payer, Asked::forms(asked, size)).for_workers(whose);
    let request = NewRequest {
        place,
        sources: Some(sources),
        ..order.request(payer.standing, None, &settings.names)
    };
    // Each job has its own form.
    let accepted = requests.accept(with_memory(request, 1, &room)?).await;
    let accepted = accepted.map_err(|error| refusal(&error))?;
    let is_possible = progress::is_possible(&accepted, &board).await;
    let message = notice(&order, &modes, is_possible);
    let answer = RequestInterrogationResponse { id, message };
    Ok(reply::json(StatusCode::ACCEPTED, &answer))
}
