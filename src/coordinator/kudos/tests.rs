use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{Entry, FEE, HOUSE, Prices, Reason, Settlement, State, estimate_text, price_text};
use crate::dispatch::{Facts, Outcome, Part, Timing};
use crate::metering::{Belief, Counted};
use muster_protocol::job::{
    AccountId, Body, Failure, FailureKind, FinishReason, ImageRequest, Job, JobId, JobPrice, Kind,
    Kudos, Limits, MicroUsd, ModelChoice, Privacy, RequestId, StopRules, TextInput, TextRequest,
    UnixMillis, Usage, WorkerId,
};

const CLIENT: AccountId = AccountId(1);
const OWNER: AccountId = AccountId(2);
const OTHER: AccountId = AccountId(3);
const VALIDATED: &str = "KoboldCppEmbedWorker:2:url";

#[test]
fn text_is_priced_as_the_legacy_network_does() {
    // A prompt of 1,024 tokens gives c = 1.2 + 2.2^0.
    assert_eq!(price_text(1024, 125, None, 1.0), Kudos(2200));
    assert_eq!(price_text(2048, 125, None, 1.0), Kudos(3400));
    // Thirteen billion parameters cost thirteen times as much, and larger models slightly more than that.
    assert_eq!(price_text(1024, 125, None, 13.0), Kudos(28_600));
    assert_eq!(price_text(1024, 125, None, 70.0), Kudos(215_651));
}

#[test]
fn short_outputs_count_as_twenty_tokens_unless_they_could_not_be_longer() {
    assert_eq!(
        price_text(1024, 1, None, 1.0),
        price_text(1024, 20, None, 1.0)
    );
    assert_eq!(
        price_text(1024, 1, Some(5), 1.0),
        price_text(1024, 5, Some(5), 1.0)
    );
}

#[test]
fn the_context_factor_has_its_limits() {
    let huge = price_text(u32::MAX, 125, None, 1.0);
    assert_eq!(huge, Kudos(30_000));
    assert!(price_text(0, 125, None, 1.0).0 >= 1200);
}

#[test]
fn absurd_numbers_have_a_price() {
    let price = price_text(u32::MAX, u32::MAX, None, f64::MAX);
    assert_eq!(price, Kudos(1_000_000_000_000));
    assert_eq!(price_text(1, 1, None, f64::NAN), Kudos(0));
}

#[test]
fn a_text_is_estimated_by_its_largest_model_as_long_as_it_may_become() {
    let prices = Prices::default().with("small", 1.0).with("large", 13.0);
    // c = 2.2 after 1,024 tokens.
    assert_eq!(estimate_text(100, 1024, &["small"], &prices, 1), 4.0);
    assert_eq!(
        estimate_text(100, 1024, &["small", "large"], &prices, 1),
        31.0
    );
    assert_eq!(estimate_text(100, 1024, &[], &prices, 1), 31.0);
    assert_eq!(estimate_text(100, 1024, &["unknown"], &prices, 10), 33.0);
    assert_eq!(estimate_text(0, 0, &[], &prices, 1), 2.0);
}

#[test]
fn work_is_worth_a_tenth_of_a_kudos_at_least() {
    assert_eq!(price_text(20, 20, None, 0.0025), Kudos(100));
    let small = Prices::default().with("m", 0.0025);
    let parts = vec![part(OWNER, 15), part(OTHER, 5)];
    let settled = Settlement::of(&facts(delivered(20), parts), counted(20), &small);
    assert_eq!(rewards(&settled), [(OWNER, 75), (OTHER, 25)]);
}

