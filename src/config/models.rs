//! `[models]`: which models the worker serves.

use std::path::PathBuf;

use super::setting::settings;

settings! {
    /// Which models the worker serves.
    pub struct ModelsConfig = "models" {
        /// The models to load: names of the catalog (`worker models list`), NAME:QUANTIZATION, or paths of .gguf files and model folders.
        serve: Vec<String> = [],
        /// Which quantization to take where a model has several. Set it to trade speed for quality.
        quantization: Option<String>; unset "the model's own choice, or a smaller one that fits",
        /// A folder with catalog entries (*.toml) of your own, which add to the built-in ones or replace them.
        dir: Option<PathBuf>; unset "only the built-in catalog",
    }
}
