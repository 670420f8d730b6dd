//! From the facts of an ended job to its settled row and its entries in the ledger.
//!
//! Delivered and cancelled jobs are paid for their delivered output; failures are neither paid nor charged. The entries
//! of a job always sum to zero.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dispatch::{Facts, Outcome, Part, Timing};
use crate::metering::Counted;
use muster_protocol::job::{
    AccountId, Body, FailureKind, FinishReason, JobId, Kind, Kudos, MicroUsd, RequestId,
    SharedKeyId, Usage, WorkerId,
};

use super::metering::{Metered, said};
use super::price::{FEE, Polled, counted_tokens, per_token, raise, rounded};
use super::sizes::Prices;
use super::worth::{self, Worth};

/// The account that receives fees. Zero is the anonymous account of the AI Horde API.
pub const HOUSE: AccountId = AccountId(-1);

/// The record of one ended job, written once.
#[derive(Debug, Clone, PartialEq)]
pub struct Settlement {
    pub job: JobId,
    pub request: RequestId,
    pub account: AccountId,
    /// The shared key of the request, which is charged, too.
    pub shared_key: Option<SharedKeyId>,
    /// The worker that ended the job.
    pub worker: Option<WorkerId>,
    pub kind: Kind,
    pub model: Arc<str>,
    pub state: State,
    /// The finish reason or the code of the failure.
    pub reason: &'static str,
    pub attempts: u32,
    pub usage: Usage,
    /// Requested size, in tokens or pixelsteps.
    pub size: u64,
    /// Paid tokens of the output.
    pub paid_tokens: u32,
    /// The reward reported to the last worker, before the deduction for its software.
    pub reward: Kudos,
    /// The requester's charge.
    pub charge: Kudos,
    /// The charge in money; `None` if the job has no price.
    pub cost: Option<MicroUsd>,
    pub timing: Timing,
    pub entries: Vec<Entry>,
    /// The output, kept for a durable request whatever its end.
    pub result: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Delivered,
    Failed,
    Cancelled,
    Expired,
}

/// A side of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub account: AccountId,
    /// The worker of the job.
    pub worker: Option<WorkerId>,
    pub reason: Reason,
    pub amount: Kudos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The requester pays.
    Charge,
    /// The worker's owner is paid.
    Reward,
    /// The part of a reward kept in escrow.
    Escrow,
    /// The house is paid.
    Fee,
    /// The house pays the part that the requester or the shared key lacks.
    Forgiven,
    /// The fee of a request, besides its jobs.
    Request,
}

impl Settlement {
    pub fn of(facts: &Facts, counted: Counted, prices: &Prices) -> Self {
        let bill = match is_paid(&facts.outcome) {
            true => Bill::of(facts, counted, prices),
            false => Bill::default(),
        };
        let entries = entries(facts, &bill);
        let (state, reason) = ending(&facts.outcome);
        let last = facts.parts.last();
        Self {
            job: facts.job.id,
            request: facts.job.request,
            account: facts.job.account,
            shared_key: facts.job.shared_key,
            worker: last.map(|part| part.worker),
            kind: kind(facts),
            model: match last {
                Some(part) => part.model.clone(),
                None => facts.model.clone().unwrap_or_else(|| wanted(facts)),
            },
            state,
            reason,
            attempts: facts.attempts,
            usage: said(facts).unwrap_or_default(),
            size: facts
                .job
                .body
                .sound_seconds()
                .unwrap_or_else(|| facts.job.size()),
            paid_tokens: bill.tokens,
            reward: bill.told,
            charge: charge(&entries),
            cost: cost(facts, counted),
            timing: facts.timing,
            entries,
            result: facts.output.clone(),
        }
    }
}

impl Settlement {
    /// Rewards by worker, with the part in escrow.
    pub fn earned(&self) -> BTreeMap<WorkerId, Kudos> {
        let mut earned = BTreeMap::new();
        let rewards = self.entries.iter();
        let rewards = rewards.filter(|it| matches!(it.reason, Reason::Reward | Reason::Escrow));
        for (worker, amount) in rewards.filter_map(|it| Some((it.worker?, it.amount))) {
            earned.entry(worker).or_insert(Kudos(0)).0 += amount.0;
        }
        earned
    }
}

