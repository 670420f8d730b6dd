//! A job of a coordinator, from its offer to its final report.
//!
//! | file | content |
//! | --- | --- |
//! | `request` | the engine's request |
//! | `images` | the images of chats |
//! | `grammar` | the engine's grammar |
//! | `encode` | jobs without text generation |
//! | `forms` | image interrogation |
//! | `speech` | the engine's events as reports for coordinators |
//! | `logprobs` | the tokens of a piece of text |
//! | `upstream` | jobs of upstream models |

mod encode;
mod forms;
mod grammar;
mod images;
mod logprobs;
mod request;
mod speech;
mod upstream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::{debug, error};

use super::blame;
use super::engines::{Engines, Fleet};
use super::media::{self, MediaDesk};
use super::owner::Availability;
use super::pace::Paces;
use super::residency::ResidencyHold;
use super::summary::Counters;
use crate::link::session::Work;
use crate::link::{LineId, Offer, Reply, Said, Stop};
use crate::upstream::UpstreamModel;
use muster_engine::runtime::{self, Generation, Runtime};
use muster_protocol::job::{
    Body, Failure, FailureKind, FinishReason, KeepAlive, ResultPart, TokenList, TokensRequest,
    Usage,
};
use muster_protocol::link::{Payload, Prefill};

pub use forms::{CAPTION, NSFW};
use images::ImageReader;
use request::Asked;
use speech::Speech;

/// Retry delay of a paused worker: its state shows when it is available.
const PAUSED: Duration = Duration::from_millis(500);
/// The same for a job that can only continue from tokens: the next attempt may have them.
const NOT_FROM_TEXT: Duration = Duration::from_millis(500);

/// The worker's state that every job needs.
#[derive(Clone)]
pub struct Shop {
    pub fleet: Fleet,
    pub availability: watch::Receiver<Availability>,
    pub paces: Arc<Paces>,
    pub counters: Counters,
    /// The model that writes captions.
    pub captioning: Option<String>,
    /// Models that other programs serve.
    pub upstreams: Arc<[Arc<UpstreamModel>]>,
}

/// Does a job of any kind.
pub async fn run(mut offer: Offer, shop: Shop) {
    match std::mem::replace(&mut offer.work.payload, Payload::Unreadable) {
        Payload::Neutral(Body::Form(request)) => forms::answer(offer, *request, shop).await,
        payload => {
            offer.work.payload = payload;
            let mut upstreams = shop.upstreams.iter();
            match upstreams
                .find(|model| model.name == offer.work.model)
                .cloned()
            {
                Some(model) => upstream::serve(offer, model, shop).await,
                None => serve(offer, shop).await,
            }
        }
    }
}

/// Executes a job. The reply always gets exactly one final report.
async fn serve(offer: Offer, mut shop: Shop) {
    let Offer {
        line,
        work,
        transfers,
        mut reply,
        stop,
    } = offer;
    let (id, model) = (work.job, work.model.clone());
    if unloads(&work) && shop.fleet.unload(&model).await {
        let nothing = ResultPart::Tokens(TokenList::default());
        let (result, done) = encode::ending(nothing, 0);
        reply.say(result).await;
        shop.counters.end(&done);
        return reply.say(done).await;
    }
    let keep_alive = work.keep_alive;
    let fleet = shop.fleet.clone();
    let held = tokio::select! {
        biased;
        () = stop.wanted() => Err(never_began()),
        () = closed(&shop.availability) => Err(handed_back()),
        held = hold(&fleet, &model) => held,
    };
    let (engines, _hold) = match held {
        Ok(held) => held,
        Err(said) => {
            shop.counters.end(&said);
            return reply.say(said).await;
        }
    };
    if let (Some(residency), Some(keep_alive)) = (&engines.residency, keep_alive) {
        residency.set_keep_alive(&model, keep_alive);
    }
    if makes_media(engines, &model) {
        let desk = MediaDesk {
            engines,
            transfers: &transfers,
            reply: &mut reply,
        };
        return make(work, desk, shop, &stop).await;
    }
    let running = (shop.paces.begin(&model), shop.counters.begin());
    let began = Instant::now();
    let preparing = prepare(work, line, engines);
    let prepared = unless_over(&stop, &mut shop.availability, preparing).await;
    let ended = match prepared.flatten() {
        Ok(JobStart::Text(generation, asked)) => {
            listen(*generation, *asked, began, &mut shop, &mut reply, &stop).await
        }
        Ok(JobStart::Values(result, done)) => {
            reply.say(result).await;
            done
        }
        Err(said) => said,
    };
    check_device(engines, &ended).await;
    shop.counters.end(&ended);
    drop(running);
    debug!(job.id = %id, "job {id} ended on {model}");
    reply.say(ended).await;
}

