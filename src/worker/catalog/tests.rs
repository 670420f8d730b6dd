use std::{collections::BTreeSet, fs, path::Path};

use super::{Catalog, CatalogError, Entry, Facts, Family, FindError, Source, builtin, file};

const SMALL: &str = r#"
id = "small"
family = "llama"
kind = "text"
licence = "Apache-2.0"
context = 8192
default_quantization = "q8_0"
[names]
v1 = ["Small", "org/Small"]
legacy = ["koboldcpp/Small"]
[shape]
parameters = 1_000_000_000
layers = 16
kv_heads = 8
head_dim = 64
[sources.q8_0]
repository = "org/small-GGUF"
files = [{ path = "small-q8_0.gguf" }]
"#;

pub fn read(text: &str) -> Result<Entry, String> {
    file::read(text, None)
}

#[test]
fn models_that_speak_have_parameters_alone() {
    let entry = |more: &str| {
        read(&format!(
            "id = \"voice\"\nfamily = \"kokoro\"\nkind = \"speech\"\nlicence = \"Apache-2.0\"\n\
             default_quantization = \"f32\"\n{more}\n\
             names = {{ v1 = [\"voice\"], legacy = [\"voice\"] }}\nsources = {{ f32 = {{ path = \"kokoro\" }} }}"
        ))
    };
    let found = entry("parameters = 81_000_000").unwrap();
    assert_eq!(
        (found.kind().name(), found.parameters()),
        ("speech", 81_000_000)
    );
    assert!(found.minimum_memory_bytes("f32").unwrap() > 4 * 81_000_000);
    let refused = entry("parameters = 1\ncontext = 512").unwrap_err();
    assert!(refused.contains("a speech model"), "{refused}");
}

#[test]
fn an_entry_of_megabytes_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{SMALL}# {}", "x".repeat(2 << 20));
    fs::write(folder.path().join("large.toml"), text).unwrap();
    let refused = Catalog::open(Some(folder.path())).unwrap_err().to_string();
    assert!(refused.contains("large.toml"), "{refused}");
    assert!(refused.contains("over 256 KiB"), "{refused}");
}

/// Checks that the small entry with a replaced part is refused for this reason.
fn check_refused(from: &str, to: &str, reason: &str) {
    assert!(SMALL.contains(from), "{from}");
    let found = read(&SMALL.replace(from, to)).unwrap_err();
    assert!(found.contains(reason), "{found}");
}

#[test]
fn every_entry_of_the_folder_is_embedded() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("models");
    let files: BTreeSet<String> = fs::read_dir(folder)
        .unwrap()
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    let embedded: BTreeSet<String> = builtin::ENTRIES
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(files, embedded);
}

#[test]
fn every_entry_parses_and_is_kept_in_a_file_of_its_name() {
    for (name, text) in builtin::ENTRIES {
        let entry = read(text).unwrap_or_else(|what| panic!("{name}: {what}"));
        assert_eq!(format!("{}.toml", entry.id), *name);
        assert!(!entry.description.is_empty(), "{name}");
        assert!(
            !entry.names.v1.is_empty() && !entry.names.legacy.is_empty(),
            "{name}"
        );
    }
}

#[test]
fn names_are_unique_in_any_case() {
    let catalog = Catalog::builtin().unwrap();
    for entry in catalog.entries() {
        for name in entry.all_names() {
            assert_eq!(catalog.find(name).unwrap().id, entry.id);
            assert_eq!(catalog.find(&name.to_uppercase()).unwrap().id, entry.id);
        }
    }
}

