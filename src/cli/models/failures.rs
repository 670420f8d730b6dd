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
            HubError::NoRoom { .. }
            | HubError::OverBudget { .. }
            | HubError::CannotWrite { .. }
            | HubError::Disk { .. } => Exit::CannotWrite,
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
        HubError::NoRoom { .. } | HubError::OverBudget { .. } | HubError::CannotWrite { .. } => {
            Some(
                "free space with `worker models rm`, or move the cache to another disk with HF_HUB_CACHE",
            )
        }
        HubError::Unreachable { .. } => Some(
            "run the command again to resume; HF_ENDPOINT sets another hub, HTTPS_PROXY a proxy",
        ),
        HubError::OtherHash {
            is_pinned: true, ..
        } => Some(
            "an earlier pull pinned its commit; `worker models rm` removes its files and the pin",
        ),
        HubError::OtherHash { .. } => {
            Some("correct sha256 or revision in the catalog entry: the hub has other ones")
        }
        HubError::Denied { .. } => {
            Some("set HF_TOKEN to an access token from the settings page of the hub")
        }
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
        Self::new(Exit::CannotWrite, error).hint("choose another folder with --data-dir")
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        Self::new(Exit::NotFound, error).hint("`worker models list` shows all models")
    }
}

impl From<UnknownQuantization> for Failure {
    fn from(error: UnknownQuantization) -> Self {
        Self::new(Exit::NotFound, error)
    }
}
