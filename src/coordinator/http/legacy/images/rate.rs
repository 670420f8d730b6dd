//! `POST /api/v2/generate/rate/{id}`: the requester's ratings of the images, once, and only for requests that are
//! shared.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::super::requested::{find, made, unavailable};
use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::reply;
use crate::kudos::{Cause, Posted, Posting};
use crate::requests::results::drawn_id;
use crate::requests::{Request, Requests};
use crate::storage::{RatingRow, Store};
use muster_protocol::job::{JobId, Kind, Kudos};
use muster_protocol::legacy::rating::AestheticsPayload;
use muster_protocol::legacy::submit::GenerationSubmitted;
use muster_protocol::legacy::{Body, Code, Refusal};

/// For the choice of a best image.
const BEST: i64 = 4;
/// For each image that is rated.
const RATING: i64 = 5;

pub async fn rate(
    State(requests): State<Requests>,
    State(store): State<Store>,
    path: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let payload = AestheticsPayload::parse(&whole?.bytes)?;
    let request = find(&requests, &path, Kind::Image).await?;
    payload.check()?;
    let drawn = drawn(&request);
    check(&payload, &request, &drawn)?;
    let paid = store.paid(request.id).await.map_err(|_| unavailable())?;
    let reward = reward(&payload, paid);
    let posting = Posting::from_house(Cause::Rating, request.account, reward, wall_clock())
        .about(request.id.to_string())
        .once(format!("rating {}", request.id));
    let rated = store.rate(posting, rows(&payload, &drawn)).await;
    match rated.map_err(|_| unavailable())? {
        Posted::Done => {}
        Posted::Already | Posted::Conflict => return Err(Code::AestheticsAlreadyExist.into()),
        Posted::NotEnough => return Err(Code::InvalidAestheticAttempt.into()),
    }
    let answer = GenerationSubmitted {
        reward: reward.0 as f64 / 1000.0,
    };
    Ok(reply::json(StatusCode::OK, &answer))
}

/// The jobs of the request's images, by their public ids.
fn drawn(request: &Request) -> BTreeMap<String, JobId> {
    let made = made(request).into_iter();
    let named = made.map(|(output, made)| (drawn_id(output, made).to_string(), output.job));
    named.collect()
}

/// Whether the request can be rated like this.
fn check(
    payload: &AestheticsPayload,
    request: &Request,
    drawn: &BTreeMap<String, JobId>,
) -> Result<(), Refusal> {
    let counts = request.counts();
    Code::AestheticsNotCompleted.when(counts.unfinished() > 0 || counts.finished == 0)?;
    Code::AestheticsNotPublic.when(!request.wishes.shared)?;
    let rated = payload.ratings().iter().map(|rating| &*rating.id);
    let best = payload.best.as_deref();
    let is_other = |id: &str| !drawn.contains_key(id);
    Code::ProcGenNotFound.when(rated.chain(best).any(is_other))?;
    Code::AestheticsSolo.when(best.is_some() && counts.finished == 1)
}

/// At most the whole kudos paid for the request, less one.
fn reward(payload: &AestheticsPayload, paid: Kudos) -> Kudos {
    let best = match payload.agreed_best() {
        Some(_) => BEST,
        None => 0,
    };
    let ratings = i64::try_from(payload.ratings().len()).unwrap_or(0) * RATING;
    let most = (paid.0 / 1000 * 1000).saturating_sub(1000).max(0);
    Kudos(((best + ratings) * 1000).min(most))
}

fn rows(payload: &AestheticsPayload, drawn: &BTreeMap<String, JobId>) -> Vec<RatingRow> {
    let best = payload.agreed_best();
    let row = |id: &str| {
        let rating = payload.ratings().iter().find(|rating| rating.id == id);
        Some(RatingRow {
            job: *drawn.get(id)?,
            rating: rating.map(|rating| rating.rating),
            artifacts: rating.and_then(|rating| rating.artifacts),
            best: best == Some(id),
        })
    };
    let rated = payload.ratings().iter().map(|rating| &*rating.id);
    let alone = best.filter(|best| !rated.clone().any(|id| id == *best));
    rated.chain(alone).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{reward, rows};
    use muster_protocol::job::{JobId, Kudos};
    use muster_protocol::legacy::Body;
    use muster_protocol::legacy::rating::AestheticsPayload;

    const ONE: &str = "00000000-0000-4000-8000-000000000001";
    const OTHER: &str = "00000000-0000-4000-8000-000000000002";

    #[test]
    fn ratings_are_worth_five_and_the_best_four_and_never_more_than_was_paid() {
        let check = |body: Value, cost: i64, expected: i64| {
            let payload = AestheticsPayload::read(body).unwrap();
            assert_eq!(reward(&payload, Kudos(cost * 1000)), Kudos(expected * 1000));
        };
        let ratings = json!([{"id": ONE, "rating": 8}, {"id": OTHER, "rating": 5}]);
        check(json!({"best": ONE}), 100, 4);
        check(json!({"ratings": ratings}), 100, 10);
        check(json!({"ratings": ratings, "best": ONE}), 100, 14);
        check(json!({"ratings": ratings, "best": OTHER}), 100, 10);
        check(json!({"ratings": ratings, "best": ONE}), 9, 8);
        check(json!({"best": ONE}), 0, 0);
    }

    proptest::proptest! {
        #[test]
        fn no_reward_is_above_the_cost_less_one(
            cost in -10_000_i64..100_000,
            ratings in proptest::collection::vec(1_u32..=10, 0..20),
            best in 0_usize..20,
        ) {
            let id = |nth: usize| format!("00000000-0000-4000-8000-{nth:012}");
            let rated = ratings.iter().enumerate();
            let rated = rated.map(|(nth, rating)| json!({"id": id(nth), "rating": rating}));
            let rated: Vec<Value> = rated.collect();
            let payload = AestheticsPayload::read(json!({"best": id(best), "ratings": rated})).unwrap();
            let given = reward(&payload, Kudos(cost));
            proptest::prop_assert!(given.0 >= 0 && given.0 <= (cost - 1000).max(0));
        }
    }

    #[test]
    fn what_is_kept_names_each_image_once() {
        let body = json!({"best": ONE, "ratings": [{"id": OTHER, "rating": 5, "artifacts": 2}]});
        let jobs = [JobId::random(), JobId::random()];
        let drawn = [ONE, OTHER].map(str::to_owned).into_iter().zip(jobs);
        let rows = rows(&AestheticsPayload::read(body).unwrap(), &drawn.collect());
        assert_eq!([rows[0].job, rows[1].job], [jobs[1], jobs[0]]);
        assert_eq!(rows.len(), 2);
        assert_eq!(
            (rows[0].rating, rows[0].artifacts, rows[0].best),
            (Some(5), Some(2), false)
        );
        assert_eq!((rows[1].rating, rows[1].best), (None, true));
    }
}