#[test]
fn sources_are_coherent_with_family_and_quantization() {
    for entry in Catalog::builtin().unwrap().entries() {
        for (quantization, source) in &entry.sources {
            let Source::Hub(source) = source else {
                continue;
            };
            let repository = source.repository.as_str().to_lowercase();
            let word = match entry.family {
                Family::Llama if entry.id.starts_with("smollm2") => "smollm2",
                Family::Llama => "llama",
                Family::Qwen2 => "qwen2",
                Family::Qwen3 | Family::Qwen3Moe => "qwen3",
                Family::Qwen3Vl => "qwen3-vl",
                Family::Qwen3Next if entry.id.starts_with("qwen3-coder") => "qwen3-coder-next",
                Family::Qwen3Next => "qwen3-next",
                Family::Qwen35 | Family::Qwen35Moe if entry.id.starts_with("qwen3.6") => "qwen3.6",
                Family::Qwen35 | Family::Qwen35Moe if entry.id.starts_with("qwen3.8") => "qwen3.8",
                Family::Qwen35 | Family::Qwen35Moe => "qwen3.5",
                Family::Qwen3Embedding => "qwen3-embedding",
                Family::Qwen3Reranker => "qwen3-reranker",
                Family::Ministral3 => "ministral-3",
                Family::Gemma2 => "gemma-2",
                Family::Gemma3 => "gemma-3",
                Family::Gemma4 => "gemma-4",
                Family::EmbeddingGemma => "embeddinggemma",
                Family::Phi3 => "phi-",
                Family::Olmo2 => "olmo-2",
                Family::Olmoe => "olmoe",
                Family::Mixtral => "mixtral",
                Family::GptOss => "gpt-oss",
                Family::Glm4Moe | Family::Glm4MoeLite => "glm-4",
                Family::DeepseekV2 => "deepseek-v2",
                Family::Granite => "granite",
                Family::GraniteHybrid => "granite-4",
                Family::Lfm2 | Family::Lfm2Moe if entry.id.starts_with("lfm2.5") => "lfm2.5",
                Family::Lfm2 | Family::Lfm2Moe => "lfm2",
                Family::SmolLm3 => "smollm3",
                Family::Gemma => "gemma",
                Family::Glm4 => "glm-4",
                Family::Helium => "helium",
                Family::Mamba => "mamba",
                Family::Olmo => "olmo",
                Family::Phi => "phi-",
                Family::StableLm => "stablelm",
                Family::Starcoder2 => "starcoder2",
                Family::StableDiffusion1 => "stable-diffusion-v1",
                Family::StableDiffusion2 => "stable-diffusion-2",
                Family::StableDiffusionXl => "xl",
                Family::Whisper if entry.id.starts_with("distil") => "distil",
                Family::Whisper => "whisper",
                Family::Wan => "wan",
                Family::Kokoro => "kokoro",
                Family::AceStep => "acestep",
            };
            assert!(repository.contains(word), "{} from {repository}", entry.id);
            for file in source.files.iter().filter(|file| file.path.is_gguf()) {
                let name = file.path.as_str().to_lowercase();
                assert!(name.contains(quantization), "{}: {name}", entry.id);
            }
        }
    }
}

#[test]
fn the_shape_agrees_with_the_sizes_of_published_files() {
    let published: [(&str, &str, u64); 13] = [
        ("qwen3-1.7b", "q8_0", 1_834_426_016),
        ("qwen3-4b", "q4_k_m", 2_497_280_256),
        ("qwen3-30b-a3b", "q4_k_m", 18_556_685_824),
        ("smollm2-360m-instruct", "q4_k_m", 270_590_880),
        ("ministral-3-8b-instruct", "q4_k_m", 5_198_911_904),
        ("olmo-2-0425-1b-instruct", "q4_k_m", 935_515_296),
        ("olmo-2-1124-7b-instruct", "q4_k_m", 4_472_020_256),
        ("qwen3.5-2b", "q8_0", 2_012_012_800),
        ("gpt-oss-20b", "mxfp4", 12_109_566_624),
        ("glm-4.7-flash", "q4_k_m", 18_312_339_776),
        ("lfm2.5-8b-a1b", "q4_k_m", 5_155_564_768),
        ("gemma-4-e2b-it", "q4_0", 2_841_481_184),
        ("gemma-4-26b-a4b-it", "q4_0", 14_618_145_824),
    ];
    let catalog = Catalog::builtin().unwrap();
    for (name, quantization, bytes) in published {
        let mut entry = catalog.find(name).unwrap().clone();
        let source = Source::Path("x".into());
        entry.sources.insert(quantization.to_owned(), source);
        let ratio = bytes as f64 / entry.weight_bytes(quantization).unwrap() as f64;
        assert!((0.85..1.2).contains(&ratio), "{name}: {ratio}");
    }
}