/// The charge and rewards of a job.
#[derive(Debug, Default)]
struct Bill {
    /// Rewards by part, in order; empty if unpaid.
    rewards: Vec<Kudos>,
    /// The reward reported to the worker of the last part.
    told: Kudos,
    /// The requester's charge. The house gets the difference.
    charge: Kudos,
    /// Paid tokens of the output.
    tokens: u32,
}

impl Bill {
    fn of(facts: &Facts, counted: Counted, prices: &Prices) -> Self {
        let body = &facts.job.body;
        match (body, body.file()) {
            (Body::Text(_), _) => Self::of_text(facts, counted, prices),
            (Body::Form(form), _) => Self::of_one(facts, worth::of_form(form)),
            (_, Some(file)) => Self::of_one(facts, worth::of_file(facts, file, prices)),
            (_, None) => Self::of_values(facts, counted, prices),
        }
    }

    /// The bill of an output made by one worker. Unpaid if the last part is empty: a worker may be done because it was
    /// told to stop.
    fn of_one(facts: &Facts, worth: Worth) -> Self {
        let mut rewards = vec![Kudos(0); facts.parts.len()];
        match (rewards.last_mut(), facts.parts.last()) {
            (Some(reward), Some(last)) if last.events > 0 => *reward = worth.paid,
            _ => return Self::default(),
        }
        Self {
            rewards,
            told: worth.reward,
            charge: worth.charge,
            tokens: 0,
        }
    }

    /// Input only. Tokens, and texts of tokens, cost nothing, since no model computes them.
    fn of_values(facts: &Facts, counted: Counted, prices: &Prices) -> Self {
        let is_computed = facts.job.body.is_computed();
        let Some(last) = facts.parts.last().filter(|_| is_computed) else {
            return Self::default();
        };
        let tokens = Metered::of(facts, counted).prompt_tokens;
        let size = prices.size(&last.model, last.trusted);
        Self::of_one(facts, worth::of_values(tokens, size))
    }

    fn of_text(facts: &Facts, counted: Counted, prices: &Prices) -> Self {
        let metered = Metered::of(facts, counted);
        let rewards = rewards(facts, counted, metered, prices);
        let total: i64 = rewards.iter().map(|reward| reward.0).sum();
        Self {
            charge: match total {
                0 => Kudos(0),
                _ if is_unwanted(facts) => FEE,
                total => Kudos(total + FEE.0),
            },
            told: rewards.last().copied().unwrap_or_default(),
            rewards,
            tokens: metered.output_tokens,
        }
    }
}

/// In money, by the usage shown to the client. `None` without output.
fn cost(facts: &Facts, counted: Counted) -> Option<MicroUsd> {
    let price = facts.job.price?;
    let has_output = facts.parts.iter().any(|part| part.events > 0);
    let is_delivered = match &facts.outcome {
        Outcome::Delivered { .. } => !worth::is_hidden(&facts.outcome),
        // A durable transcript is delivered completely or not at all.
        outcome => is_paid(outcome) && has_output && !facts.job.is_only_whole(),
    };
    if !is_delivered {
        return Some(MicroUsd(0));
    }
    let metered = Metered::of(facts, counted);
    let price = match (counted.heard_millis, facts.job.body.transcribed_millis()) {
        (Some(heard), Some(all)) => price.for_part(heard.min(all), all),
        _ => price,
    };
    Some(price.cost(metered.prompt_tokens.into(), metered.output_tokens.into()))
}

/// A client that leaves, or reads too slowly, pays for the delivered output.
fn is_paid(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Delivered { .. } | Outcome::Cancelled => true,
        Outcome::Failed(failure) => failure.kind == FailureKind::SlowClient,
        Outcome::Expired => false,
    }
}

/// A result that a polling worker censored costs the fee alone, as for images.
fn is_unwanted(facts: &Facts) -> bool {
    let polls = facts.parts.last().is_some_and(|part| part.agent.is_some());
    polls && worth::is_hidden(&facts.outcome)
}

