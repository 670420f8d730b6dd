//! Clients' ratings of their images.

use std::collections::BTreeSet;

use super::error::{Code, Refusal};
use super::rules::{inner, list, text, whole};
use super::tables::body;

body! {
    /// `POST /v2/generate/rate/{id}`
    pub struct AestheticsPayload {
        may {
            best: String = text(36..=36),
            ratings: Vec<AestheticRating> = list(inner()),
        }
    }
}

body! {
    pub struct AestheticRating {
        needs {
            id: String = text(36..=36),
            rating: u32 = whole(1..=10),
        }
        may {
            /// 0 is flawless, 5 is unusable.
            artifacts: u32 = whole(0..=5),
        }
    }
}

impl AestheticsPayload {
    pub fn ratings(&self) -> &[AestheticRating] {
        self.ratings.as_deref().unwrap_or_default()
    }

    /// Checks that need no request.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.best.is_none() && self.ratings().is_empty() {
            return Err(Code::AestheticsMissing.into());
        }
        let images: BTreeSet<_> = self.ratings().iter().map(|rating| &rating.id).collect();
        match images.len() == self.ratings().len() {
            true => Ok(()),
            false => Err(Code::AestheticsDuplicate.into()),
        }
    }

    /// The choice of a best image, unless the ratings themselves say that another one is better: then it does not
    /// count.
    pub fn agreed_best(&self) -> Option<&str> {
        let best = self.best.as_deref()?;
        let of_best = self.ratings().iter().find(|rating| rating.id == best);
        let highest = self.ratings().iter().map(|rating| rating.rating).max();
        match (of_best, highest) {
            (Some(of_best), Some(highest)) if of_best.rating < highest => None,
            _ => Some(best),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{AestheticRating, AestheticsPayload};
    use crate::legacy::schemas::assert_reads;
    use crate::legacy::{Body, Code};

    const ONE: &str = "00000000-0000-4000-8000-000000000001";
    const OTHER: &str = "00000000-0000-4000-8000-000000000002";

    fn payload(body: Value) -> AestheticsPayload {
        AestheticsPayload::read(body).unwrap()
    }

    #[test]
    fn ratings_are_read_as_the_contract_says() {
        assert_reads::<AestheticsPayload>("AestheticsPayload");
        assert_reads::<AestheticRating>("AestheticRating");
    }

    #[test]
    fn something_must_be_rated_and_once() {
        let check = |body, expected: Option<Code>| {
            let refusal = payload(body).check().err();
            assert_eq!(refusal.and_then(|refusal| refusal.code()), expected);
        };
        let rating = || json!({"id": ONE, "rating": 5});
        check(json!({}), Some(Code::AestheticsMissing));
        check(json!({"ratings": []}), Some(Code::AestheticsMissing));
        check(
            json!({"ratings": [rating(), rating()]}),
            Some(Code::AestheticsDuplicate),
        );
        check(json!({"ratings": [rating()]}), None);
        check(json!({"best": ONE}), None);
    }

    #[test]
    fn a_best_image_that_is_rated_lower_is_none() {
        let ratings = |one: u32, other: u32| json!([{"id": ONE, "rating": one}, {"id": OTHER, "rating": other}]);
        let best = |ratings| {
            payload(json!({"best": ONE, "ratings": ratings}))
                .agreed_best()
                .is_some()
        };
        assert!(best(ratings(8, 7)));
        assert!(best(ratings(7, 7)));
        assert!(!best(ratings(6, 7)));
        assert!(best(json!([{"id": OTHER, "rating": 10}])));
        assert!(payload(json!({"best": ONE})).agreed_best().is_some());
    }
}