#[test]
fn the_requester_pays_the_reward_and_one_kudos() {
    let settled = settle(&facts(delivered(125), vec![part(OWNER, 125)]), 125);
    assert_eq!(settled.reward, Kudos(2200));
    assert_eq!(settled.charge, Kudos(3200));
    let expected = [
        (CLIENT, Reason::Charge, -3200),
        (OWNER, Reason::Reward, 2200),
        (HOUSE, Reason::Fee, FEE.0),
    ];
    let found = settled
        .entries
        .iter()
        .map(|entry| (entry.account, entry.reason, entry.amount.0));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn a_worker_cannot_inflate() {
    let honest = settle(&facts(delivered(150), vec![part(OWNER, 150)]), 100);
    assert_eq!(honest.paid_tokens, 150, "half as much again is believable");
    let inflated = settle(&facts(delivered(100_000), vec![part(OWNER, 100_000)]), 100);
    assert_eq!(inflated.paid_tokens, 150);
    let modest = settle(&facts(delivered(60), vec![part(OWNER, 60)]), 100);
    assert_eq!(modest.paid_tokens, 60);
}

#[test]
fn a_public_worker_is_paid_what_was_counted_here() {
    let facts = facts(delivered(150), vec![part(OWNER, 0)]);
    let counted = Counted {
        belief: Belief::Nothing,
        ..counted(100)
    };
    assert_eq!(
        Settlement::of(&facts, counted, &Prices::default()).paid_tokens,
        100
    );
}

#[test]
fn nobody_is_paid_for_more_than_was_asked_for() {
    let mut facts = facts(delivered(150), vec![part(OWNER, 150)]);
    Arc::make_mut(&mut facts.job).limits.output_tokens = Some(64);
    assert_eq!(settle(&facts, 150).paid_tokens, 64);
}

#[test]
fn pieces_are_paid_by_what_each_worker_delivered() {
    let parts = vec![part(OWNER, 100), part(OTHER, 25)];
    let settled = settle(&facts(delivered(125), parts), 125);
    assert_eq!(rewards(&settled), [(OWNER, 1760), (OTHER, 440)]);
    assert_eq!(
        settled.reward,
        Kudos(440),
        "the ack names the share of the last"
    );
    assert_eq!(settled.charge, Kudos(3200));
}

#[test]
fn pieces_without_token_counts_are_weighed_by_their_events() {
    let mut parts = vec![part(OWNER, 0), part(OTHER, 0)];
    (parts[0].events, parts[1].events) = (3, 1);
    let settled = settle(&facts(delivered(125), parts), 125);
    assert_eq!(rewards(&settled), [(OWNER, 1650), (OTHER, 550)]);
}

#[test]
fn an_output_that_came_whole_is_paid_to_whoever_sent_it() {
    let mut parts = vec![part(OWNER, 0), part(OTHER, 0)];
    (parts[0].events, parts[1].events) = (0, 0);
    let settled = settle(&facts(delivered(125), parts), 125);
    assert_eq!(rewards(&settled), [(OTHER, 2200)]);
}

#[test]
fn each_worker_has_earned_its_part_and_what_waits_of_it() {
    let parts = vec![part(OWNER, 100), part(OTHER, 25)];
    let settled = settle(&facts(delivered(125), parts), 125);
    let earned = [(WorkerId(20), Kudos(1760)), (WorkerId(30), Kudos(440))].into();
    assert_eq!(settled.earned(), earned);
    assert_eq!(
        settled.keeping_back(|owner| owner == OTHER).earned(),
        earned
    );
}

#[test]
fn software_that_polls_is_paid_by_what_is_known_of_it() {
    let prices = Prices::default().with("m", 1.0);
    let by = |agent: Option<&str>| {
        let part = Part {
            agent: agent.map(Into::into),
            ..part(OWNER, 125)
        };
        let settled = Settlement::of(&facts(delivered(125), vec![part]), counted(125), &prices);
        (settled.reward, settled.charge)
    };
    assert_eq!(by(None), (Kudos(2200), Kudos(3200)));
    assert_eq!(by(Some(VALIDATED)), (Kudos(2200), Kudos(3200)));
    assert_eq!(by(Some("somebody:1:url")), (Kudos(660), Kudos(1660)));
}

/// A polling worker's reward for a text of `4 * quarter` characters, counted by characters and not by tokens.
fn polled(quarter: u32, longest: Option<u32>, trusted: bool, prices: &Prices) -> Kudos {
    let part = Part {
        agent: Some(VALIDATED.into()),
        trusted,
        ..part(OWNER, 0)
    };
    let mut facts = facts(delivered(9), vec![part]);
    Arc::make_mut(&mut facts.job).limits.output_tokens = longest;
    let counted = Counted {
        output_quarter: quarter,
        ..counted(9)
    };
    Settlement::of(&facts, counted, prices).reward
}

#[test]
fn software_that_polls_is_paid_by_characters() {
    let prices = Prices::default().with("m", 1.0);
    assert_eq!(polled(125, None, false, &prices), Kudos(2200));
    // c = 1.2 + 2.2^-4, since the prompt counts only up to the maximum length of the text.
    assert_eq!(polled(125, Some(64), false, &prices), Kudos(636));
    let tiny = Prices::default().with("m", 0.0025);
    assert_eq!(polled(125, None, false, &tiny), Kudos(6));
}

#[test]
fn an_unknown_model_is_worth_its_context_and_a_trusted_owners_by_its_length() {
    let prices = Prices::default();
    assert_eq!(polled(125, None, false, &prices), Kudos(2200));
    assert_eq!(polled(1250, None, false, &prices), Kudos(2200));
    assert_eq!(polled(125, None, true, &prices), Kudos(7425));
    assert_eq!(polled(1250, None, true, &prices), Kudos(74_250));
}

#[test]
fn a_text_that_a_polling_worker_keeps_back_costs_the_fee_alone() {
    let kept_back = |agent: Option<&str>| {
        let part = Part {
            agent: agent.map(Into::into),
            ..part(OWNER, 125)
        };
        let mut facts = facts(delivered(125), vec![part]);
        if let Outcome::Delivered { finish, .. } = &mut facts.outcome {
            *finish = FinishReason::ContentFilter;
        }
        let settled = settle(&facts, 125);
        let sum: i64 = settled.entries.iter().map(|entry| entry.amount.0).sum();
        assert_eq!((sum, settled.reward), (0, Kudos(2200)));
        settled.charge
    };
    assert_eq!(kept_back(Some(VALIDATED)), FEE);
    assert_eq!(kept_back(None), Kudos(3200));
}

#[test]
fn failures_and_expiry_cost_nothing() {
    let failure = Failure::new(FailureKind::WorkerLost, "it went away");
    for outcome in [Outcome::Failed(failure), Outcome::Expired] {
        let settled = settle(&facts(outcome, vec![part(OWNER, 100)]), 100);
        assert_eq!((settled.reward, settled.charge), (Kudos(0), Kudos(0)));
        assert!(settled.entries.is_empty());
    }
}

#[test]
fn a_client_that_leaves_pays_for_what_it_got() {
    let cancelled = settle(&facts(Outcome::Cancelled, vec![part(OWNER, 50)]), 50);
    assert_eq!(
        (cancelled.state, cancelled.reward),
        (State::Cancelled, Kudos(880))
    );
    let slow = Failure::new(FailureKind::SlowClient, "too slow");
    let slow = settle(&facts(Outcome::Failed(slow), vec![part(OWNER, 50)]), 50);
    assert_eq!((slow.state, slow.reward), (State::Failed, Kudos(880)));
    let nothing = settle(&facts(Outcome::Cancelled, Vec::new()), 0);
    assert!(nothing.entries.is_empty());
}

#[test]
fn nobody_pays_for_an_image_that_was_cancelled_and_never_came() {
    let drawn = |events| {
        let part = Part {
            events,
            ..part(OWNER, 0)
        };
        let mut facts = facts(Outcome::Cancelled, vec![part]);
        let job = Arc::make_mut(&mut facts.job);
        job.kind = Kind::Image;
        let image = ImageRequest {
            width: 512,
            height: 512,
            ..ImageRequest::default()
        };
        job.body = image.into();
        settle(&facts, 0)
    };
    let brought = drawn(1);
    assert!(brought.reward.0 > 0 && brought.charge > brought.reward);
    let nothing = drawn(0);
    assert_eq!((nothing.reward, nothing.charge), (Kudos(0), Kudos(0)));
    assert!(nothing.entries.is_empty());
}

#[test]
fn an_own_worker_earns_what_its_owner_pays() {
    let settled = settle(&facts(delivered(125), vec![part(CLIENT, 125)]), 125);
    let own: i64 = settled
        .entries
        .iter()
        .filter(|entry| entry.account == CLIENT)
        .map(|entry| entry.amount.0)
        .sum();
    assert_eq!(own, -FEE.0);
}

fn priced(outcome: Outcome, parts: Vec<Part>) -> Facts {
    let price = JobPrice {
        input_per_mtok: MicroUsd(1_000_000),
        output_per_mtok: MicroUsd(2_000_000),
        held: MicroUsd(2000),
        ..JobPrice::default()
    };
    let facts = facts(outcome, parts);
    let job = Job {
        price: Some(price),
        limits: Limits {
            output_tokens: Some(100),
            ..Limits::default()
        },
        ..Job::clone(&facts.job)
    };
    Facts {
        job: Arc::new(job),
        ..facts
    }
}

#[test]
fn a_text_costs_its_usage_and_no_more_than_was_asked_for() {
    let parts = || vec![part(AccountId(2), 50)];
    let slow = || Outcome::Failed(Failure::new(FailureKind::SlowClient, ""));
    let lost = || Outcome::Failed(Failure::new(FailureKind::WorkerLost, ""));
    for (outcome, parts, ours, cost) in [
        (delivered(50), parts(), 50, 1124),
        (delivered(40), parts(), 50, 1104),
        // The count of an untrusted worker is limited to one and a half times the coordinator's.
        (delivered(5000), parts(), 50, 1174),
        (delivered(500), parts(), 500, 1224),
        // Output that reached the client is paid.
        (Outcome::Cancelled, parts(), 10, 1044),
        (slow(), parts(), 10, 1044),
        (Outcome::Cancelled, Vec::new(), 0, 0),
        (lost(), parts(), 10, 0),
        (Outcome::Expired, parts(), 10, 0),
    ] {
        let settled = settle(&priced(outcome.clone(), parts), ours);
        assert_eq!(settled.cost, Some(MicroUsd(cost)), "{outcome:?}");
    }
    assert_eq!(settle(&facts(delivered(50), parts()), 50).cost, None);
}

#[test]
fn a_bill_follows_the_usage_that_the_client_is_shown() {
    let usage = Usage {
        prompt_tokens: 52,
        completion_tokens: 30,
        ..Usage::default()
    };
    for (belief, shown) in [
        (Belief::Whole, (52, 30)),
        (Belief::Bounded, (30, 15)),
        (Belief::Nothing, (20, 10)),
    ] {
        let counted = Counted {
            prompt_tokens: 20,
            belief,
            ..counted(10)
        };
        let usage = counted.usage(Some(usage));
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), shown);
        let outcome = Outcome::Delivered {
            finish: FinishReason::Stop,
            usage,
        };
        let facts = priced(outcome, vec![part(OWNER, 30)]);
        let settled = Settlement::of(&facts, counted, &Prices::default());
        let cost = i64::from(usage.prompt_tokens) + 2 * i64::from(usage.completion_tokens);
        assert_eq!(settled.cost, Some(MicroUsd(cost)), "{belief:?}");
        assert_eq!(settled.usage, usage, "{belief:?}");
    }
}

