//! The entries this program was built with: every `models/*.toml`, as a test holds.

macro_rules! entry {
    ($file:literal) => {
        ($file, include_str!(concat!("../../../models/", $file)))
    };
}

/// File name and text.
pub const ENTRIES: &[(&str, &str)] = &[
    entry!("ace-step-1.5-turbo.toml"),
    entry!("demo-image.toml"),
    entry!("demo-text.toml"),
    entry!("demo-video.toml"),
    entry!("gemma-2-2b-it.toml"),
    entry!("gemma-2-9b-it.toml"),
    entry!("gemma-3-12b-it.toml"),
    entry!("gemma-3-1b-it.toml"),
    entry!("gemma-3-4b-it.toml"),
    entry!("granite-3.3-2b-instruct.toml"),
    entry!("granite-3.3-8b-instruct.toml"),
    entry!("kokoro-82m.toml"),
    entry!("llama-3.1-8b-instruct.toml"),
    entry!("llama-3.2-1b-instruct.toml"),
    entry!("llama-3.2-3b-instruct.toml"),
    entry!("ministral-3-3b-instruct.toml"),
    entry!("ministral-3-8b-instruct.toml"),
    entry!("olmo-2-0425-1b-instruct.toml"),
    entry!("olmo-2-1124-7b-instruct.toml"),
    entry!("phi-3.5-mini-instruct.toml"),
    entry!("phi-4-mini-instruct.toml"),
    entry!("phi-4.toml"),
    entry!("qwen2.5-0.5b-instruct.toml"),
    entry!("qwen2.5-1.5b-instruct.toml"),
    entry!("qwen2.5-3b-instruct.toml"),
    entry!("qwen2.5-7b-instruct.toml"),
    entry!("qwen3-0.6b.toml"),
    entry!("qwen3-1.7b.toml"),
    entry!("qwen3-4b.toml"),
    entry!("qwen3-8b.toml"),
    entry!("smollm2-1.7b-instruct.toml"),
    entry!("smollm2-135m-instruct.toml"),
    entry!("smollm2-360m-instruct.toml"),
    entry!("smollm3-3b.toml"),
    entry!("stable-diffusion-1.5-inpainting.toml"),
    entry!("stable-diffusion-1.5.toml"),
    entry!("stable-diffusion-2.1.toml"),
    entry!("stable-diffusion-xl.toml"),
    entry!("stable-diffusion-xl-lightning.toml"),
    entry!("stable-diffusion-xl-turbo.toml"),
    entry!("tinyllama-1.1b-chat.toml"),
    entry!("distil-large-v3.toml"),
    entry!("wan-2.1-t2v-1.3b.toml"),
    entry!("wan-2.2-ti2v-5b.toml"),
    entry!("whisper-base.toml"),
    entry!("whisper-large-v3-turbo.toml"),
    entry!("whisper-small.toml"),
    entry!("whisper-tiny.toml"),
];
