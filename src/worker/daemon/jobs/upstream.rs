//! Jobs of upstream models: converts the program's reply to reports for coordinators.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep_until;
use tracing::debug;

use super::encode::ending;
use super::request::{take_images, text_request};
use super::speech::call_id;
use super::{Shop, handed_back, not_from_text, paused, resumed, unless_over};
use crate::daemon::blame;
use crate::daemon::media::{self, MediaDesk};
use crate::daemon::owner::Availability;
use crate::daemon::pace::Pace;
use crate::link::session::{Peer, Work};
use crate::link::{Offer, Reply, Said, Stop, Transfers};
use crate::upstream::{AnswerEvent, TextContinuation, UpstreamAnswer, UpstreamModel};
use muster_protocol::job::{
    Body, Channel, Event, Failure, FailureKind, FinishReason, JobRequest, ResultPart, TextRequest,
    TokenEvent, TokenList, TokensRequest, ToolCallEvent,
};
use muster_protocol::link::{Payload, Prefill};

/// Executes the job. The reply always gets exactly one final report.
pub async fn serve(offer: Offer, model: Arc<UpstreamModel>, mut shop: Shop) {
    let Offer {
        work,
        transfers,
        mut reply,
        stop,
        ..
    } = offer;
    let id = work.job;
    let running = (shop.paces.begin(&model.name), shop.counters.begin());
    let ended = match &work.payload {
        Payload::Neutral(body) if body.file().is_some() => {
            draw(work, &model, &mut shop, (&transfers, &mut reply, &stop)).await
        }
        Payload::Neutral(body) if body.brings_values() => {
            values(work, &model, &mut shop, (&mut reply, &stop)).await
        }
        _ => write(work, &model, &mut shop, (&mut reply, &stop)).await,
    };
    shop.counters.end(&ended);
    drop(running);
    debug!(job.id = %id, "job {id} ended on {}", model.name);
    reply.say(ended).await;
}

fn unsupported(message: String) -> Said {
    Said::Failed(Failure::new(FailureKind::UnsupportedValue, message))
}

async fn write(
    work: Work,
    model: &UpstreamModel,
    shop: &mut Shop,
    (reply, stop): (&mut Reply, &Stop),
) -> Said {
    let (job, peer) = (work.job, work.peer);
    let is_begun = |prefill: &Prefill| !prefill.text.is_empty() || !prefill.tokens.is_empty();
    let begun = work.prefill.filter(is_begun);
    let mut request = match text_request(work.payload) {
        Ok(request) => request,
        Err(failure) => return Said::Failed(failure),
    };
    if let Err(failure) = check(&request, model) {
        return Said::Failed(failure);
    }
    let continues = model.continues(&request);
    let mut rest = None;
    if let Some(begun) = begun {
        rest = TextContinuation::of(&mut request, begun).filter(|_| continues);
        if rest.is_none() {
            return not_from_text();
        }
    }
    let goes_on = rest.as_ref().is_some_and(TextContinuation::goes_on);
    let began = Instant::now();
    let writing = model.write(&request, goes_on);
    let opened = unless_over(stop, &mut shop.availability, writing).await;
    let mut answer = match opened {
        Ok(Ok(answer)) => answer,
        // The program refuses the continuation, not the job.
        Ok(Err(error)) if rest.is_some() && !error.is_of_program() => return not_from_text(),
        Ok(Err(error)) => return blame::said_of_program(model, &error),
        Err(said) => return said,
    };
    let (mut first, mut calls, mut grace) = (None, 0, PauseGrace::default());
    // Only our coordinators let another worker continue a plain text.
    let mut can_go_on_elsewhere = continues && peer == Peer::Ours;
    let finish = loop {
        if rest.as_ref().is_some_and(TextContinuation::is_full) {
            break FinishReason::Length;
        }
        let within = model.finish_within(can_go_on_elsewhere);
        let event = tokio::select! {
            biased;
            () = stop.wanted() => break FinishReason::Cancelled,
            () = grace.over(first.is_some(), within, &mut shop.availability) => return handed_back(),
            event = answer.next() => event,
        };
        let output = match event {
            Ok(None) => break answer.ending().0,
            Err(error) => return blame::said_of_program(model, &error),
            Ok(Some(AnswerEvent::Text {
                channel,
                text,
                logprobs,
            })) => {
                let is_content = channel == Channel::Content;
                if rest.is_some() && first.is_none() && !is_content {
                    return not_from_text();
                }
                can_go_on_elsewhere &= is_content;
                let text = match &mut rest {
                    Some(rest) => rest.fresh(&text).to_owned(),
                    None => text,
                };
                if text.is_empty() {
                    continue;
                }
                Event::Token(TokenEvent {
                    channel,
                    text,
                    ids: Vec::new(),
                    logprobs,
                })
            }
            Ok(Some(AnswerEvent::Call(call))) => {
                can_go_on_elsewhere = false;
                let begins = call.index >= calls;
                if begins && calls > 0 && request.parallel_tool_calls == Some(false) {
                    break FinishReason::ToolCalls;
                }
                calls = calls.max(call.index + 1);
                Event::ToolCall(ToolCallEvent {
                    id: match begins {
                        true => call.id.or_else(|| Some(call_id(job, call.index))),
                        false => None,
                    },
                    ..call
                })
            }
            // The answer keeps these.
            Ok(Some(AnswerEvent::Finish(_) | AnswerEvent::Usage(_))) => continue,
        };
        first.get_or_insert_with(Instant::now);
        shop.counters.add_tokens(1);
        reply.say(Said::Output(vec![output])).await;
    };
    if finish != FinishReason::Cancelled {
        note_pace(&answer, model, shop, (began, first));
    }
    let (_, usage) = answer.ending();
    let usage = match &rest {
        Some(rest) => rest.counted(usage),
        None => usage,
    };
    Said::Done { finish, usage }
}