#[test]
fn memory_is_weights_and_context_and_workspace() {
    let entry = read(SMALL).unwrap();
    let kv = 2 * 16 * 8 * 64 * 2 * 4096;
    assert_eq!(
        entry.minimum_memory_bytes("q8_0"),
        Some(1_062_500_000 + kv + (256 << 20))
    );
    assert_eq!(entry.minimum_memory_bytes("bf16"), None);
}

#[test]
fn networks_of_candle_transformers_hold_weights_keys_and_values_in_32_bits() {
    let entry = read(&SMALL.replace("\"llama\"", "\"olmo\"")).unwrap();
    assert_eq!(entry.weight_bytes("q8_0"), Some(1_062_500_000));
    assert_eq!(entry.held_bytes("q8_0"), Some(4_000_000_000));
    let kv = 2 * 16 * 8 * 64 * 4 * 4096;
    assert_eq!(
        entry.minimum_memory_bytes("q8_0"),
        Some(4_000_000_000 + kv + (256 << 20))
    );
    assert!(!entry.family.has_run_on_gpus());
}

#[test]
fn a_token_reads_the_active_parameters_and_keeps_a_latent() {
    let sparse = SMALL.replace(
        "layers = 16",
        "active_parameters = 250_000_000\nlayers = 16",
    );
    let entry = read(&sparse).unwrap();
    assert_eq!(entry.active_bytes("q8_0"), Some(265_625_000));
    assert_eq!(
        read(SMALL).unwrap().active_bytes("q8_0"),
        Some(1_062_500_000)
    );

    let latent = SMALL.replace("kv_heads = 8\nhead_dim = 64", "latent_dim = 576");
    let kv = 16 * 576 * 2 * 4096;
    assert_eq!(
        read(&latent).unwrap().minimum_memory_bytes("q8_0"),
        Some(1_062_500_000 + kv + (256 << 20))
    );
    for (from, to) in [
        ("head_dim = 64", "latent_dim = 576"),
        ("kv_heads = 8\n", ""),
        ("kv_heads = 8\nhead_dim = 64", ""),
        ("head_dim = 64", "head_dim = 64\nlatent_dim = 576"),
    ] {
        check_refused(from, to, "shape needs kv_heads and head_dim, or latent_dim");
    }
    check_refused(
        "kv_heads = 8",
        "kv_heads = 9_000_000_000_000_000_000",
        "out of range",
    );
    check_refused(
        "layers = 16",
        "active_parameters = 0\nlayers = 16",
        "greater than 0",
    );
    check_refused(
        "layers = 16",
        "active_parameters = 1_000_000_001\nlayers = 16",
        "shape.active_parameters must be at most shape.parameters",
    );
}

#[test]
fn every_mixture_of_experts_says_how_many_of_its_parameters_a_token_reads() {
    for entry in Catalog::builtin().unwrap().entries() {
        let Facts::Text(facts) = &entry.facts else {
            continue;
        };
        // Small models of Gemma 4 have tables of which a token reads a row, the larger one has experts.
        if entry.family == Family::Gemma4 {
            assert!(facts.shape.active_parameters < facts.shape.parameters);
            continue;
        }
        let has_experts = matches!(
            entry.family,
            Family::Qwen3Moe
                | Family::Qwen3Next
                | Family::Qwen35Moe
                | Family::Olmoe
                | Family::Mixtral
                | Family::GptOss
                | Family::Glm4Moe
                | Family::Glm4MoeLite
                | Family::DeepseekV2
                | Family::Lfm2Moe
        );
        let shape = facts.shape;
        assert_eq!(
            shape.active_parameters < shape.parameters,
            has_experts,
            "{}",
            entry.id
        );
    }
}

