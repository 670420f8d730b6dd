//! The caches of all layers.

use candle_core::{Result, bail};

use crate::networks::layers::LayerCache;
#[cfg(doc)]
use muster_kernels::PAGE_TOKENS;

/// The keys and values of every layer that keeps them, in pages of [`PAGE_TOKENS`] tokens, and the states of the others.
#[derive(Debug)]
pub struct KvPages {
    pub(super) layers: Vec<CacheSlot>,
}

/// A layer's cache.
#[derive(Debug)]
pub(super) enum CacheSlot {
    Own(LayerCache),
    /// The cache of another layer, read only.
    Of(usize),
}

impl KvPages {
    pub fn bytes(&self) -> u64 {
        let own = self.layers.iter().filter_map(CacheSlot::own);
        own.map(|layer| layer.bytes() as u64).sum()
    }

    /// Changes the number of pages of each layer: the first ones have the contents of `kept`, in order. States stay as
    /// they are. After an error the contents are lost.
    pub fn resize(&mut self, pages: usize, kept: &[u32]) -> Result<()> {
        for layer in &mut self.layers {
            if let CacheSlot::Own(LayerCache::Pages(layer)) = layer {
                layer.resize(pages, kept)?;
            }
        }
        Ok(())
    }

    pub(super) fn of_layer(&mut self, layer: usize) -> Result<&mut LayerCache> {
        let index = match self.layers.get(layer) {
            Some(CacheSlot::Of(source)) => *source,
            _ => layer,
        };
        match self.layers.get_mut(index) {
            Some(CacheSlot::Own(cache)) => Ok(cache),
            _ => bail!("layer {layer} has no cache"),
        }
    }

    /// Gives a slot the state of another one.
    pub fn copy_state(&mut self, from: usize, to: usize) -> Result<()> {
        for layer in &mut self.layers {
            if let CacheSlot::Own(LayerCache::States(states)) = layer {
                states.copy(from, to)?;
            }
        }
        Ok(())
    }
}

impl CacheSlot {
    fn own(&self) -> Option<&LayerCache> {
        match self {
            Self::Own(cache) => Some(cache),
            Self::Of(_) => None,
        }
    }
}

/// A layer's cache for each kind of layer that the decoder has.
pub(super) struct ScratchCache {
    pub(super) pages: Option<LayerCache>,
    pub(super) windowed: Option<LayerCache>,
    pub(super) states: Option<LayerCache>,
}

/// Kinds of layers whose caches have the same shape, so that one can be used in place of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheKind {
    Pages,
    /// For layers with a window, if their shape differs.
    Windowed,
    States,
}

impl ScratchCache {
    pub(super) fn of_kind(&mut self, kind: CacheKind) -> Result<&mut LayerCache> {
        let cache = match kind {
            CacheKind::Pages => &mut self.pages,
            CacheKind::Windowed => &mut self.windowed,
            CacheKind::States => &mut self.states,
        };
        match cache {
            Some(cache) => Ok(cache),
            None => bail!("the decoder has no layers of this kind"),
        }
    }
}
