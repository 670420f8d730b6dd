//! Offers on their way to a polling worker. If the worker hangs up before the reply, they return to the queue at once,
//! without a strike.

use std::ops::Deref;
use std::sync::Arc;

use super::departures::{Departure, Departures};
use crate::dispatch::Offer;

/// Offers that are returned if dropped unused.
#[derive(Debug)]
pub struct Lent {
    offers: Vec<Offer>,
    way_back: Option<Arc<Departures>>,
}

impl Lent {
    pub(super) fn new(offers: Vec<Offer>, way_back: Arc<Departures>) -> Self {
        Self {
            offers,
            way_back: Some(way_back),
        }
    }

    /// A decoy, whose result is discarded.
    pub fn copy(offer: Offer) -> Self {
        Self {
            offers: vec![offer],
            way_back: None,
        }
    }

    /// Returns the other offers at once.
    pub fn retain(&mut self, stays: impl Fn(&Offer) -> bool) {
        let (left, back) = std::mem::take(&mut self.offers)
            .into_iter()
            .partition(stays);
        self.offers = left;
        drop(Self {
            offers: back,
            way_back: self.way_back.clone(),
        });
    }

    /// The reply is sent: the worker has the jobs, as far as known.
    pub fn keep(&mut self) {
        self.way_back = None;
    }
}

impl Deref for Lent {
    type Target = [Offer];

    fn deref(&self) -> &[Offer] {
        &self.offers
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(way_back) = &self.way_back else {
            return;
        };
        for offer in &self.offers {
            way_back.note(Departure::Offer {
                session: offer.session,
                job: offer.job.id,
                attempt: offer.attempt,
            });
        }
    }
}
