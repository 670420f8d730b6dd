//! The report when everything is ready: for a newcomer, or for a script, which parses it.

use std::path::Path;

use serde::Serialize;
use serde_json::json;

use crate::cli::{Failure, output};

/// Everything it takes to use the service.
#[derive(Debug, Serialize)]
pub struct Ready {
    pub url: String,
    /// URLs for other machines; empty if it listens on this machine only.
    pub addresses: Vec<String>,
    /// Shown once; `None` later.
    pub api_key: Option<String>,
    pub models: Vec<String>,
    /// Digest of a self-signed certificate, which workers pin.
    pub certificate_sha256: Option<String>,
}

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
        // Between machines a worker's section must allow plain text explicitly.
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

    /// `worker up`, within 8 lines. The link comes last, where a terminal shows it.
    pub fn tell_newcomer(&self, is_json: bool, data_dir: &Path) -> Result<(), Failure> {
        if is_json {
            return self.tell_script();
        }
        let Self { url, models, .. } = self;
        let (elsewhere, models) = (self.elsewhere(), models.join(", "));
        let key = self.api_key.as_deref().unwrap_or_default();
        let data = data_dir.display();
        output::line(format!(
            "ready at {url} (OpenAI clients: add /v1), Ctrl-C stops{elsewhere}\nmodels {models}\nkey    {key}\n\
             data   {data}\n`worker chat` talks to a model, `worker examples` shows requests for curl.\n\
             open   {url}/#key={key}"
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
}