/// The rewards of the parts, in order.
fn rewards(facts: &Facts, counted: Counted, metered: Metered, prices: &Prices) -> Vec<Kudos> {
    if metered.output_tokens == 0 {
        return vec![Kudos(0); facts.parts.len()];
    }
    let longest = facts.job.limits.output_tokens;
    let tokens = counted_tokens(metered.output_tokens, longest);
    // The reward for the whole output, had this part's worker made it.
    let whole = |part: &Part| match part.agent.as_deref() {
        Some(agent) => Polled {
            prompt: counted.prompt_quarter,
            output: counted.output_quarter,
            longest,
            billions: prices.told(&part.model, part.trusted),
            is_trusted: part.trusted,
            agent,
        }
        .worth(),
        None => {
            let size = prices.size(&part.model, part.trusted);
            f64::from(tokens) * per_token(metered.prompt_tokens, size)
        }
    };
    let shared = facts.parts.iter().zip(shares(&facts.parts));
    let worths: Vec<f64> = shared.map(|(part, share)| share * whole(part)).collect();
    let raise = match facts.parts.iter().any(|part| part.agent.is_some()) {
        true => 1.0,
        false => raise(worths.iter().sum()),
    };
    worths.iter().map(|worth| rounded(worth * raise)).collect()
}

/// Shares of the output by part. If nothing was relayed, all of it belongs to the part that sent `done`.
fn shares(parts: &[Part]) -> Vec<f64> {
    let sizes: Vec<f64> = parts.iter().map(size).collect();
    let whole: f64 = sizes.iter().sum();
    if whole > 0.0 {
        return sizes.into_iter().map(|size| size / whole).collect();
    }
    let mut shares = vec![0.0; parts.len()];
    if let Some(last) = shares.last_mut() {
        *last = 1.0;
    }
    shares
}

/// Reported tokens, or events without a report.
fn size(part: &Part) -> f64 {
    match part.tokens {
        0 => part.events as f64,
        tokens => tokens as f64,
    }
}

fn entries(facts: &Facts, bill: &Bill) -> Vec<Entry> {
    let total: i64 = bill.rewards.iter().map(|reward| reward.0).sum();
    if total == 0 && bill.charge.0 == 0 {
        return Vec::new();
    }
    let plain = |account, reason, amount| Entry {
        account,
        worker: None,
        reason,
        amount: Kudos(amount),
    };
    let paid = facts
        .parts
        .iter()
        .zip(&bill.rewards)
        .filter(|(_, reward)| reward.0 != 0);
    let paid = paid.map(|(part, reward)| Entry {
        worker: Some(part.worker),
        ..plain(part.owner, Reason::Reward, reward.0)
    });
    let mut entries = vec![plain(facts.job.account, Reason::Charge, -bill.charge.0)];
    entries.extend(paid);
    entries.push(plain(HOUSE, Reason::Fee, bill.charge.0 - total));
    entries
}

fn charge(entries: &[Entry]) -> Kudos {
    let charges = entries
        .iter()
        .filter(|entry| entry.reason == Reason::Charge);
    Kudos(-charges.map(|entry| entry.amount.0).sum::<i64>())
}

/// The kind for statistics: speech and transcription count as audio, even as texts.
fn kind(facts: &Facts) -> Kind {
    facts.job.kind.listed_as()
}

/// The requested model, if no worker took the job.
fn wanted(facts: &Facts) -> Arc<str> {
    facts.job.model.0.first().cloned().unwrap_or_default()
}

fn ending(outcome: &Outcome) -> (State, &'static str) {
    match outcome {
        Outcome::Delivered { finish, .. } => (State::Delivered, finish_word(finish)),
        Outcome::Failed(failure) => (State::Failed, failure.kind.row().code),
        Outcome::Cancelled => (State::Cancelled, FailureKind::Cancelled.row().code),
        Outcome::Expired => (State::Expired, FailureKind::Expired.row().code),
    }
}

fn finish_word(finish: &FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop | FinishReason::StopString(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Unlawful => "csam",
        FinishReason::Cancelled => "cancelled",
    }
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }
}

impl Reason {
    pub fn word(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Reward => "reward",
            Self::Escrow => "escrow",
            Self::Fee => "fee",
            Self::Forgiven => "forgiven",
            Self::Request => "request",
        }
    }
}
