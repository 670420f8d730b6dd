//! The text process: a tokenizer and a template under limits, serving requests one after another.

use std::io::{self, Stdin, Stdout, Write, stdin, stdout};
use std::process::exit;
use std::thread;

use super::Limits;
use super::frames::{self, Opened, Reply, Request};
use crate::runtime::text::{Language, TextError};
use crate::runtime::{Chat, Failure, Prompt};
use muster_process::child::{self, Watch, limit_memory};

/// Answers until the parent closes our input. The limits come with the first frame: nothing of the model is read before.
pub fn serve() -> io::Result<()> {
    let first = child::read(&mut stdin())?;
    let Ok(Request::Open { source, limits }) = serde_json::from_slice(&first) else {
        return Err(io::Error::other("the first frame must open a model"));
    };
    drop(first);
    let limits = Limits::from(limits);
    child::write_no_core()?;
    let watch = Watch::start()?;
    limit_memory(limits.open_bytes)?;
    let work = move || -> io::Result<()> {
        let (mut input, mut output) = (stdin(), stdout());
        watch.begin(limits.open_time);
        let Some(language) = open(Language::open_here(source.as_source()), &mut output)? else {
            return Ok(());
        };
        drop(source);
        watch.end();
        limit_memory(limits.request_bytes)?;
        // The files are read: requests need none.
        child::confine()?;
        answer_all(&language, &watch, limits, &mut input, &mut output)
    };
    let thread = thread::Builder::new()
        .name("text".to_owned())
        .stack_size(limits.stack_bytes)
        .spawn(work)?;
    // A panic was printed, and the parent reads why we ended.
    thread.join().unwrap_or_else(|_| exit(101))
}

/// Sends the parent the description of the files, or their refusal.
fn open(opened: Result<Language, TextError>, output: &mut Stdout) -> io::Result<Option<Language>> {
    let language = match opened {
        Ok(language) => language,
        Err(error) => {
            send(output, &Reply::Refused(error))?;
            return Ok(None);
        }
    };
    let opening = language.encode("", true);
    let opened = Opened {
        ends: language.ends.clone(),
        recommended: (&language.defaults).into(),
        markup: language.markup,
        brings_template: language.brings_template(),
        opening: opening.unwrap_or_default(),
    };
    send(output, &Reply::Opened(Box::new(opened)))?;
    child::write_table(output, &language.pieces().to_bytes())?;
    Ok(Some(language))
}

fn answer_all(
    language: &Language,
    watch: &Watch,
    limits: Limits,
    input: &mut Stdin,
    output: &mut Stdout,
) -> io::Result<()> {
    loop {
        let frame = match child::read(input) {
            Ok(frame) => frame,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        watch.begin(limits.request_time);
        let request = serde_json::from_slice(&frame).map_err(io::Error::other)?;
        let reply = answer(language, request);
        send(output, &reply)?;
        watch.end();
    }
}

fn answer(language: &Language, request: Request) -> Reply {
    let with_chat = |text: &str, then: &dyn Fn(Chat) -> Reply| match frames::chat_from_text(text) {
        Ok(chat) => then(chat),
        Err(error) => Reply::BadRequest(format!("parsing the chat failed: {error}")),
    };
    match request {
        Request::Text { text, prefix } => tokens(language.encode(&text, prefix)),
        Request::Chat { text, prefix } => with_chat(&text, &|chat| {
            tokens(language.read(&Prompt::Chat(chat), prefix))
        }),
        Request::OpensThought(text) => with_chat(&text, &|chat| {
            Reply::OpensThought(language.opens_thought(&chat))
        }),
        Request::Pair { first, second } => match language.pair(&first, &second) {
            Ok((tokens, types)) => Reply::Pair { tokens, types },
            Err(failure) => Reply::BadRequest(failure.to_string()),
        },
        Request::Names(ids) => match language.names(&ids) {
            Ok(names) => Reply::Names(names),
            Err(failure) => Reply::BadRequest(failure.to_string()),
        },
        Request::Open { .. } => Reply::BadRequest("a model is already open".to_owned()),
    }
}

fn tokens(read: Result<Vec<u32>, Failure>) -> Reply {
    match read {
        Ok(tokens) => Reply::Tokens(tokens),
        Err(Failure::BrokenTemplate(reason)) => Reply::BrokenTemplate(reason),
        Err(failure) => Reply::BadRequest(failure.to_string()),
    }
}

fn send(output: &mut Stdout, reply: &Reply) -> io::Result<()> {
    output.write_all(&child::to_bytes(reply))?;
    output.flush()
}
