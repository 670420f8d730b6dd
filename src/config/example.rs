//! `worker.example.toml`: every setting with its default and why one would change it, written from the declarations.

use super::{
    CoordinatorConfig, EngineConfig, HubConfig, MediaConfig, ModelsConfig, OwnerConfig,
    ServeConfig, Setting, WorkerConfig,
};

const PREFACE: &str = "\
# Every setting of the worker, with its default. Remove the # of a line to change it.
# A setting may also come from the environment as MUSTER_<SECTION>_<KEY> (MUSTER_ENGINE_THREADS=4), which counts
# more than this file; a flag of the command line counts most. A list is written there as here, or with commas alone
# (MUSTER_MODELS_SERVE=qwen3-0.6b,./tiny.gguf). Settings of [[coordinator]], of which there may be several, come from
# this file alone, but a key there may be \"env:NAME\". `worker config check` shows what is in force.
# Relative paths start at the folder of this file, ~ is your home folder.
";

/// The text of the example.
pub fn example() -> String {
    let mut text = PREFACE.to_owned();
    for (header, about, settings) in [
        ("[worker]", WorkerConfig::ABOUT, WorkerConfig::SETTINGS),
        ("[models]", ModelsConfig::ABOUT, ModelsConfig::SETTINGS),
        ("[engine]", EngineConfig::ABOUT, EngineConfig::SETTINGS),
        ("[hub]", HubConfig::ABOUT, HubConfig::SETTINGS),
        ("[owner]", OwnerConfig::ABOUT, OwnerConfig::SETTINGS),
        ("[serve]", ServeConfig::ABOUT, ServeConfig::SETTINGS),
        ("[serve.media]", MediaConfig::ABOUT, MediaConfig::SETTINGS),
        (
            "# [[coordinator]]",
            CoordinatorConfig::ABOUT,
            CoordinatorConfig::SETTINGS,
        ),
    ] {
        text += &format!("\n# {}\n{header}\n", about.trim());
        settings.iter().for_each(|setting| text += &lines(setting));
    }
    text
}

fn lines(setting: &Setting) -> String {
    let Setting {
        key,
        doc,
        default,
        unset,
        ..
    } = setting;
    let doc = doc.trim();
    match default {
        Some(default) => format!("# {doc}\n# {key} = {default}\n"),
        None if unset.is_empty() => format!("# {doc} Must be set.\n# {key} =\n"),
        None => format!("# {doc} Unset: {unset}.\n# {key} =\n"),
    }
}
