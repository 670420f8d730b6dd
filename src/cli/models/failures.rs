//! Which exit code and which advice the failures of the hub and the catalog deserve.

use crate::{
    catalog::{CatalogError, FindError, UnknownQuantization, UnpackError},
    cli::{Exit, Failure},
    hub::HubError,
};

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        let exit = match &error {
            HubError::WrongHash { .. }
            | HubError::OtherHash { .. }
            | HubError::WrongSize { .. }
            | HubError::KeepsChanging { .. } => Exit::BadData,
            HubError::NotFound { .. } | HubError::NothingUsable { .. } => Exit::NotFound,
            HubError::Offline { .. }
            | HubError::Denied { .. }
            | HubError::TooManyRequests { .. }
            | HubError::Unreachable { .. }
            | HubError::BadAnswer { .. }
            | HubError::InUse { .. } => Exit::Unavailable,
            HubError::NoRoom { .. } | HubError::CannotWrite { .. } | HubError::Disk { .. } => {
                Exit::CannotWrite
            }
            HubError::BadName(_) | HubError::WhichFile { .. } => Exit::Usage,
            HubError::Stopped => Exit::Interrupted,
        };
        let failure = Self::new(exit, &error);
        match advice(&error) {
            Some(advice) => failure.hint(advice),
            None => failure,
        }
    }
}

fn advice(error: &HubError) -> Option<&'static str> {
    match error {
        HubError::NoRoom { .. } | HubError::CannotWrite { .. } => {
            Some("`worker models rm` frees room; HF_HUB_CACHE moves the cache to another disk")
        }
        HubError::Unreachable { .. } => {
            Some("what came so far stays; HF_ENDPOINT names another hub, HTTPS_PROXY a proxy")
        }
        HubError::OtherHash {
            is_pinned: true, ..
        } => {
            Some("an earlier pull pins its commit until `worker models rm` removes what it brought")
        }
        HubError::OtherHash { .. } => {
            Some("its entry in the catalog states a sha256 or a revision that is not the hub's")
        }
        HubError::Denied { .. } => Some("HF_TOKEN holds the token, made on the hub under settings"),
        _ => None,
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        Self::new(Exit::BadConfiguration, error)
    }
}

impl From<UnpackError> for Failure {
    fn from(error: UnpackError) -> Self {
        Self::new(Exit::CannotWrite, error)
            .hint("--data-dir moves the worker's files to another place")
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        Self::new(Exit::NotFound, error).hint("`worker models list` shows them all")
    }
}

impl From<UnknownQuantization> for Failure {
    fn from(error: UnknownQuantization) -> Self {
        Self::new(Exit::NotFound, error)
    }
}
