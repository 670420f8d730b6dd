//! `/v1/account/credits`: the funds of an account, and quotes for requests. Amounts are in micro-USD, and in USD
//! for people.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Value, json};

use super::{AccountCaller, unavailable};
use crate::accounts::Caller;
use crate::billing::{Charging, Funds, MicroUsd, ModelRates, modality};
use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::generation::bodies::read;
use crate::http::open::KnownModels;
use crate::http::reply::Reply;
use crate::state::DoorSettings;
use crate::storage::{AccountCredits, CreditRow, Store};
use crate::switchboard::Switchboard;
use crate::workers::output_room;
use muster_protocol::job::{Kind, TranscriptionRequest};
use muster_protocol::openai::account::QuoteRequest;

/// The money of an account.
struct Credits {
    row: CreditRow,
    held: MicroUsd,
    funds: Funds,
}

pub async fn show(
    State(store): State<Store>,
    State(settings): State<Arc<DoorSettings>>,
    AccountCaller(caller): AccountCaller,
) -> Result<Reply, ApiError> {
    let credits = Credits::of(&caller, &store, &settings).await?;
    Ok(Reply(credits.summary(&caller, &settings)))
}

pub async fn quote(
    State(store): State<Store>,
    State(settings): State<Arc<DoorSettings>>,
    (State(models), State(board)): (State<Arc<KnownModels>>, State<Switchboard>),
    member: Result<AccountCaller, ApiError>,
    whole: Result<Whole, ApiError>,
) -> Result<Reply, ApiError> {
    let (whole, AccountCaller(caller)) = (whole?, member?);
    let request = read(whole, QuoteRequest::read).await?;
    let model = models.id(&request.model);
    let overview = board.current().await;
    let online = overview.models.iter().find(|online| online.name == model);
    let context = online.map_or(0, |online| online.context);
    let names = models.priced_names(&model);
    let rates = settings.price_book.rates(names.iter().map(|name| &**name));
    let cost = rates.and_then(|rates| cost(rates, &request, context));
    let credits = Credits::of(&caller, &store, &settings).await?;
    let mut summary = credits.summary(&caller, &settings);
    summary["estimate"] = credits.estimate(cost);
    Ok(Reply(summary))
}

/// `None` if the model has no price for this kind of output.
fn cost(rates: &ModelRates, request: &QuoteRequest, context: u32) -> Option<MicroUsd> {
    let of_one = match modality(request.modality)? {
        Kind::Text => {
            let prompt = u32::try_from(request.prompt_tokens).unwrap_or(u32::MAX);
            let rest = output_room(context, prompt).into();
            let output = request.max_tokens.unwrap_or(rest);
            let price = rates.text().or_else(|| rates.reading())?;
            price.of_tokens(request.prompt_tokens, output)
        }
        Kind::Transcription => {
            let tokens = TranscriptionRequest {
                seconds: request.millis as f64 / 1000.0,
                ..TranscriptionRequest::default()
            };
            let price = rates.transcription(request.millis)?;
            price.of_tokens(tokens.tokens(), 0)
        }
        Kind::Speech => rates.spoken(request.characters)?,
        kind => rates.output(kind, request.millis)?,
    };
    Some(MicroUsd(of_one.0.saturating_mul(request.outputs)))
}

impl Credits {
    async fn of(caller: &Caller, store: &Store, settings: &DoorSettings) -> Result<Self, ApiError> {
        let credits = store.credits(caller.account, wall_clock()).await;
        let AccountCredits { row, held } = credits.map_err(unavailable)?;
        Ok(Self {
            row,
            held,
            funds: row.funds(settings.free_credits_per_day),
        })
    }

    fn summary(&self, caller: &Caller, settings: &DoorSettings) -> Value {
        let Funds {
            promotional,
            free,
            paid,
        } = self.funds;
        let cap = settings.free_credits_per_day;
        let most = settings.free_requests_per_day;
        json!({
            "account_id": caller.account.0.to_string(),
            "promotional": {
                "remaining_micro": promotional.0,
                "remaining_usd": promotional.usd(),
                "active": promotional.0 > 0,
            },
            "free": {
                "daily_cap_micro": cap.0,
                "daily_cap_usd": cap.usd(),
                "remaining_micro": free.0,
                "remaining_usd": free.usd(),
                "resets": "utc-midnight",
                "active": cap.0 > 0,
            },
            "paid": {"balance_micro": paid.0, "balance_usd": paid.usd()},
            "held_micro": self.held.0,
            "held_usd": self.held.usd(),
            "total_spendable_micro": self.funds.total().0,
            "total_spendable_usd": self.funds.total().usd(),
            "free_requests": {
                "daily_cap": most,
                "remaining": most.map(|most| most.saturating_sub(self.row.requests)),
                "resets": "utc-midnight",
            },
            "charging_enabled": settings.charging.includes(caller.login.as_deref()),
            "charging_mode": settings.charging.mode(),
            "charging_global": settings.charging == Charging::On,
        })
    }

    fn estimate(&self, cost: Option<MicroUsd>) -> Value {
        let amount = cost.unwrap_or_default();
        let part = self.funds.part(amount);
        let shortfall = MicroUsd(amount.0.saturating_sub(part.total().0));
        json!({
            "priced": cost.is_some(),
            "reason": cost.is_none().then_some("no_price"),
            "base_cost_micro": amount.0,
            "discount_bps": 0,
            "cost_micro": amount.0,
            "cost_usd": amount.usd(),
            "balance_sufficient": cost.is_some() && shortfall.0 == 0,
            "from_promotional_micro": part.promotional.0,
            "from_daily_micro": part.free.0,
            "from_paid_micro": part.paid.0,
            "shortfall_micro": shortfall.0,
            "shortfall_usd": shortfall.usd(),
        })
    }
}