/// Time for a text to finish after the owner's pause: the worker cannot free the program's memory, and some texts no other
/// worker can continue.
#[derive(Default)]
struct PauseGrace {
    until: Option<tokio::time::Instant>,
}

impl PauseGrace {
    /// Waits until the text is to end for a pause: at once where its client has nothing of it yet.
    async fn over(
        &mut self,
        has_output: bool,
        within: Duration,
        availability: &mut watch::Receiver<Availability>,
    ) {
        loop {
            paused(availability).await;
            if !has_output {
                return;
            }
            let until = *self
                .until
                .get_or_insert_with(|| tokio::time::Instant::now() + within);
            tokio::select! {
                () = sleep_until(until) => return,
                () = resumed(availability) => {}
            }
            self.until = None;
        }
    }
}

/// Refuses requests that no program supports.
fn check(request: &TextRequest, model: &UpstreamModel) -> Result<(), Failure> {
    if model.reads_images {
        return Ok(());
    }
    // Refuses any image by its place.
    take_images(&mut request.input.clone(), None).map(drop)
}

fn note_pace(
    answer: &UpstreamAnswer,
    model: &UpstreamModel,
    shop: &Shop,
    (began, first): (Instant, Option<Instant>),
) {
    let (_, usage) = answer.ending();
    let first = first.unwrap_or_else(Instant::now);
    let pace = Pace {
        read: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        reading: first.saturating_duration_since(began),
        written: usage.completion_tokens,
        writing: first.elapsed(),
    };
    shop.paces.note(&model.name, &pace);
    shop.counters.add_pace(&pace);
}

/// Jobs that read and do not write.
async fn values(
    work: Work,
    model: &UpstreamModel,
    shop: &mut Shop,
    (reply, stop): (&mut Reply, &Stop),
) -> Said {
    match read(work.payload, model, shop, stop).await {
        Ok((result, done)) => {
            reply.say(result).await;
            done
        }
        Err(said) => said,
    }
}

/// The result, and the last word.
async fn read(
    payload: Payload,
    model: &UpstreamModel,
    shop: &mut Shop,
    stop: &Stop,
) -> Result<(Said, Said), Said> {
    let name = &model.name;
    let (result, tokens, read_bytes) = match payload {
        Payload::Neutral(Body::Tokens(request)) if *request == TokensRequest::Load => {
            let tokens = TokenList {
                context: model.context,
                ..TokenList::default()
            };
            return Ok(ending(ResultPart::Tokens(tokens), 0));
        }
        Payload::Neutral(Body::Embedding(request)) => {
            let embedded = unless_over(stop, &mut shop.availability, model.embed(&request)).await?;
            let (vectors, tokens) =
                embedded.map_err(|error| blame::said_of_program(model, &error))?;
            (ResultPart::Vectors(vectors), tokens, request.read_bytes())
        }
        Payload::Neutral(Body::Ranking(request)) => {
            let ranked = unless_over(stop, &mut shop.availability, model.rank(&request)).await?;
            let (scores, tokens) = ranked.map_err(|error| blame::said_of_program(model, &error))?;
            (ResultPart::Scores(scores), tokens, request.read_bytes())
        }
        Payload::Neutral(Body::Tokens(_)) => {
            return Err(unsupported(format!(
                "{name} is served by a program that shows no tokens"
            )));
        }
        _ => {
            return Err(unsupported(format!(
                "{name} is served by a program that does not do this kind of job"
            )));
        }
    };
    // A token has a byte at least.
    Ok(ending(result, tokens.clamp(1, read_bytes.max(1))))
}

/// Draws each image of the job.
async fn draw(
    work: Work,
    model: &UpstreamModel,
    shop: &mut Shop,
    (transfers, reply, stop): (&Transfers, &mut Reply, &Stop),
) -> Said {
    let fleet = shop.fleet.clone();
    let Some(engines) = fleet.iter().next() else {
        return handed_back();
    };
    let desk = MediaDesk {
        engines,
        transfers,
        reply,
    };
    let drawn = media::draw_upstream(work, model, desk);
    match unless_over(stop, &mut shop.availability, drawn).await {
        Ok(said) => said,
        Err(said) => {
            model.interrupt().await;
            said
        }
    }
}
