//! `worker.example.toml`: every setting with its default and why one would change it, written from the declarations.

use super::{
    AliasConfig, ClusterConfig, CoordinatorConfig, EngineConfig, HubConfig, MediaConfig,
    ModelsConfig, OwnerConfig, PriceConfig, ServeConfig, Setting, UpstreamSettings, WorkerConfig,
};

const PREFACE: &str = "\
# Every setting of worker.toml with its default. To change a setting, remove the # before it.
# A command-line flag overrides an environment variable, and a variable MUSTER_<SECTION>_<KEY>
# (MUSTER_ENGINE_THREADS=4) overrides this file. A variable holds a list as written here or separated by commas
# (MUSTER_MODELS_SERVE=qwen3-0.6b,./tiny.gguf). Settings of [[serve.price]], [[serve.alias]], [models.NAME.upstream]
# and [[coordinator]], which can repeat, come from this file only; a key may be \"env:NAME\". `worker config check` shows the values in use.
# Relative paths start at the folder of this file; ~ is your home folder.
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
        ("[cluster]", ClusterConfig::ABOUT, ClusterConfig::SETTINGS),
        (
            "# [[serve.price]]",
            PriceConfig::ABOUT,
            PriceConfig::SETTINGS,
        ),
        (
            "# [[serve.alias]]",
            AliasConfig::ABOUT,
            AliasConfig::SETTINGS,
        ),
        (
            "# [models.NAME.upstream]",
            UpstreamSettings::ABOUT,
            UpstreamSettings::SETTINGS,
        ),
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
        None if unset.is_empty() => format!("# {doc} Required.\n# {key} =\n"),
        None => format!("# {doc} Unset: {unset}.\n# {key} =\n"),
    }
}
