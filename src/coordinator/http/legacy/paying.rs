//! What a text request costs before it is made.

use super::refused::Refused;
use crate::coordinator::kudos::{Crowd, Payer, estimate_text, text_hold, text_needs_it};
use crate::coordinator::state::DoorSettings;
use crate::coordinator::storage::Store;
use crate::coordinator::switchboard::Overview;
use crate::protocol::job::{Kind, Kudos};
use crate::protocol::legacy::Code;
use crate::protocol::legacy::text::request::GenerationInputText;

/// What all of it is said to cost, in whole kudos.
pub fn estimate(asked: &GenerationInputText, settings: &DoorSettings) -> f64 {
    let params = &asked.params;
    let models = models(asked, settings);
    let models: Vec<&str> = models.iter().map(|model| &**model).collect();
    let (length, context) = (params.max_length, params.max_context_length);
    estimate_text(length, context, &models, &settings.sizes, asked.outputs())
}

/// What is to be kept until it has ended, if anything is. Where there is not enough, and whoever asked prefers a
/// smaller text to none, it becomes one that costs nothing before.
pub async fn upfront(
    asked: &mut GenerationInputText,
    payer: &Payer,
    overview: &Overview,
    settings: &DoorSettings,
    store: &Store,
) -> Result<Option<Kudos>, Refused> {
    let crowd = crowd(overview, Kind::Text);
    if !text_needs_it(asked.slow_workers, asked.params.max_length, crowd) {
        return Ok(None);
    }
    let models = models(asked, settings);
    let models: Vec<&str> = models.iter().map(|model| &**model).collect();
    let length = asked.params.max_length;
    let amount = text_hold(length, &models, &settings.sizes, asked.outputs());
    if store.spendable(payer.account).await? >= amount {
        return Ok(Some(amount));
    }
    Code::KudosUpfront.when(!asked.allow_downgrade)?;
    asked.slow_workers = true;
    asked.params.max_length = length.min(crowd.longest_text());
    Ok(None)
}

/// Who is there for this kind of work, and what waits of it.
pub fn crowd(overview: &Overview, kind: Kind) -> Crowd {
    let workers = overview.workers.iter();
    let slots = workers
        .filter(|worker| worker.kinds.contains(kind))
        .map(|worker| worker.slots);
    let of_others = overview
        .models
        .iter()
        .filter(|model| !model.kinds.contains(kind));
    let others: usize = of_others.map(|model| model.queued).sum();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Crowd {
        threads: count(slots.sum()),
        waiting: count(overview.queued.saturating_sub(others)),
    }
}

pub fn kudos(whole: f64) -> Kudos {
    // A cast saturates.
    Kudos((whole * 1000.0) as i64)
}

fn models(asked: &GenerationInputText, settings: &DoorSettings) -> Vec<std::sync::Arc<str>> {
    let names = asked.models.iter();
    names.map(|name| settings.names.id(name)).collect()
}