proptest::proptest! {
    #[test]
    fn every_settlement_sums_to_zero_and_pays_only_workers_of_the_job(
        sizes in proptest::collection::vec((1_i64..5, 0_u64..5000, 0_u64..500), 0..5),
        (said, ours, prompt) in (0_u32.., 0_u32.., 0_u32..),
        ending in 0_usize..4,
    ) {
        let parts: Vec<Part> = sizes
            .into_iter()
            .map(|(owner, tokens, events)| Part { tokens, events, ..part(AccountId(owner), 0) })
            .collect();
        let outcome = match ending {
            0 => delivered(said),
            1 => Outcome::Cancelled,
            2 => Outcome::Expired,
            _ => Outcome::Failed(Failure::new(FailureKind::SlowClient, "")),
        };
        let facts = facts(outcome, parts);
        let counted = Counted { prompt_tokens: prompt, ..counted(ours) };
        let settled = Settlement::of(&facts, counted, &Prices::default().with("m", 70.0));
        let sum: i64 = settled.entries.iter().map(|entry| entry.amount.0).sum();
        proptest::prop_assert_eq!(sum, 0);
        let is_of_the_job = |entry: &Entry| facts.parts.iter().any(|part| part.owner == entry.account);
        proptest::prop_assert!(settled
            .entries
            .iter()
            .all(|entry| entry.reason != Reason::Reward || (entry.amount.0 > 0 && is_of_the_job(entry))));
        proptest::prop_assert!(settled.reward.0 >= 0 && settled.charge.0 >= settled.reward.0);
    }
}

