//! The two threads of a device: text, and media beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::residency::Residency;
use muster_engine::runtime::image::ImageDefaults;
use muster_engine::runtime::maker::{Maker, MediaKind};
use muster_engine::runtime::{Failure, ModelInfo, Runtime};
use muster_protocol::link::ModelLimits;
use muster_reader::Reader;

/// Clones share the threads, which end with the last of them.
#[derive(Clone)]
pub struct Engines {
    pub runtime: Runtime,
    /// Started with the first model that makes media.
    pub maker: Option<Maker>,
    pub folders: AdapterFolders,
    /// Settings of the models that draw, by their names, for requests that leave them open.
    pub drawing: BTreeMap<String, ImageDefaults>,
    /// Where models may be out of memory while they are offered.
    pub residency: Option<Residency>,
    /// Decodes the sounds of jobs.
    pub reader: Reader,
}

/// The folders of files that requests may name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterFolders {
    pub loras: Option<PathBuf>,
    /// The folder of textual inversions.
    pub embeddings: Option<PathBuf>,
}

/// A model that is loaded in the maker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaModel {
    pub name: String,
    pub kind: MediaKind,
    /// Jobs at once.
    pub jobs: u32,
    /// Width and height of its images where a request names none.
    pub size: Option<(u32, u32)>,
    /// Frames a second and frames of its videos where a request names none.
    pub clip: Option<(u32, u32)>,
    /// The voices of a model that speaks; a model for other sounds has none.
    pub voices: Vec<String>,
    pub limits: ModelLimits,
}

/// A model that is loaded in either thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceModel {
    Text(Arc<ModelInfo>),
    Media(MediaModel),
}

impl MediaModel {
    /// Nothing else is said of it.
    pub fn new(name: impl Into<String>, kind: MediaKind) -> Self {
        Self {
            name: name.into(),
            kind,
            jobs: 1,
            size: None,
            clip: None,
            voices: Vec::new(),
            limits: ModelLimits::default(),
        }
    }

    pub fn speaks(&self) -> bool {
        !self.voices.is_empty()
    }
}

impl DeviceModel {
    pub fn name(&self) -> &str {
        match self {
            Self::Text(info) => &info.name,
            Self::Media(model) => &model.name,
        }
    }
}

impl Engines {
    /// Returns once neither thread computes.
    pub async fn pause(&self) -> Result<(), Failure> {
        let media = async {
            match &self.maker {
                Some(maker) => maker.pause().await,
                None => Ok(()),
            }
        };
        tokio::try_join!(self.runtime.pause(), media).map(|_| ())
    }

    pub async fn resume(&self) -> Result<(), Failure> {
        self.runtime.resume().await?;
        match &self.maker {
            Some(maker) => maker.resume().await,
            None => Ok(()),
        }
    }

    /// Whether a text model has a form for calls of tools in its template.
    pub fn calls_tools(&self, name: &str) -> bool {
        let of_resident = self.residency.as_ref();
        let of_resident = of_resident.and_then(|residency| residency.calls_tools(name));
        of_resident.unwrap_or_else(|| {
            let language = self.runtime.language(name);
            language.is_ok_and(|language| language.markup.tools.is_some())
        })
    }

    /// Waits until one of the threads has panicked.
    pub async fn ended(&self) {
        let media = async {
            match &self.maker {
                Some(maker) => maker.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.runtime.ended() => {}
            () = media => {}
        }
    }
}

impl From<Runtime> for Engines {
    fn from(runtime: Runtime) -> Self {
        Self {
            runtime,
            maker: None,
            folders: AdapterFolders::default(),
            drawing: BTreeMap::new(),
            residency: None,
            reader: Reader::default(),
        }
    }
}
