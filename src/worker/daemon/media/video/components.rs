//! Completes a video model with a single-file transformer: components that are not next to the file come from the
//! catalog's model of the same family, if they are on disk.

use std::path::PathBuf;

use super::defaults;
use crate::catalog::{Entry, Facts, UnpackError};
use crate::daemon::locate::{LocateError, Shelves, folder_of};
use muster_engine::runtime::video::{VideoDefaults, VideoSource, component_label};

/// The catalog's models with the same text encoder and autoencoder, by the channels of their latents.
const FAMILIES: [(usize, &str); 2] = [(16, "wan-2.1-t2v-1.3b"), (48, "wan-2.2-ti2v-5b")];

/// Adds components and settings of the family's model in the catalog.
pub fn complete(source: &mut VideoSource, shelves: Shelves<'_>) -> Result<(), LocateError> {
    // Opening the file reports the error.
    let Ok(Some(missing)) = source.missing() else {
        return Ok(());
    };
    let mut families = FAMILIES.iter();
    let family = families.find(|(channels, _)| *channels == missing.latent_channels);
    let Some(entry) = family.and_then(|(_, id)| shelves.catalog.find(id).ok()) else {
        return Ok(());
    };
    if let Facts::Video(facts) = &entry.facts
        && source.defaults == VideoDefaults::default()
    {
        source.defaults = defaults(facts.defaults);
    }
    for component in missing.names {
        match place_of(entry, component, shelves)? {
            Some(place) => source.components.insert(component.to_owned(), place),
            None => {
                return Err(LocateError::Incomplete {
                    path: source.path.clone(),
                    component: component_label(component).to_owned(),
                    model: entry.id.clone(),
                });
            }
        };
    }
    Ok(())
}

/// The path of a model's component, in any of its quantizations.
fn place_of(
    entry: &Entry,
    component: &str,
    shelves: Shelves<'_>,
) -> Result<Option<PathBuf>, UnpackError> {
    for quantization in entry.sources.keys() {
        if let Some((source, folder)) = entry.component_source(quantization, component)
            && let Some(place) = folder_of(&source, &folder, shelves)?
        {
            return Ok(Some(place));
        }
    }
    Ok(None)
}