fn settle(facts: &Facts, ours: u32) -> Settlement {
    Settlement::of(facts, counted(ours), &Prices::default())
}

fn counted(output_tokens: u32) -> Counted {
    Counted {
        prompt_tokens: 1024,
        output_tokens,
        prompt_quarter: 1024,
        output_quarter: output_tokens,
        belief: Belief::Bounded,
        heard_millis: None,
    }
}

fn delivered(completion_tokens: u32) -> Outcome {
    let usage = Usage {
        prompt_tokens: 1024,
        completion_tokens,
        ..Usage::default()
    };
    Outcome::Delivered {
        finish: FinishReason::Stop,
        usage,
    }
}

fn part(owner: AccountId, tokens: u64) -> Part {
    Part {
        trusted: false,
        worker: WorkerId(owner.0 * 10),
        owner,
        agent: None,
        attempt: 1,
        model: "m".into(),
        together: 1,
        events: 1,
        tokens,
    }
}

fn facts(outcome: Outcome, parts: Vec<Part>) -> Facts {
    Facts {
        job: Arc::new(job()),
        outcome,
        attempts: parts.len() as u32,
        model: None,
        dropped: Vec::new(),
        parts,
        usage: None,
        timing: timing(),
        output: None,
    }
}

fn timing() -> Timing {
    Timing {
        accepted_at: UnixMillis(1),
        total: Duration::from_secs(1),
        ..Timing::default()
    }
}

fn job() -> Job {
    let prompt = TextInput::Prompt(String::new());
    let request = TextRequest {
        input: prompt,
        sampling: Default::default(),
        max_tokens: None,
        stop: Vec::new(),
        logprobs: None,
        prompt_logprobs: None,
        tool_choice: None,
        stop_rules: StopRules::default(),
        parallel_tool_calls: None,
        format: None,
        choice: 0,
    };
    Job {
        id: JobId(Uuid::from_u128(1)),
        request: RequestId(Uuid::from_u128(2)),
        account: CLIENT,
        shared_key: None,
        kind: Kind::Text,
        model: ModelChoice(vec!["m".into()]),
        body: Body::Text(Box::new(request)),
        limits: Limits::default(),
        privacy: Privacy::Anyone,
        deadline: UnixMillis(0),
        durable: false,
        prefixes: Vec::new(),
        original: None,
        price: None,
    }
}

fn rewards(settled: &Settlement) -> Vec<(AccountId, i64)> {
    let rewards = settled
        .entries
        .iter()
        .filter(|entry| entry.reason == Reason::Reward);
    rewards
        .map(|entry| (entry.account, entry.amount.0))
        .collect()
}