/// The same for a model of the maker.
async fn make(work: Work, desk: MediaDesk<'_>, mut shop: Shop, stop: &Stop) {
    let (id, model) = (work.job, work.model.clone());
    let running = (shop.paces.begin(&model), shop.counters.begin());
    let MediaDesk {
        engines,
        transfers,
        reply,
    } = desk;
    let desk = MediaDesk {
        engines,
        transfers,
        reply: &mut *reply,
    };
    let made = unless_over(stop, &mut shop.availability, media::run(work, desk)).await;
    let ended = made.unwrap_or_else(|said| said);
    check_device(engines, &ended).await;
    shop.counters.end(&ended);
    drop(running);
    debug!(job.id = %id, "job {id} ended on {model}");
    reply.say(ended).await;
}

/// The device of a job, with its model in memory until the job ends; the last word where it cannot be loaded.
async fn hold<'a>(
    fleet: &'a Fleet,
    model: &str,
) -> Result<(&'a Engines, Option<ResidencyHold>), Said> {
    fleet.hold(model).await.map_err(|failure| {
        error!("loading {model} again failed: {failure}");
        let message = format!("the worker could not load {model} again");
        Said::Failed(Failure::new(FailureKind::WorkerFailed, message))
    })
}

/// A device may have failed with the job.
async fn check_device(engines: &Engines, ended: &Said) {
    if let Said::Failed(failure) = ended
        && failure.kind == FailureKind::WorkerFailed
    {
        engines.health.check().await;
    }
}

fn makes_media(engines: &Engines, model: &str) -> bool {
    let Some(maker) = &engines.maker else {
        return false;
    };
    maker.status().models.iter().any(|one| one.name == model)
}

/// A model that is to leave memory need not be loaded first.
fn unloads(work: &Work) -> bool {
    let Payload::Neutral(Body::Tokens(request)) = &work.payload else {
        return false;
    };
    **request == TokensRequest::Load && work.keep_alive == Some(KeepAlive::UNLOAD)
}

fn never_began() -> Said {
    Said::Done {
        finish: FinishReason::Cancelled,
        usage: Usage::default(),
    }
}

/// This worker cannot continue the delivered output; another worker may.
fn not_from_text() -> Said {
    Said::Busy {
        retry_after: NOT_FROM_TEXT,
    }
}

fn handed_back() -> Said {
    Said::Busy {
        retry_after: PAUSED,
    }
}

/// The result of a part of a job; the last word instead where its client leaves or its owner pauses before.
async fn unless_over<T>(
    stop: &Stop,
    availability: &mut watch::Receiver<Availability>,
    part: impl Future<Output = T>,
) -> Result<T, Said> {
    tokio::select! {
        biased;
        () = stop.wanted() => Err(never_began()),
        () = paused(availability) => Err(handed_back()),
        done = part => Ok(done),
    }
}

/// Waits until running jobs are handed back.
async fn paused(availability: &mut watch::Receiver<Availability>) {
    let is_paused = |now: &Availability| *now == Availability::Paused;
    if availability.wait_for(is_paused).await.is_err() {
        // The sender is gone, so no pause can come.
        std::future::pending::<()>().await;
    }
}

