//! `worker examples`: a request of each kind to the coordinator that runs here, as commands to paste.

use serde_json::{Value, json};

use super::chat::{Client, running};
use super::load::block_on;
use super::{Failure, Root, output};
use crate::daemon::control;

const EXAMPLES: &str = "\
Examples:
  worker examples                    requests to the running `worker up`
  worker examples --data-dir DATA    to another one";

const QUESTION: &str = "What is Muster?";
const SCENE: &str = "a big red circle on a blue background";
const FILM: &str = "a red circle moves to the right on a blue background";
const MELODY: &str = "a fast bell melody that rises from C";
const GREETING: &str = "Good morning.";

/// Show requests to the running `worker up` for curl and Python, with its key and models.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ExamplesArgs {}

/// URL and key of the example requests.
struct RequestTarget {
    url: String,
    key: String,
    /// Names and kinds of the models.
    models: Vec<(String, String)>,
}

pub fn run(_: &ExamplesArgs, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load()?.config;
    block_on(async {
        let data_dir = &config.worker.data_dir;
        let Some(client) = running(data_dir, None).await? else {
            return Err(Failure::unavailable("no coordinator is running here")
                .hint("`worker up` starts one; another --data-dir names another one"));
        };
        // The worker beside it distinguishes kinds that share a type in the coordinator's list.
        let here = control::status(data_dir).await.ok().flatten();
        let models = match here {
            Some(report) => {
                let models = report.models.into_iter();
                let known = models.filter_map(|model| Some((model.name, model.kind?)));
                known.collect()
            }
            None => models_of(&client).await?,
        };
        let target = RequestTarget {
            url: client.url().as_str().trim_end_matches('/').to_owned(),
            key: client.key().unwrap_or("KEY").to_owned(),
            models,
        };
        match target.examples() {
            none if none.is_empty() => {
                Err(Failure::unavailable("the coordinator serves no models")
                    .hint("`worker join TOKEN` connects a worker with models"))
            }
            examples => output::text(examples),
        }
    })
}

async fn models_of(client: &Client) -> Result<Vec<(String, String)>, Failure> {
    let listed = client.get("v1/status/models").await?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let listed = listed.as_array().into_iter().flatten();
    let named = listed.filter_map(|model| Some((text(&model["name"])?, text(&model["type"])?)));
    Ok(named.collect())
}

impl RequestTarget {
    /// Examples for each served kind.
    fn examples(&self) -> String {
        let mut examples = String::new();
        let mut add =
            |what: &str, command: String| examples += &format!("{what}:\n\n{command}\n\n");
        if let Some(model) = self.model("text") {
            let messages = json!([{ "role": "user", "content": QUESTION }]);
            let body = json!({ "model": model, "messages": messages }).to_string();
            add("A chat with curl", self.curl(CHAT, &body));
            add("The same with Python", self.python(&body));
        }
        if let Some(model) = self.model("image") {
            let body = json!({ "model": model, "prompt": SCENE }).to_string();
            add(
                "An image; the answer has a link to it",
                self.curl(IMAGES, &body),
            );
        }
        if let Some(model) = self.model("video") {
            let body = json!({ "model": model, "prompt": FILM }).to_string();
            add(
                "A video; the answer has a link to it",
                self.curl(VIDEOS, &body),
            );
        }
        if let Some(model) = self.model("music") {
            // Music is half a minute long unless the request says more.
            let body = json!({ "model": model, "prompt": MELODY, "seconds": 4 }).to_string();
            add(
                "Music; the answer has a link to it",
                self.curl(SONGS, &body),
            );
        }
        if let Some(model) = self.model("speech") {
            let body = json!({ "model": model, "input": GREETING }).to_string();
            let command = format!("{} -o speech.mp3", self.curl(SPEECH, &body));
            add("Speech", command);
        }
        if let Some(model) = self.model("transcription") {
            add(
                "A transcription",
                self.upload(TRANSCRIPTIONS, model, "speech.mp3"),
            );
        }
        examples
    }

    fn model(&self, wanted: &str) -> Option<&str> {
        let mut models = self.models.iter();
        let found = models.find(|(_, kind)| kind == wanted);
        found.map(|(name, _)| name.as_str())
    }

    fn curl(&self, route: &str, body: &str) -> String {
        let Self { url, key, .. } = self;
        format!("  curl {url}{route} -H 'Authorization: Bearer {key}' -d '{body}'")
    }

    fn upload(&self, route: &str, model: &str, file: &str) -> String {
        let Self { url, key, .. } = self;
        format!(
            "  curl {url}{route} -H 'Authorization: Bearer {key}' -F model={model} -F file=@{file}"
        )
    }

    /// Needs nothing but Python itself.
    fn python(&self, body: &str) -> String {
        format!(
            "  python3 -c \"import json, urllib.request as r; print(json.load(r.urlopen(r.Request('{}{CHAT}', \
             b'''{}''', {{'Authorization': 'Bearer {}', 'Content-Type': 'application/json'}})))['choices'][0]['message']['content'])\"",
            self.url,
            body.replace('"', "\\\""),
            self.key,
        )
    }
}

const CHAT: &str = "/v1/chat/completions";
const IMAGES: &str = "/v1/images/generations";
const VIDEOS: &str = "/v1/videos/generations";
const SONGS: &str = "/v1/audio/generations";
const SPEECH: &str = "/v1/audio/speech";
const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
