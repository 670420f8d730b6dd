//! Forms: captions by a chat model that reads images, and judgements by the safety checker. The image comes by a link.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::{Shop, handed_back, images, never_began, paused, serve};
use crate::daemon::blame;
use crate::daemon::media::fetch_file;
use crate::link::session::{Slot, Work};
use crate::link::{Offer, Reply, Said};
use muster_engine::runtime::maker::{PixelFormat, Pixels};
use muster_engine::runtime::safety::SafetyChecker;
use muster_protocol::job::{
    Body, Event, Failure, FailureKind, FinishReason, FormRequest, Kind, ResultPart, TextRequest,
    Usage,
};
use muster_protocol::link::Payload;

/// The forms that a worker of ours may answer.
pub const CAPTION: &str = "caption";
pub const NSFW: &str = "nsfw";

const QUESTION: &str = "Describe this image in one sentence.";
/// Tokens of a caption.
const MOST_TOKENS: u32 = 96;
/// Words about a caption that may wait to be taken in.
const WAITING_WORDS: usize = 64;

/// An answer, and the model's token usage.
struct FormAnswer {
    value: Value,
    usage: Usage,
}

/// Answers the form. The reply always gets exactly one final report.
pub async fn answer(offer: Offer, request: FormRequest, shop: Shop) {
    let Offer {
        line,
        work,
        transfers,
        mut reply,
        stop,
    } = offer;
    let mut availability = shop.availability.clone();
    let fetched = tokio::select! {
        biased;
        () = stop.wanted() => Err(never_began()),
        () = paused(&mut availability) => Err(handed_back()),
        fetched = fetch_file("image", &request.image, &transfers) => fetched,
    };
    let answered = match (fetched, request.form.as_str()) {
        (Err(said), _) => Err(said),
        (Ok(image), CAPTION) => {
            let inner = |reply| Offer {
                line,
                work,
                transfers,
                reply,
                stop,
            };
            caption(&image, inner, shop).await
        }
        (Ok(image), NSFW) => {
            let checker = shop.fleet.iter().find_map(|engines| engines.safety.clone());
            let judged = spawn_blocking(move || is_unsafe(&image, checker));
            match judged.await {
                Ok(Ok(is_unsafe)) => Ok(FormAnswer {
                    value: json!(is_unsafe),
                    usage: Usage::default(),
                }),
                Ok(Err(failure)) => Err(Said::Failed(failure)),
                Err(_) => Err(blame::broken()),
            }
        }
        (Ok(_), form) => Err(unable(&format!("answers no form {form}"))),
    };
    let last = match answered {
        Ok(FormAnswer { value, usage }) => {
            let answer = Map::from_iter([(request.form, value)]);
            let part = ResultPart::Form(answer);
            reply.say(Said::Part(Box::new(part))).await;
            let finish = FinishReason::Stop;
            Said::Done { finish, usage }
        }
        Err(said) => said,
    };
    reply.say(last).await;
}

/// Asks the model like a chat; the text is collected here instead of sent to the coordinator.
async fn caption(
    image: &[u8],
    inner: impl FnOnce(Reply) -> Offer,
    shop: Shop,
) -> Result<FormAnswer, Said> {
    let Some(model) = shop.captioning.clone() else {
        return Err(unable("serves no model that reads images"));
    };
    let request = question(image)?;
    let (sender, mut words) = mpsc::channel(WAITING_WORDS);
    let mut offer = inner(Reply::new(Slot(0), sender));
    offer.work = Work {
        model,
        kind: Kind::Text,
        payload: Payload::Neutral(Body::from(request)),
        ..offer.work
    };
    let listen = async {
        let mut text = String::new();
        loop {
            match words.recv().await.map(|(_, said)| said) {
                Some(Said::Output(events)) => {
                    for event in events {
                        if let Event::Token(token) = event {
                            text.push_str(&token.text);
                        }
                    }
                }
                Some(Said::Done { finish, usage }) if finish != FinishReason::Cancelled => {
                    return Ok((text, usage));
                }
                Some(said) if said.is_last() => return Err(said),
                Some(_) => {}
                None => return Err(blame::broken()),
            }
        }
    };
    let ((), heard) = tokio::join!(serve(offer, shop), listen);
    let (text, usage) = heard?;
    match text.trim() {
        "" => Err(broken("the model wrote no caption".to_owned())),
        text => Ok(FormAnswer {
            value: json!(text),
            usage,
        }),
    }
}

fn question(image: &[u8]) -> Result<TextRequest, Said> {
    let url = format!("data:image/*;base64,{}", STANDARD.encode(image));
    let content = json!([
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": QUESTION},
    ]);
    let request = json!({
        "input": {"chat": {"messages": [{"role": "user", "content": content}]}},
        "sampling": {"temperature": 0.0},
        "max_tokens": MOST_TOKENS,
    });
    let request = serde_json::from_value(request);
    request.map_err(|error| broken(format!("writing the question failed: {error}")))
}

fn is_unsafe(image: &[u8], checker: Option<SafetyChecker>) -> Result<bool, Failure> {
    let Some(checker) = checker else {
        let message = "this worker judges no images: set engine.safety_checker";
        return Err(Failure::new(FailureKind::UnsupportedValue, message));
    };
    let ([width, height], bytes) = images::rgb_of(image).map_err(|error| {
        let message = format!("the image is unusable: {error}");
        Failure::new(FailureKind::InvalidRequest, message)
    })?;
    let pixels = Pixels {
        width,
        height,
        format: PixelFormat::Rgb,
        bytes,
    };
    let flagged = checker.flags(&pixels);
    flagged.map_err(|error| Failure::new(FailureKind::WorkerFailed, error.to_string()))
}

fn broken(message: String) -> Said {
    Said::Failed(Failure::new(FailureKind::WorkerFailed, message))
}

fn unable(what: &str) -> Said {
    let message = format!("this worker {what}");
    Said::Failed(Failure::new(FailureKind::UnsupportedValue, message))
}