/// Waits until the owner's pause is over.
async fn resumed(availability: &mut watch::Receiver<Availability>) {
    let is_over = |now: &Availability| *now != Availability::Paused;
    if availability.wait_for(is_over).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until no job may begin.
async fn closed(availability: &watch::Receiver<Availability>) {
    let mut availability = availability.clone();
    let is_closed = |now: &Availability| *now != Availability::Open;
    if availability.wait_for(is_closed).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The state of a job before its text is generated.
enum JobStart {
    /// The generation has begun.
    Text(Box<Generation>, Box<Asked>),
    /// All of it is done: the result, and the last word.
    Values(Said, Said),
}

/// The job, begun; or the last word already.
async fn prepare(work: Work, line: LineId, engines: &Engines) -> Result<JobStart, Said> {
    let runtime = &engines.runtime;
    let work = match work.payload {
        Payload::Neutral(body) if body.brings_values() => {
            let _admitted = engines.throttle.admit().await;
            let (result, done) = encode::run(work.model, body, runtime).await?;
            return Ok(JobStart::Values(result, done));
        }
        payload => Work { payload, ..work },
    };
    let is_from_text = has_text_without_tokens(&work);
    let says_all = |prefill: &Prefill| prefill.written.is_some();
    if is_from_text && !work.prefill.as_ref().is_some_and(says_all) {
        return Err(not_from_text());
    }
    let language = runtime.language(&work.model).map_err(blame::said)?;
    let images = image_reader(&work.model, runtime).map_err(blame::said)?;
    // On another thread: templates may be slow, and come with downloaded models.
    let read = move || {
        let asked = Asked::read(work, line, language, images.as_ref());
        let asked = asked.map_err(Said::Failed)?;
        match is_from_text {
            true => asked.continued_by_text().ok_or_else(not_from_text),
            false => Ok(asked),
        }
    };
    let asked = tokio::task::spawn_blocking(read);
    let asked = asked.await.map_err(|_| blame::broken())??;
    let admitted = engines.throttle.admit().await;
    let generation = runtime.generate(asked.request.clone()).await;
    drop(admitted);
    let generation = generation.map_err(blame::said)?;
    Ok(JobStart::Text(Box::new(generation), Box::new(asked)))
}

/// `None` for a model without vision.
fn image_reader(model: &str, runtime: &Runtime) -> Result<Option<ImageReader>, runtime::Failure> {
    let context = runtime.info(model)?.context;
    let input = runtime.image_input(model)?;
    Ok(input.map(|input| ImageReader { input, context }))
}

/// Whether the delivered part has no token ids, as from an upstream program.
fn has_text_without_tokens(work: &Work) -> bool {
    let prefill = work.prefill.as_ref();
    prefill.is_some_and(|prefill| prefill.tokens.is_empty() && !prefill.text.is_empty())
}

/// Passes on generated events. Dropping the generation cancels the job.
async fn listen(
    mut generation: Generation,
    asked: Asked,
    began: Instant,
    shop: &mut Shop,
    reply: &mut Reply,
    stop: &Stop,
) -> Said {
    let model = asked.request.model.clone();
    let mut speech = Speech::new(&asked);
    loop {
        let event = tokio::select! {
            biased;
            () = stop.wanted() => return speech.cancelled(),
            () = paused(&mut shop.availability) => return handed_back(),
            event = generation.next() => event,
        };
        let (output, end) = match event {
            Some(runtime::Event::Started {
                prompt_tokens,
                cached_tokens,
            }) => {
                let said = speech.started(prompt_tokens, cached_tokens);
                (Some(said), None)
            }
            Some(runtime::Event::Prompt { start, tokens }) => {
                for said in speech.prompt(start, tokens) {
                    reply.say(said).await;
                }
                continue;
            }
            Some(runtime::Event::Text { text, tokens }) => {
                shop.counters.add_tokens(tokens.len());
                speech.text(&text, tokens)
            }
            Some(runtime::Event::Done { reason, usage }) => {
                let pace = speech.pace(began, usage);
                shop.paces.note(&model, &pace);
                shop.counters.add_pace(&pace);
                let (rest, done) = speech.done(&reason, usage);
                (rest, Some(done))
            }
            Some(runtime::Event::Failed(failure)) => return blame::said(failure),
            None => return blame::broken(),
        };
        if let Some(output) = output {
            reply.say(output).await;
        }
        if let Some(end) = end {
            return end;
        }
    }
}
