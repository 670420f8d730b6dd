//! `POST /v1/responses` and `POST /v1/responses/input_tokens`

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use crate::accounts::{Accounts, Thoughts};
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::generation::bodies::answer;
use crate::http::generation::encode::Encoder;
use crate::http::room::Memory;
use crate::http::text::{Incoming, TextEndpoint, is_too_long};
use crate::responses::{
    EarlierResponses, LinkError, MemoryFull, NotRecorded, OverQuota, RequestTexts, Responses,
    StoreResponses,
};
use crate::state::DoorSettings;
use muster_process::tasks::Tasks;
use muster_protocol::job::FailureKind;
use muster_protocol::openai::Problem;
use muster_protocol::openai::encode::TokenizeRequest;
use muster_protocol::openai::responses::{self, Context, Intent, stored_input};

use super::background;

/// The fraction of all items dropped at a time until the input fits the model.
const DROPPED_PART: usize = 8;

pub async fn create(
    State(responses): State<Responses>,
    State(accounts): State<Accounts>,
    State(tasks): State<Tasks>,
    State(settings): State<Arc<DoorSettings>>,
    endpoint: TextEndpoint,
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let mut incoming = endpoint.incoming(body?)?.parse().await?;
    let intent = Intent::of(incoming.body());
    let sources = sources(&responses, &endpoint, &intent, &mut incoming).await?;
    let mut context = context(&accounts, &endpoint, &sources);
    context.stores_by_default = settings.responses.store == StoreResponses::UnlessRefused;
    if settings.responses.store == StoreResponses::Never && intent.store == Some(true) {
        return Err(never_stores());
    }
    if !intent.store.unwrap_or(context.stores_by_default) {
        return foreground(&endpoint, incoming, context, intent.truncates).await;
    }
    let account = endpoint.caller().account;
    let input = own_input(&endpoint, incoming.body(), &sources);
    let request = RequestTexts {
        input: Value::Array(input).to_string(),
        body: intent.background.then(|| incoming.body().to_string()),
    };
    let model = incoming.body()["model"].as_str().map(str::to_owned);
    let recording = responses.record(account, &intent, model, request).await;
    let recording = recording.map_err(|error| not_recorded(&responses, error))?;
    context.recorder = Some(Arc::new(recording.clone()));
    match intent.background {
        true => {
            let run = background::Run {
                endpoint,
                incoming,
                context,
                truncates: intent.truncates,
                recording,
            };
            background::start(run, &responses, &tasks, intent.stream).await
        }
        false => foreground(&endpoint, incoming, context, intent.truncates).await,
    }
}

/// Counts the input's tokens on a worker of the model.
pub async fn count_tokens(
    State(responses): State<Responses>,
    (State(accounts), State(memory)): (State<Accounts>, State<Memory>),
    endpoint: TextEndpoint,
    encoder: Result<Encoder, ApiError>,
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let mut incoming = endpoint.incoming(body?)?.parse().await?;
    let intent = Intent::of(incoming.body());
    let sources = sources(&responses, &endpoint, &intent, &mut incoming).await?;
    let context = context(&accounts, &endpoint, &sources);
    let read = move |body, wanted: &_| responses::read(body, wanted, &context);
    let request = endpoint.read(incoming, read).await?;
    let requires = request.requires();
    let request = TokenizeRequest::of(request.model, request.text.input, requires);
    let (tokens, job) = encoder?.tokenize(request).await?;
    let reply = json!({"object": "response.input_tokens", "input_tokens": tokens.ids.len()});
    answer(memory.room_to_tell(), Some(job), reply.to_string()).await
}

pub(super) async fn sources(
    responses: &Responses,
    endpoint: &TextEndpoint,
    intent: &Intent,
    incoming: &mut Incoming<Value>,
) -> Result<EarlierResponses, ApiError> {
    let account = endpoint.caller().account;
    let chain = responses.chain(account, intent).await.map_err(not_found)?;
    endpoint.find_room(incoming, chain.bytes()).await?;
    let sources = responses.sources(account, intent, &chain).await;
    sources.map_err(not_found)
}

