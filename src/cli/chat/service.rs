//! Which coordinator answers.

use std::fs;
use std::path::Path;

use url::Url;

use super::client::Client;
use super::model;
use crate::cli::coordinator::{Beside, place_of_running};
use crate::cli::{Exit, Failure, Root, output};
use crate::config::{Config, Flag};
use crate::link::native_tls;

/// The coordinator of a chat.
pub struct Service {
    client: Client,
    /// The name that it serves the wanted model by.
    model: Option<String>,
    /// The one that this process runs.
    own: Option<Beside>,
}

/// A coordinator of this process takes any free port of this machine.
pub fn flags(may_start: bool) -> Vec<Flag> {
    let any_port = Flag {
        name: "--listen",
        setting: "serve.listen",
        value: "127.0.0.1:0".to_owned(),
    };
    may_start.then_some(any_port).into_iter().collect()
}

impl Service {
    pub async fn find(
        url: Option<Url>,
        key: Option<String>,
        model: Option<String>,
        config: &Config,
        root: &Root,
    ) -> Result<Self, Failure> {
        if let Some(url) = url {
            let client = Client::new(url, key, native_tls().map_err(no_tls)?)?;
            return Ok(Self {
                client,
                model,
                own: None,
            });
        }
        if let Some(client) = running(&config.worker.data_dir, key.clone()).await? {
            let model = match model {
                Some(wanted) => Some(model::served(&wanted, &client, config, root).await?),
                None => None,
            };
            return Ok(Self {
                client,
                model,
                own: None,
            });
        }
        if let Some(wanted) = &model {
            model::on_disk(wanted, config, root).await?;
        }
        output::aside("no `worker up` is running here: starting a model for this chat");
        let own = Beside::start(model.as_deref(), config, root).await?;
        let url = Url::parse(&own.url()).map_err(anyhow::Error::from)?;
        let client = Client::new(
            url,
            Some(own.key().to_owned()),
            native_tls().map_err(no_tls)?,
        )?;
        Ok(Self {
            client,
            model: model.and(own.model().map(str::to_owned)),
            own: Some(own),
        })
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    pub async fn end(self) {
        if let Some(own) = self.own {
            own.end().await;
        }
    }
}

/// The coordinator last started with this data folder, if it still runs.
pub async fn running(data_dir: &Path, key: Option<String>) -> Result<Option<Client>, Failure> {
    let Some(place) = place_of_running(data_dir) else {
        return Ok(None);
    };
    let kept = fs::read_to_string(data_dir.join("up.key")).ok();
    let key = key.or_else(|| kept.map(|key| key.trim().to_owned()));
    let url = Url::parse(&place.url()).map_err(anyhow::Error::from)?;
    let client = Client::new(url, key, place.tls().map_err(no_tls)?)?;
    Ok(client.is_reachable().await.then_some(client))
}

fn no_tls(reason: String) -> Failure {
    Failure::new(Exit::Failed, format!("starting TLS failed: {reason}"))
}