#[test]
fn models_that_read_have_parameters_and_context_and_name_what_follows_the_network() {
    let entry = |module: &str, more: &str| {
        read(&format!(
            "id = \"reads\"\nfamily = \"qwen3-embedding\"\nkind = \"embedding\"\nlicence = \"Apache-2.0\"\n\
             parameters = 600_000_000\ndefault_quantization = \"bf16\"\n{more}\n\
             names = {{ v1 = [\"reads\"], legacy = [\"reads\"] }}\n[sources.bf16]\nrepository = \"org/reads\"\n\
             files = [{{ path = \"config.json\" }}, {{ path = \"tokenizer.json\" }}, {{ path = \"modules.json\" }}, \
             {{ path = \"{module}/config.json\" }}, {{ path = \"model.safetensors\" }}]"
        ))
    };
    let found = entry("1_Pooling", "context = 32768").unwrap();
    assert_eq!(
        (found.kind().name(), found.parameters()),
        ("embedding", 600_000_000)
    );
    assert!(found.minimum_memory_bytes("bf16").unwrap() > 1_200_000_000);
    let refused = |module: &str, more: &str, reason: &str| {
        let found = entry(module, more).unwrap_err();
        assert!(found.contains(reason), "{found}");
    };
    refused(
        "1_Pooling",
        "",
        "an embedding model needs parameters and context",
    );
    refused("1_Pooling", "context = 0", "context is out of range");
    refused(
        "1_LogitScore",
        "context = 32768",
        "also needs 1_Pooling/config.json in files",
    );
    refused(
        "1_Pooling",
        "context = 1\ndefaults = { temperature = 1.0 }",
        "has no shape and no defaults",
    );
    let ranks = Catalog::builtin().unwrap();
    assert_eq!(
        ranks.find("qwen3-reranker-0.6b").unwrap().kind().name(),
        "ranking"
    );
}

#[test]
fn an_unknown_word_is_refused_with_the_nearest() {
    check_refused("licence", "license", "did you mean licence?");
    check_refused("kv_heads", "kv_head", "did you mean kv_heads?");
    check_refused("[{ path", "[{ pth", "did you mean path?");
    check_refused("repository", "repo", "did you mean repository?");
    check_refused(
        "\"llama\"",
        "\"lama\"",
        "unknown family lama; did you mean llama?",
    );
    check_refused("[sources.q8_0]", "[sources.q80]", "did you mean q8_0?");
}

#[test]
fn an_incoherent_entry_is_refused() {
    check_refused(
        "small-q8_0.gguf",
        "../small.gguf",
        "invalid file \"../small.gguf\"",
    );
    check_refused(
        "small-q8_0.gguf",
        "model.bin",
        "unsupported file \"model.bin\"",
    );
    check_refused(
        "small-q8_0.gguf",
        "model.safetensors",
        "also need config.json",
    );
    check_refused("small-q8_0.gguf", "config.json", "no weights");
    check_refused(
        "[sources.q8_0]",
        "[defaults]\ntemperature = -3.0\n[sources.q8_0]",
        "defaults.temperature must be between 0 and 100, found -3",
    );
    check_refused(
        "default_quantization = \"q8_0\"",
        "default_quantization = \"q4_0\"",
        "sources: q8_0",
    );
    check_refused("id = \"small\"", "id = \"Small Model\"", "invalid id");
    check_refused("layers = 16", "layers = 0", "greater than 0");
    check_refused("context = 8192", "context = -1", "context");
    check_refused("org/Small\"", "org/Small:8b\"", "or contain a colon");
}

