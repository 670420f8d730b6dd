//! Models that other programs serve, as the configuration names them.

use super::LAST_TASKS;
use crate::link::native_tls;
use crate::upstream::{Api, UpstreamKind, UpstreamState, UpstreamWatch, UpstreamWish};
use muster_config::{self as settings, Config, UpstreamApi, UpstreamConfig};
use muster_process::tasks::Tasks;

/// Checks the configured programs until the tasks stop; returns after the first check.
pub async fn watch_upstreams(config: &Config, tasks: &Tasks) -> UpstreamWatch {
    let wishes = upstream_wishes(config);
    UpstreamWatch::start(wishes, native_tls, tasks).await
}

/// Checks the configured programs once.
pub async fn upstream_states(config: &Config) -> Vec<UpstreamState> {
    let tasks = Tasks::default();
    let states = watch_upstreams(config, &tasks).await.states();
    tasks.stop(LAST_TASKS).await;
    states
}

pub fn upstream_wishes(config: &Config) -> Vec<UpstreamWish> {
    config.upstreams.iter().map(wish).collect()
}

fn wish(UpstreamConfig { name, settings }: &UpstreamConfig) -> UpstreamWish {
    let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    UpstreamWish {
        name: name.clone(),
        url: settings.url.clone(),
        api: match settings.api {
            UpstreamApi::OpenAi => Api::OpenAi,
            UpstreamApi::Ollama => Api::Ollama,
            UpstreamApi::A1111 => Api::A1111,
        },
        model: settings.model.clone(),
        kind: settings.kind.map(|kind| match kind {
            settings::UpstreamKind::Text => UpstreamKind::Text,
            settings::UpstreamKind::Embedding => UpstreamKind::Embedding,
            settings::UpstreamKind::Ranking => UpstreamKind::Ranking,
            settings::UpstreamKind::Image => UpstreamKind::Image,
        }),
        key: settings.key.as_ref().map(|key| key.expose().to_owned()),
        context: settings.context.map(small),
        jobs: settings.jobs.map(small),
        tools: settings.tools,
        images: settings.images,
        silence: settings.silence,
        finish_within: settings.finish_within,
    }
}
