//! The models' parts of a device's memory. KV caches shrink for another model and grow again.

use tracing::{error, info};

use super::super::DaemonError;
use super::super::fit::{Fit, Needs, Refusal, fit};
use super::super::locate::Located;
use super::{Device, shared};
use muster_engine::runtime::{PAGE_TOKENS, SharedWeights};

/// A model's part of the memory, which others may use while the model is not in memory.
pub(super) struct HeldModel {
    pub name: String,
    pub fit: Fit,
    /// Tokens below which its KV cache does not shrink, and beyond which it does not grow.
    pub least_tokens: usize,
    pub most_tokens: usize,
    /// The weights that other models may hold, too.
    pub shared: Vec<SharedWeights>,
    /// The model of an adapter, with which it leaves the memory.
    pub base: Option<String>,
    pub is_loaded: bool,
}

/// Models and pages that make room for another model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leaving<'a> {
    pub models: &'a [String],
    /// Pages of the other models beyond the longest context of one job.
    pub spare_pages: bool,
}

/// A KV cache grows by at least this part of its largest size.
const LEAST_GROWTH: usize = 8;

impl HeldModel {
    /// Memory that its KV cache can give to another model.
    pub fn spare_bytes(&self) -> u64 {
        let spare = self.fit.kv_tokens.saturating_sub(self.least_tokens);
        self.fit.kv_bytes_per_token() * spare as u64
    }

    pub fn least(&self) -> Fit {
        self.fit.with_tokens(self.least_tokens)
    }

    pub fn most(&self) -> Fit {
        self.fit.with_tokens(self.most_tokens)
    }

    /// With the largest KV cache in this memory.
    pub fn within(&self, bytes: u64) -> Fit {
        let spare = bytes.saturating_sub(self.least().total_bytes);
        let tokens = spare.checked_div(self.fit.kv_bytes_per_token());
        let tokens = tokens.and_then(|tokens| usize::try_from(tokens).ok());
        let tokens = self.least_tokens + whole_pages(tokens.unwrap_or(0));
        self.fit.with_tokens(tokens.min(self.most_tokens))
    }
}

impl Device {
    /// A model's part of the memory, with the KV cache that it would have beside the least caches of the others.
    pub(super) fn hold(&self, located: &Located, fitted: Fit) -> Result<HeldModel, DaemonError> {
        let shared = shared(located)?;
        let room = self.room_for(&shared, SPARE_PAGES);
        let most = fit(self.needs(located, &room)?, self.wishes, &room);
        let most_tokens = most.map_or(0, |most| most.kv_tokens);
        Ok(HeldModel {
            name: located.name.clone(),
            fit: fitted,
            least_tokens: match self.wishes.kv_bytes {
                // The owner's choice.
                Some(_) => fitted.kv_tokens,
                None => fitted.least_tokens(),
            },
            most_tokens: most_tokens.max(fitted.kv_tokens),
            shared,
            base: None,
            is_loaded: true,
        })
    }

    pub(super) fn held(&self, name: &str) -> Option<&HeldModel> {
        self.held.iter().find(|held| held.name == name)
    }

    /// Takes note of a changed KV cache.
    pub(super) fn take_note(&mut self, name: &str, fitted: Fit) {
        for held in self.held.iter_mut().filter(|held| held.name == name) {
            held.fit = fitted;
        }
        self.room = self.room_for(&[], Leaving::default());
    }

    /// Memory that a new model lacks for a job of the default context.
    pub fn missing_bytes(&self, located: &Located) -> Result<u64, DaemonError> {
        let room = self.room_for(&shared(located)?, Leaving::default());
        let needs = self.needs(located, &room)?;
        let wanted = Fit::usual_bytes(&needs, &self.wishes, room.device);
        Ok(wanted.saturating_sub(room.left_bytes()))
    }

    /// Memory that an unloaded model lacks for its context.
    pub fn missing_again_bytes(&self, name: &str) -> u64 {
        self.held(name).map_or(0, |held| {
            let room = self.room_for(&held.shared, Leaving::default());
            held.least().total_bytes.saturating_sub(room.left_bytes())
        })
    }