pub const DRAWING: &str = r#"
id = "draws"
family = "stable-diffusion-1"
kind = "image"
licence = "CreativeML Open RAIL-M"
parameters = 1_000_000_000
default_quantization = "f16"
names = { v1 = ["draws"], legacy = ["Draws"] }
defaults = { size = [512, 768], steps = 20, cfg_scale = 7.5, sampler = "k_euler_a", schedule = "karras", clip_skip = 2 }
[sources.f16]
repository = "org/draws"
files = [
  { path = "model_index.json" },
  { path = "scheduler/scheduler_config.json" },
  { path = "text_encoder/config.json" },
  { path = "text_encoder/model.safetensors" },
  { path = "unet/config.json" },
  { path = "unet/diffusion_pytorch_model.safetensors" },
  { path = "vae/config.json" },
  { path = "vae/diffusion_pytorch_model.safetensors" },
]
"#;

#[test]
fn an_image_model_has_parameters_and_defaults_of_its_kind() {
    let entry = read(DRAWING).unwrap();
    let Facts::Image(facts) = &entry.facts else {
        panic!("{entry:?}")
    };
    let defaults = &facts.defaults;
    assert_eq!(
        (defaults.size, defaults.clip_skip),
        (Some([512, 768]), Some(2))
    );
    assert_eq!(entry.weight_bytes("f16"), Some(2_000_000_000));
    let drawing = 512 * 768 * 4096;
    assert_eq!(
        entry.minimum_memory_bytes("f16"),
        Some(2_000_000_000 + drawing)
    );
}

const FILMING: &str = r#"
id = "films"
family = "wan"
kind = "video"
licence = "Apache-2.0"
parameters = 1_000_000_000
default_quantization = "f32"
names = { v1 = ["films"], legacy = ["Films"] }
defaults = { size = [832, 480], frames = 81, rate = 16.0, steps = 50, cfg_scale = 6.0 }
[sources.f32]
repository = "org/films"
files = [
  { path = "model_index.json" },
  { path = "scheduler/scheduler_config.json" },
  { path = "text_encoder/config.json" },
  { path = "text_encoder/model.safetensors" },
  { path = "transformer/config.json" },
  { path = "transformer/diffusion_pytorch_model.safetensors" },
  { path = "vae/config.json" },
  { path = "vae/diffusion_pytorch_model.safetensors" },
]
"#;

#[test]
fn a_video_model_has_parameters_and_defaults_of_its_kind() {
    let entry = read(FILMING).unwrap();
    let Facts::Video(facts) = &entry.facts else {
        panic!("{entry:?}")
    };
    assert_eq!(facts.defaults.frames, Some(81));
    assert_eq!(facts.defaults.rate, Some(16.0));
    let filming = entry.facts.workspace_bytes();
    assert!(filming > 832 * 480 * 3 * 81);
    assert_eq!(
        entry.minimum_memory_bytes("f32"),
        Some(4_000_000_000 + filming)
    );
    let refused = |from: &str, to: &str, reason: &str| {
        assert!(FILMING.contains(from), "{from}");
        let found = read(&FILMING.replace(from, to)).unwrap_err();
        assert!(found.contains(reason), "{found}");
    };
    refused(
        "parameters = 1_000_000_000",
        "context = 77",
        "needs parameters",
    );
    refused("rate = 16.0", "rate = 0.0", "defaults.rate is out of range");
    refused(
        "frames = 81",
        "frames = 1000",
        "defaults.frames is out of range",
    );
    refused(
        "rate = 16.0",
        "clip_skip = 2",
        "unknown key in defaults: clip_skip",
    );
    refused(
        "transformer/config",
        "unet/config",
        "also needs transformer/config.json",
    );
    refused(
        "family = \"wan\"",
        "family = \"whisper\"",
        "kind of the family whisper must be transcription",
    );
}

