//! Upfront payment of requests, and the price of texts for it.

use super::requested::unavailable;
use crate::accounts::Payer;
use crate::kudos::{Crowd, activation_fee, estimate_text, text_hold, text_needs_it};
use crate::requests::{Kept, Requests};
use crate::state::DoorSettings;
use crate::storage::Purse;
use crate::switchboard::Overview;
use crate::values::styles::Use;
use muster_protocol::job::{Kind, Kudos, RequestId};
use muster_protocol::legacy::text::request::GenerationInputText;
use muster_protocol::legacy::{Code, Refusal};

/// Holds the price of a request against the payer's shared key, if the key has a budget. If the budget is lower and the
/// request sets `allow_downgrade`, holds the rest of it: the key never pays more.
pub async fn cover(
    payer: &mut Payer,
    price: Kudos,
    (requests, request): (&Requests, RequestId),
) -> Result<Option<Kept>, Refusal> {
    payer.note_price(price);
    let Some(key) = payer.limited_key() else {
        return Ok(None);
    };
    let kept = requests.keep(request, Purse::Key(key), price).await;
    let kept = kept.map_err(|_| unavailable())?;
    if kept.is_some() {
        return Ok(kept);
    }
    payer.fall_short()?;
    let rest = requests.keep_rest(request, key, price).await;
    let rest = rest.map_err(|_| unavailable())?;
    // The rest is held for other requests, and may be released later.
    Code::SharedKeyInsufficientKudos.when(rest.is_none())?;
    Ok(rest)
}

/// Places the kudos hold of a request.
pub struct Till<'a> {
    pub requests: &'a Requests,
    pub request: RequestId,
    pub payer: &'a Payer,
    /// Workers online and requests queued for this kind.
    pub crowd: Crowd,
}

impl Till<'_> {
    /// `None` if the balance is too low. A shared key's shortfall is not charged to the key's owner.
    pub async fn keep(&self, amount: Kudos) -> Result<Option<Kept>, Refusal> {
        if self.payer.falls_short() {
            return Ok(None);
        }
        let purse = Purse::Account(self.payer.account);
        let kept = self.requests.keep(self.request, purse, amount).await;
        kept.map_err(|_| unavailable())
    }
}

/// The price beyond every estimate: source images after the first, and a style of another user.
pub fn surcharge(extra_sources: usize, style: Option<&Use>, payer: &Payer) -> f64 {
    let of_another = style.is_some_and(|used| used.owner != payer.account);
    let more = activation_fee(extra_sources, of_another).0 - activation_fee(0, false).0;
    more as f64 / 1000.0
}

/// Estimated price of the request, in whole kudos.
pub fn estimate(asked: &GenerationInputText, settings: &DoorSettings) -> f64 {
    let params = &asked.params;
    let models = models(asked, settings);
    let models: Vec<&str> = models.iter().map(|model| &**model).collect();
    let (length, context) = (params.max_length, params.max_context_length);
    estimate_text(length, context, &models, &settings.sizes, asked.outputs())
}

/// Holds the price of a large request; `None` if the request needs no hold. If the balance is too low and the request
/// sets `allow_downgrade`, the text is shortened until it needs none.
pub async fn upfront(
    asked: &mut GenerationInputText,
    till: &Till<'_>,
    settings: &DoorSettings,
) -> Result<Option<Kept>, Refusal> {
    let crowd = till.crowd;
    if !text_needs_it(asked.slow_workers, asked.params.max_length, crowd) {
        return Ok(None);
    }
    let models = models(asked, settings);
    let models: Vec<&str> = models.iter().map(|model| &**model).collect();
    let length = asked.params.max_length;
    let amount = text_hold(length, &models, &settings.sizes, asked.outputs());
    let kept = till.keep(amount).await?;
    if kept.is_none() {
        Code::KudosUpfront.when(!asked.allow_downgrade)?;
        asked.slow_workers = true;
        asked.params.max_length = length.min(crowd.longest_text());
    }
    Ok(kept)
}

/// Workers online for this kind, and its queue.
pub fn crowd(overview: &Overview, kind: Kind) -> Crowd {
    let workers = overview.workers.iter();
    let (mut threads, mut running) = (0, 0);
    for worker in workers.filter(|worker| worker.kinds.contains(kind)) {
        threads += worker.slots;
        running += worker.running as u64;
    }
    let open = overview.demands.of(kind).jobs;
    Crowd {
        threads: u32::try_from(threads).unwrap_or(u32::MAX),
        waiting: u32::try_from(open.saturating_sub(running)).unwrap_or(u32::MAX),
    }
}

pub fn kudos(whole: f64) -> Kudos {
    // The cast saturates.
    Kudos((whole * 1000.0) as i64)
}

fn models(asked: &GenerationInputText, settings: &DoorSettings) -> Vec<std::sync::Arc<str>> {
    let names = asked.models.iter();
    names.map(|name| settings.names.id(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::crowd;
    use crate::kudos::Crowd;
    use crate::switchboard::Overview;
    use muster_protocol::job::Kind;

    #[test]
    fn where_nobody_is_nothing_waits() {
        assert_eq!(crowd(&Overview::default(), Kind::Image), Crowd::default());
    }
}