fn not_found(error: LinkError) -> ApiError {
    match error {
        LinkError::Storage(_) => no_store(),
        error => Problem::invalid("previous_response_id", error.to_string()).into(),
    }
}

pub(super) fn context(
    accounts: &Accounts,
    endpoint: &TextEndpoint,
    sources: &EarlierResponses,
) -> Context {
    Context {
        history: sources.history.clone(),
        referenced: sources.referenced.clone(),
        sealer: Arc::new(Thoughts::new(accounts, endpoint.caller().account)),
        recorder: None,
        dropped: 0,
        stores_by_default: true,
    }
}

/// The input as listed later: with ids, and with the items that it refers to.
pub(super) fn own_input(
    endpoint: &TextEndpoint,
    body: &Value,
    sources: &EarlierResponses,
) -> Vec<Value> {
    let request = endpoint.request().0.simple().to_string();
    let items = stored_input(&body["input"], &request).into_iter();
    let known = |item: Value| {
        let id = item["id"].as_str().unwrap_or_default();
        match sources.referenced.get(id) {
            Some(known) if item["type"] == "item_reference" => known.clone(),
            _ => item,
        }
    };
    items.map(known).collect()
}

/// With `truncates`, drops the oldest items if the input is too long for the model.
pub(super) async fn foreground(
    endpoint: &TextEndpoint,
    incoming: Incoming<Value>,
    mut context: Context,
    truncates: bool,
) -> Result<Response, ApiError> {
    if !truncates {
        return serve(endpoint, incoming, context).await;
    }
    let own = incoming.body()["input"].as_array().map_or(1, Vec::len);
    let items = context.history.len() + own;
    loop {
        let again = endpoint.again(&incoming)?;
        let answer = serve(endpoint, again, context.clone()).await;
        let is_last = context.dropped + 1 >= items;
        if is_last || !is_too_long(&answer) {
            return answer;
        }
        let more = items.div_ceil(DROPPED_PART);
        context.dropped = (context.dropped + more).min(items - 1);
    }
}

async fn serve(
    endpoint: &TextEndpoint,
    incoming: Incoming<Value>,
    context: Context,
) -> Result<Response, ApiError> {
    let read = move |body, wanted: &_| responses::read(body, wanted, &context);
    endpoint.serve(incoming, read).await
}

fn not_recorded(responses: &Responses, error: NotRecorded) -> ApiError {
    const MIB: usize = 1 << 20;
    let full = match error {
        NotRecorded::Storage(_) => return no_store(),
        NotRecorded::OverQuota(quota) => return over_quota(quota),
        NotRecorded::NoMemory(full) => full,
    };
    match full {
        MemoryFull::Account => {
            let share = responses.memory_limits().share / MIB;
            let message = format!(
                "background responses of your account take {share} MiB of memory, the most there is for one account: \
                 retry when some have ended"
            );
            ApiError::new(FailureKind::InFlightLimit, message)
        }
        MemoryFull::All => {
            let message = "server busy: memory for background responses exhausted, retry later";
            ApiError::new(FailureKind::QueueFull, message)
        }
    }
}

fn never_stores() -> ApiError {
    let message = "this service stores no responses (serve.store_responses): leave out store, or send \"store\": false";
    Problem::unsupported("store", message).into()
}

fn over_quota(quota: OverQuota) -> ApiError {
    let stored = match quota {
        OverQuota::Responses(most) => format!("{most} responses (serve.stored_responses)"),
        OverQuota::Bytes(most) => {
            format!("{most} bytes of responses (serve.stored_response_bytes)")
        }
    };
    let message = format!(
        "your account stores {stored}, the most it may: delete some with DELETE /v1/responses/{{id}}, or send \
         \"store\": false"
    );
    ApiError::new(FailureKind::StorageQuota, message)
}

pub(super) fn no_store() -> ApiError {
    let message = "looking up the response failed: the database does not answer; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}