const COMPOSING: &str = r#"
id = "plays"
family = "ace_step"
kind = "music"
licence = "MIT"
parameters = 1_000_000_000
default_quantization = "bf16"
names = { v1 = ["plays"], legacy = ["Plays"] }
defaults = { seconds = 30.0, steps = 8 }
[sources.bf16]
repository = "org/plays"
files = [
  { path = "model_index.json" },
  { path = "scheduler/scheduler_config.json" },
  { path = "text_encoder/config.json" },
  { path = "text_encoder/model.safetensors" },
  { path = "condition_encoder/config.json" },
  { path = "condition_encoder/diffusion_pytorch_model.safetensors" },
  { path = "transformer/config.json" },
  { path = "transformer/diffusion_pytorch_model.safetensors" },
  { path = "vae/config.json" },
  { path = "vae/diffusion_pytorch_model.safetensors" },
]
"#;

#[test]
fn a_model_of_music_has_parameters_and_defaults_of_its_kind() {
    let entry = read(COMPOSING).unwrap();
    let Facts::Music(facts) = &entry.facts else {
        panic!("{entry:?}")
    };
    let defaults = facts.defaults;
    assert_eq!((defaults.seconds, defaults.steps), (Some(30.0), Some(8)));
    let composing = entry.facts.workspace_bytes();
    assert!(composing > 30 * 2 * 4 * 48_000);
    assert_eq!(
        entry.minimum_memory_bytes("bf16"),
        Some(2_000_000_000 + composing)
    );
    let refused = |from: &str, to: &str, reason: &str| {
        assert!(COMPOSING.contains(from), "{from}");
        let found = read(&COMPOSING.replace(from, to)).unwrap_err();
        assert!(found.contains(reason), "{found}");
    };
    refused(
        "parameters = 1_000_000_000",
        "context = 77",
        "needs parameters",
    );
    refused(
        "parameters = 1_000_000_000",
        "parameters = 0",
        "parameters is out of range",
    );
    refused(
        "seconds = 30.0",
        "seconds = 0.0",
        "defaults.seconds is out of range",
    );
    refused("steps = 8", "steps = 101", "defaults.steps is out of range");
    refused("steps = 8", "frames = 8", "unknown key in defaults: frames");
    refused(
        "condition_encoder/config",
        "unet/config",
        "also needs condition_encoder/config.json",
    );
}

#[test]
fn an_incoherent_image_model_is_refused() {
    let refused = |from: &str, to: &str, reason: &str| {
        assert!(DRAWING.contains(from), "{from}");
        let found = read(&DRAWING.replace(from, to)).unwrap_err();
        assert!(found.contains(reason), "{found}");
    };
    refused(
        "parameters = 1_000_000_000",
        "context = 77",
        "needs parameters",
    );
    refused(
        "\"image\"",
        "\"text\"",
        "unknown key in defaults: cfg_scale",
    );
    refused(
        "stable-diffusion-1",
        "llama",
        "kind of the family llama must be text",
    );
    refused(
        "steps = 20",
        "temperature = 1.0",
        "unknown key in defaults: temperature",
    );
    refused("steps = 20", "steps = 0", "defaults.steps is out of range");
    refused("[512, 768]", "[512, 0]", "defaults.size is out of range");
    refused("model_index", "model_list", "also needs model_index.json");
    refused(
        "vae/diffusion_pytorch_model.safetensors",
        "vae/readme.txt",
        "no weights (.safetensors) of vae/",
    );
}

#[test]
fn a_wrong_name_is_answered_with_the_nearest() {
    let catalog = Catalog::builtin().unwrap();
    let error = catalog.find("lama-3.2-1b").unwrap_err();
    let FindError::Unknown(unknown) = &error else {
        panic!("{error}")
    };
    assert_eq!(unknown.nearest[0], "llama-3.2-1b-instruct");
    assert!(
        error
            .to_string()
            .starts_with("unknown model lama-3.2-1b; similar names:")
    );
}

