//! `worker chat`: talk to a model in the terminal.
//!
//! | file | contents |
//! | --- | --- |
//! | `service` | the coordinator to use: from the options, running on this machine, or started in this process |
//! | `model` | its model: downloaded and loaded if it is not served yet |
//! | `client` | requests to it, and streamed replies |
//! | `conversation` | messages so far, as a file too |
//! | `input`, `line` | messages, commands, several lines between `"""`; the editing of one line |

mod client;
mod conversation;
mod input;
mod line;
mod model;
mod service;

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use tokio::task::block_in_place;
use url::Url;

use super::load::block_on;
use super::{Exit, Failure, Root, output, threads};
pub use client::Client;
pub use service::running;

use client::Answer;
use conversation::Conversation;
use input::{ChatCommand, Entry, Terminal};
use service::Service;

const EXAMPLES: &str = "\
Examples:
  worker chat                                      talk to the model of the running `worker up`, or start it
  worker chat qwen3-0.6b                           talk to this model
  worker run qwen3-0.6b \"Why is the sky blue?\"     one answer; `run` is another name of `chat`
  cat notes.txt | worker chat --system \"Summarize the text.\"
  worker chat --url https://muster.example --key KEY qwen3-8b

In a chat /help lists the commands, Ctrl-C stops an answer, Ctrl-D ends the chat.";

/// Talk to a model in the terminal.
///
/// Uses the coordinator of --url, else the `worker up` that runs with this data folder, else starts one for as long as
/// the chat takes. A model of the catalog that is not on disk is downloaded after a question, and loaded.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, visible_alias = "run")]
pub struct ChatArgs {
    /// Model to talk to: a name of the catalog, a file or a folder (default: the first one that is served).
    model: Option<String>,
    /// Message to answer; then the command ends. Standard input is read if it is no terminal.
    prompt: Vec<String>,
    /// System prompt.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Address of a coordinator.
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// Key for the coordinator.
    #[arg(
        long,
        value_name = "KEY",
        env = "MUSTER_API_KEY",
        hide_env_values = true
    )]
    key: Option<String>,
}

/// A running chat.
struct Session<'a> {
    client: &'a Client,
    conversation: Conversation,
    last: Option<Answer>,
}

pub fn run(args: ChatArgs, root: &Root) -> Result<(), Failure> {
    let flags = service::flags(args.url.is_none());
    let loaded = root.load_with(flags)?;
    root.start_log_quietly(&loaded)?;
    threads::settle(&loaded.config)?;
    let config = &loaded.config;
    let history = config.worker.data_dir.join("chat_history");
    block_on(async {
        let service = Service::find(args.url, args.key, args.model, config, root).await?;
        let client = service.client();
        let chat = async {
            let mut session = Session {
                conversation: Conversation {
                    model: client.choose(service.model()).await?,
                    system: args.system,
                    messages: Vec::new(),
                },
                client: &client,
                last: None,
            };
            match prompt(args.prompt)? {
                Some(prompt) => session.answer_once(prompt).await,
                None => session.talk(&history).await,
            }
        };
        let ended = chat.await;
        service.end().await;
        ended
    })
}

/// The message of the command line, or all of standard input; none at a terminal.
fn prompt(words: Vec<String>) -> Result<Option<String>, Failure> {
    let mut prompt = words.join(" ");
    if !io::stdin().is_terminal() {
        let mut piped = String::new();
        let read = io::stdin().lock().read_to_string(&mut piped);
        read.map_err(|error| {
            let message = format!("reading standard input failed: {error}");
            Failure::new(Exit::Failed, message)
        })?;
        if !prompt.is_empty() && !piped.is_empty() {
            prompt.push_str("\n\n");
        }
        prompt.push_str(piped.trim_end());
        if prompt.is_empty() {
            let message =
                "there is nothing to answer: no message is given, and standard input is empty";
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    Ok((!prompt.is_empty()).then_some(prompt))
}

impl Session<'_> {
    async fn answer_once(&mut self, prompt: String) -> Result<(), Failure> {
        self.conversation.ask(prompt);
        let answer = self.client.answer(&self.conversation, false).await?;
        match answer.was_stopped {
            true => Err(Failure::new(Exit::Interrupted, "the answer was stopped")),
            false => Ok(()),
        }
    }

    async fn talk(&mut self, history: &Path) -> Result<(), Failure> {
        output::line(format!(
            "{} answers. /help lists the commands, Ctrl-C stops an answer, Ctrl-D ends the chat.",
            self.conversation.model
        ))?;
        let mut terminal = Terminal::open(history);
        loop {
            match block_in_place(|| terminal.next())? {
                Entry::Message(text) => self.answer(text).await?,
                Entry::Command(ChatCommand::Leave) | Entry::End => return Ok(()),
                Entry::Command(command) => {
                    // A command that fails leaves the chat as it is.
                    if let Err(failure) = self.obey(command).await {
                        output::aside(failure);
                    }
                }
                Entry::Nothing => {}
            }
        }
    }

    /// A request that fails is taken back, so that the message can be sent again.
    async fn answer(&mut self, text: String) -> Result<(), Failure> {
        self.conversation.ask(text);
        match self.client.answer(&self.conversation, true).await {
            Ok(answer) => {
                self.conversation.answered(&answer.text);
                self.last = Some(answer);
            }
            Err(failure) => {
                self.conversation.take_back();
                output::aside(failure);
            }
        }
        Ok(())
    }

    async fn obey(&mut self, command: ChatCommand) -> Result<(), Failure> {
        match command {
            ChatCommand::Help => output::line(input::HELP),
            ChatCommand::Leave => Ok(()),
            ChatCommand::Clear => {
                self.conversation.messages.clear();
                output::line("the conversation is empty")
            }
            ChatCommand::Model(None) => {
                let models = self.client.models().await?;
                output::line(models.join("\n"))
            }
            ChatCommand::Model(Some(name)) => {
                self.conversation.model = self.client.choose(Some(&name)).await?;
                output::line(format!("{} answers", self.conversation.model))
            }
            ChatCommand::System(None) => output::line(
                self.conversation
                    .system
                    .as_deref()
                    .unwrap_or("there is no system prompt; /system TEXT sets one"),
            ),
            ChatCommand::System(Some(text)) => {
                self.conversation.system = Some(text);
                output::line("the system prompt is set")
            }
            ChatCommand::Save(file) => {
                self.conversation.save(&file)?;
                output::line(format!("saved to {}", file.display()))
            }
            ChatCommand::Load(file) => {
                let loaded = Conversation::load(&file)?;
                let count = loaded.messages.len();
                self.conversation = loaded;
                output::line(format!(
                    "loaded {count} messages; {} answers",
                    self.conversation.model
                ))
            }
            ChatCommand::Stats => match &self.last {
                Some(answer) => output::line(answer.stats()),
                None => output::line("there is no answer yet"),
            },
            ChatCommand::Unknown(name) => Err(Failure::new(
                Exit::Usage,
                format!("{name} is no command"),
            )
            .hint("/help lists them; a message that begins with / is sent with two of them: //")),
        }
    }
}