    /// Whether an unloaded model fits again with its context, once these have left.
    pub fn fits_again(&self, name: &str, leaving: Leaving<'_>) -> Result<(), DaemonError> {
        let Some(held) = self.held(name) else {
            return Ok(());
        };
        let (fit, room) = (held.least(), self.room_for(&held.shared, leaving));
        if fit.total_bytes <= room.left_bytes() {
            return Ok(());
        }
        let workspace_bytes = fit.workspace_bytes();
        let needs = Needs {
            weight_bytes: fit.weight_bytes,
            workspace_bytes,
            context: fit.context,
            ..Needs::default()
        };
        Err(DaemonError::DoesNotFit {
            model: name.to_owned(),
            refusal: Box::new(Refusal {
                needs,
                tokens: fit.kv_tokens,
                kv_bytes: fit.kv_bytes,
                workspace_bytes,
                room: Box::new(room),
            }),
        })
    }

    /// Shrinks KV caches by these bytes, or as far as they can: the one with most to spare first. Returns models that
    /// lost their pages and had to be unloaded.
    pub async fn shrink_caches(&mut self, bytes: u64, newcomer: &str) -> Vec<String> {
        let (mut missing, mut lost) = (bytes, Vec::new());
        while missing > 0 {
            let loaded = self.held.iter().filter(|held| held.is_loaded);
            let Some(held) = loaded.max_by_key(|held| held.spare_bytes()) else {
                break;
            };
            let (before, per_token) = (held.fit, held.fit.kv_bytes_per_token());
            if held.spare_bytes() == 0 {
                break;
            }
            let less = usize::try_from(missing.div_ceil(per_token)).unwrap_or(usize::MAX);
            let tokens = whole_pages(before.kv_tokens.saturating_sub(less));
            let (name, tokens) = (held.name.clone(), tokens.max(held.least_tokens));
            if self.resize(&name, tokens).await {
                let now = self.held(&name).map_or(before, |held| held.fit);
                let (kv, was) = (now.kv_tokens, before.kv_tokens);
                info!(
                    "{name} keeps a KV cache for {kv} of {was} tokens to make room for {newcomer}"
                );
                let freed = before.total_bytes.saturating_sub(now.total_bytes);
                // A cache that did not shrink would be tried again for ever.
                missing = missing.saturating_sub(freed.max(1));
            } else {
                missing = missing.saturating_sub(before.total_bytes);
                lost.push(name);
            }
        }
        lost
    }

    /// Gives free memory to KV caches that are smaller than they could be, in equal parts. Returns models that lost
    /// their pages and had to be unloaded.
    pub async fn grow_caches(&mut self) -> Vec<String> {
        let smaller = self.held.iter().filter(|held| held.is_loaded);
        let smaller = smaller.filter(|held| held.fit.kv_tokens < held.most_tokens);
        let smaller: Vec<String> = smaller.map(|held| held.name.clone()).collect();
        let mut lost = Vec::new();
        for (at, name) in smaller.iter().enumerate() {
            let sharers = (smaller.len() - at) as u64;
            let bytes = self.room.left_bytes() / sharers;
            let Some(held) = self.held(name) else {
                continue;
            };
            let (now, most) = (held.fit.kv_tokens, held.most_tokens);
            let grown = held.within(held.fit.total_bytes.saturating_add(bytes));
            let more = grown.kv_tokens.saturating_sub(now);
            if more < most / LEAST_GROWTH && grown.kv_tokens < most {
                continue;
            }
            match self.resize(name, grown.kv_tokens).await {
                true => info!("{name} has a KV cache for {} tokens", grown.kv_tokens),
                false => lost.push(name.clone()),
            }
        }
        lost
    }

    /// Resizes a model's KV cache. A model that loses its pages is unloaded, and then the result is false.
    async fn resize(&mut self, name: &str, tokens: usize) -> bool {
        let runtime = self.engines.runtime.clone();
        let resized = runtime.resize_cache(name, tokens).await;
        let fitted = match (resized, self.held(name)) {
            (Ok(tokens), Some(held)) => Some(held.fit.with_tokens(tokens)),
            (Err(failure), _) => {
                error!("the KV cache of {name} was lost, and it is unloaded: {failure}");
                None
            }
            (Ok(_), None) => None,
        };
        if fitted.is_none()
            && let Err(failure) = runtime.unload(name).await
        {
            error!("{failure}");
        }
        if let Err(failure) = self.room.device.give_back() {
            error!("{failure}");
        }
        match fitted {
            Some(fitted) => self.take_note(name, fitted),
            None => self.mark(name, false),
        }
        fitted.is_some()
    }
}

pub(super) const SPARE_PAGES: Leaving<'static> = Leaving {
    models: &[],
    spare_pages: true,
};

fn whole_pages(tokens: usize) -> usize {
    tokens / PAGE_TOKENS * PAGE_TOKENS
}
