//! In place of the coordinator, where a build leaves it out.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;

use super::{Failure, Root, serve, up};
use crate::config::{Config, Flag};

/// Builds without the coordinator have none beside a command.
pub enum NoCoordinator {}

pub use NoCoordinator as Beside;

impl NoCoordinator {
    pub async fn start(_: Option<&str>, _: &Config, _: &Root) -> Result<Self, Failure> {
        Err(absent("chat").hint("`worker chat --url URL --key KEY` talks to another machine"))
    }

    pub fn url(&self) -> String {
        match *self {}
    }

    pub fn model(&self) -> Option<&str> {
        match *self {}
    }

    pub fn key(&self) -> &str {
        match *self {}
    }

    pub async fn end(self) {
        match self {}
    }
}

/// How a coordinator of this data folder was started.
pub struct NoneServing {
    never: NoCoordinator,
}

impl NoneServing {
    pub fn url(&self) -> String {
        self.never.url()
    }

    pub fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        match self.never {}
    }
}

pub fn place_of_running(_: &Path) -> Option<NoneServing> {
    None
}

pub fn serve(_: &serve::Args, _: Vec<Flag>, _: &Root) -> Result<(), Failure> {
    Err(absent("serve"))
}

pub fn up(_: &up::Args, _: Vec<Flag>, _: &Root) -> Result<(), Failure> {
    Err(absent("up"))
}

pub fn absent(command: &str) -> Failure {
    Failure::unavailable(format!(
        "`worker {command}` needs the coordinator, which is not in this build"
    ))
    .hint("build with `--features coordinator`")
}
