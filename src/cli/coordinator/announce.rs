//! What is said when everything is ready: to a newcomer, who pastes it, or to a script, which parses it.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cli::{Failure, output};

/// Everything it takes to use the service.
#[derive(Debug, Serialize)]
pub struct Ready {
    pub url: String,
    /// Where other machines reach it; none where it listens on this machine alone.
    pub addresses: Vec<String>,
    /// Shown once; none where it was shown before.
    pub api_key: Option<String>,
    pub models: Vec<String>,
    pub examples: ExampleModels,
    /// Of a certificate that no authority signed: workers pin it.
    pub certificate_sha256: Option<String>,
}

/// A model for the example of each kind.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ExampleModels {
    pub chat: Option<String>,
    pub image: Option<String>,
    pub speech: Option<String>,
    pub hearing: Option<String>,
    pub video: Option<String>,
    pub music: Option<String>,
}

const QUESTION: &str = "What is Muster?";
const SCENE: &str = "a big red circle on a blue background";
const FILM: &str = "a red circle moves to the right on a blue background";
const MELODY: &str = "a fast bell melody that rises from C";
const GREETING: &str = "Good morning.";

impl Ready {
    /// `worker serve`: who runs a network.
    pub fn tell_operator(&self, is_json: bool) -> Result<(), Failure> {
        if is_json {
            return self.tell_script();
        }
        output::line(format!("ready at {}{}", self.url, self.elsewhere()))?;
        if let Some(key) = &self.api_key {
            output::line(format!(
                "\nAdministrator key, shown only once:\n\n  {key}\n\nStore it safely. `worker key create` creates more keys."
            ))?;
        }
        let reached = self.addresses.first().unwrap_or(&self.url);
        let socket = reached.replacen("http", "ws", 1);
        // Between machines a worker wants to be told that plain text is meant.
        let insecure = match socket.starts_with("ws:") && !self.addresses.is_empty() {
            true => "  insecure = true\n",
            false => "",
        };
        let pin = self.certificate_sha256.as_ref();
        let pin = pin.map_or_else(String::new, |pin| {
            format!("  certificate_sha256 = \"{pin}\"\n")
        });
        output::line(format!(
            "\nTo connect a worker, run `worker key join` here and `worker join TOKEN` on its machine, or add to its worker.toml:\n\n  [[coordinator]]\n  url = \"{socket}\"\n  key = \"KEY\"\n{insecure}{pin}\nCtrl-C stops."
        ))
    }

    /// `worker up`: who sees this for the first time.
    pub fn tell_newcomer(&self, is_json: bool) -> Result<(), Failure> {
        if is_json {
            return self.tell_script();
        }
        let key = self.api_key.as_deref().unwrap_or_default();
        let mut examples = String::new();
        if let Some(model) = &self.examples.chat {
            let body = chat(model);
            let (curl, python) = (self.curl(CHAT, &body), self.python(&body));
            examples +=
                &format!("Send a request with curl:\n\n{curl}\n\nor with Python:\n\n{python}\n\n");
        }
        if let Some(model) = &self.examples.image {
            let body = json!({ "model": model, "prompt": SCENE }).to_string();
            let curl = self.curl(IMAGES, &body);
            examples += &format!("Draw an image; the answer has a link to it:\n\n{curl}\n\n");
        }
        if let Some(model) = &self.examples.video {
            let body = json!({ "model": model, "prompt": FILM }).to_string();
            let curl = self.curl(VIDEOS, &body);
            examples += &format!("Make a video; the answer has a link to it:\n\n{curl}\n\n");
        }
        if let Some(model) = &self.examples.music {
            // Music is half a minute long unless the request says more.
            let body = json!({ "model": model, "prompt": MELODY, "seconds": 4 }).to_string();
            let curl = self.curl(SONGS, &body);
            examples += &format!("Play a melody; the answer has a link to it:\n\n{curl}\n\n");
        }
        if let Some(model) = &self.examples.speech {
            let body = json!({ "model": model, "input": GREETING }).to_string();
            let curl = self.curl(SPEECH, &body);
            examples += &format!("Let it speak:\n\n{curl} -o speech.wav\n\n");
            if let Some(model) = &self.examples.hearing {
                let curl = self.upload(HEARING, model, "speech.wav");
                examples += &format!("And write down what it said:\n\n{curl}\n\n");
            }
        }
        let (url, elsewhere, models) = (&self.url, self.elsewhere(), self.models.join(", "));
        output::line(format!(
            "ready at {url}{elsewhere}\n\n  key    {key}\n  model  {models}\n\nOpen this page in a browser to try the models:\n\n  \
             {url}/#key={key}\n\n{examples}`worker chat` talks to it in the terminal; {url}/console shows workers, keys and jobs, \
             and {url}/docs is the API reference. Any OpenAI client works with base URL {url}/v1 and this key, programs for \
             Ollama with {url} and none. Ctrl-C stops."
        ))
    }

    fn elsewhere(&self) -> String {
        match self.addresses.as_slice() {
            [] => String::new(),
            addresses => format!("\nfrom other machines: {}", addresses.join(", ")),
        }
    }

    fn tell_script(&self) -> Result<(), Failure> {
        output::json_line(&json!({
            "url": self.url,
            "addresses": self.addresses,
            "api_key": self.api_key,
            "models": self.models,
            "certificate_sha256": self.certificate_sha256,
            "pid": std::process::id(),
        }))
    }

    fn curl(&self, route: &str, body: &str) -> String {
        format!(
            "  curl {}{route} -H 'Authorization: Bearer {}' -d '{body}'",
            self.url,
            self.api_key.as_deref().unwrap_or_default(),
        )
    }

    fn upload(&self, route: &str, model: &str, file: &str) -> String {
        format!(
            "  curl {}{route} -H 'Authorization: Bearer {}' -F model={model} -F file=@{file}",
            self.url,
            self.api_key.as_deref().unwrap_or_default(),
        )
    }

    /// Needs nothing but Python itself.
    fn python(&self, body: &str) -> String {
        format!(
            "  python3 -c \"import json, urllib.request as r; print(json.load(r.urlopen(r.Request('{}{CHAT}', \
             b'''{}''', {{'Authorization': 'Bearer {}', 'Content-Type': 'application/json'}})))['choices'][0]['message']['content'])\"",
            self.url,
            body.replace('"', "\\\""),
            self.api_key.as_deref().unwrap_or_default(),
        )
    }
}

const CHAT: &str = "/v1/chat/completions";
const IMAGES: &str = "/v1/images/generations";
const VIDEOS: &str = "/v1/videos/generations";
const SONGS: &str = "/v1/audio/generations";
const SPEECH: &str = "/v1/audio/speech";
const HEARING: &str = "/v1/audio/transcriptions";

fn chat(model: &str) -> String {
    json!({ "model": model, "messages": [{ "role": "user", "content": QUESTION }] }).to_string()
}