#[test]
fn a_name_that_differs_only_in_case_is_ambiguous_unless_exact() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.toml"), SMALL).unwrap();
    let other = SMALL
        .replace("id = \"small\"", "id = \"other\"")
        .replace("\"Small\", \"org/Small\"", "\"SMALL\"")
        .replace("koboldcpp/Small", "koboldcpp/Other");
    fs::write(folder.path().join("b.toml"), other).unwrap();
    let catalog = Catalog::open(Some(folder.path())).unwrap();
    assert_eq!(catalog.find("SMALL").unwrap().id, "other");
    assert_eq!(catalog.find("Small").unwrap().id, "small");
    let error = catalog.find("sMaLl").unwrap_err();
    assert!(matches!(error, FindError::Ambiguous(_)), "{error}");
}

#[test]
fn a_folder_of_the_owners_adds_and_replaces() {
    let folder = tempfile::tempdir().unwrap();
    let mine = SMALL.replace("id = \"small\"", "id = \"qwen3-0.6b\"");
    fs::write(folder.path().join("mine.toml"), mine).unwrap();
    fs::write(folder.path().join("notes.md"), "not an entry").unwrap();
    let catalog = Catalog::open(Some(folder.path())).unwrap();
    assert_eq!(catalog.entries().len(), builtin::ENTRIES.len());
    assert_eq!(
        catalog.find("koboldcpp/small").unwrap().licence,
        "Apache-2.0"
    );
    assert!(
        catalog.find("Qwen/Qwen3-0.6B").is_err(),
        "the entry it replaces is gone"
    );
}

#[test]
fn a_path_is_relative_to_its_entry() {
    let folder = tempfile::tempdir().unwrap();
    let hub = "repository = \"org/small-GGUF\"\nfiles = [{ path = \"small-q8_0.gguf\" }]";
    let text = SMALL.replace(hub, "path = \"weights/small.gguf\"");
    fs::write(folder.path().join("small.toml"), text).unwrap();
    let catalog = Catalog::open(Some(folder.path())).unwrap();
    let (_, source) = catalog.find("small").unwrap().source(None).unwrap();
    assert_eq!(
        *source,
        Source::Path(folder.path().join("weights/small.gguf"))
    );
}

#[test]
fn two_models_cannot_share_a_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.toml"), SMALL).unwrap();
    let other = SMALL.replace("id = \"small\"", "id = \"other\"");
    fs::write(folder.path().join("b.toml"), other).unwrap();
    let error = Catalog::open(Some(folder.path())).unwrap_err();
    assert!(matches!(error, CatalogError::SharedName { .. }), "{error}");
}

#[test]
fn a_broken_entry_of_the_owners_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.toml"), "id = ").unwrap();
    let error = Catalog::open(Some(folder.path())).unwrap_err().to_string();
    assert!(error.contains("bad.toml: "), "{error}");
    let missing = Catalog::open(Some(&folder.path().join("nowhere"))).unwrap_err();
    assert!(missing.to_string().contains("nowhere failed"), "{missing}");
}

#[test]
fn a_quantization_is_named_after_a_colon() {
    let catalog = Catalog::builtin().unwrap();
    let (entry, quantization) = catalog.find_with_quantization("qwen3-4b:Q8_0").unwrap();
    assert_eq!(entry.source(quantization).unwrap().0, "q8_0");
    let error = entry.source(Some("q3")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "qwen3-4b has no quantization q3; available: bf16, q4_k_m, q8_0"
    );
}

#[test]
fn one_file_of_safetensors_is_all_that_a_model_that_draws_needs() {
    let (head, _) = DRAWING.split_once("files = [").unwrap();
    let one = |file: &str| read(&format!("{head}files = [{{ path = \"{file}\" }}]\n"));
    one("all.safetensors").unwrap();
    let refused = one("all.gguf").unwrap_err();
    assert!(refused.contains("also needs model_index.json"), "{refused}");
}
