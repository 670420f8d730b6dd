//! Errors that end a worker or prevent its start.

use super::fit::{NoDevice, Refusal};
use super::locate::LocateError;
use crate::catalog::{FindError, UnknownQuantization};
use crate::hub::HubError;
use crate::link::AddressError;
use muster_engine::runtime::LoadError;

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    NoDevice(#[from] NoDevice),
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{model} does not fit: {refusal}")]
    DoesNotFit {
        model: String,
        refusal: Box<Refusal>,
    },
    #[error("unloading {model} failed: {why}")]
    Unload { model: String, why: String },
    #[error("coordinator: {0}")]
    Address(#[from] AddressError),
    #[error("every coordinator refuses this worker: {0}")]
    Refused(String),
    #[error("the engine ended with the panic above: start the worker again")]
    EngineEnded,
    #[error("setting up TLS failed: {0}")]
    Tls(String),
    #[error("installing signal handlers failed: {0}")]
    Signals(#[from] std::io::Error),
}

impl From<FindError> for DaemonError {
    fn from(error: FindError) -> Self {
        Self::Locate(error.into())
    }
}

impl From<UnknownQuantization> for DaemonError {
    fn from(error: UnknownQuantization) -> Self {
        Self::Locate(error.into())
    }
}
