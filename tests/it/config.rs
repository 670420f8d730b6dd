//! The configuration: its syntax, and the resulting settings.

use std::path::{Path, PathBuf};

use muster::config::{
    AliasConfig, Config, ConfigError, CoordinatorConfig, Environment, Flag, Loaded, PriceConfig,
    Quantization, Setting, Sources, UpstreamSettings, example, sections,
};

use proptest::prelude::*;

use crate::support::worker::worker;

/// Loads a file, variables and flags.
fn load(text: &str, variables: &[(&str, &str)], flags: &[Flag]) -> Result<Loaded, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker.toml");
    std::fs::write(&file, text).unwrap();
    Config::load(&sources(Some(file), variables, flags))
}

fn sources(file: Option<PathBuf>, variables: &[(&str, &str)], flags: &[Flag]) -> Sources {
    let home = ("HOME", "/home/ada");
    let environment: Environment = [&home]
        .into_iter()
        .chain(variables)
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    Sources {
        file,
        environment,
        flags: flags.to_vec(),
        folder: PathBuf::from("/here"),
    }
}

/// The problems of a file, without the folder it lies in.
fn problems(text: &str) -> String {
    let error = load(text, &[], &[]).unwrap_err().to_string();
    let words = error.split_inclusive(' ');
    words
        .map(|word| {
            word.rsplit_once('/')
                .filter(|(_, end)| end.starts_with("worker.toml"))
                .map_or(word, |(_, end)| end)
        })
        .collect()
}

#[track_caller]
fn check(text: &str, problem: &str) {
    assert_eq!(problems(text), problem, "for:\n{text}");
}

fn origin(loaded: &Loaded, name: &str) -> String {
    loaded
        .found
        .iter()
        .find(|found| found.name == name)
        .unwrap()
        .origin
        .to_string()
}

#[test]
fn the_example_is_what_the_code_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("worker.example.toml");
    let written = std::fs::read_to_string(file).unwrap();
    assert_eq!(
        written,
        example(),
        "write it again: worker config example > worker.example.toml"
    );
}

#[test]
fn the_example_as_it_stands_changes_nothing() {
    let untouched = load("", &[], &[]).unwrap();
    assert_eq!(load(&example(), &[], &[]).unwrap().found, untouched.found);
}

#[test]
fn the_examples_defaults_are_the_programs() {
    let text = example();
    // The section that may be repeated comes last, and has no defaults without one of it.
    let (sections, _) = text.split_once("# [[").unwrap();
    let uncommented: String = sections
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(setting) if is_setting(setting) && !setting.ends_with('=') => {
                format!("{setting}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let values = |loaded: Loaded| {
        loaded
            .found
            .into_iter()
            .map(|found| (found.name, found.value))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        values(load(&uncommented, &[], &[]).unwrap()),
        values(load("", &[], &[]).unwrap())
    );
}

#[test]
fn every_setting_is_in_the_example_and_every_line_of_it_is_a_setting() {
    let text = example();
    let in_example: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| is_setting(line))
        .filter_map(|line| line.split_once(" =").map(|(key, _)| key))
        .collect();
    let known = sections()
        .into_iter()
        .flatten()
        .chain(PriceConfig::SETTINGS)
        .chain(AliasConfig::SETTINGS)
        .chain(UpstreamSettings::SETTINGS)
        .chain(CoordinatorConfig::SETTINGS);
    assert_eq!(
        in_example,
        known.map(|setting| setting.key).collect::<Vec<_>>()
    );
}

fn is_setting(line: &str) -> bool {
    line.split_once(" =").is_some_and(|(key, _)| {
        key.chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
    })
}

#[test]
fn every_setting_says_what_it_is() {
    for setting in sections()
        .into_iter()
        .flatten()
        .chain(PriceConfig::SETTINGS)
        .chain(AliasConfig::SETTINGS)
        .chain(UpstreamSettings::SETTINGS)
        .chain(CoordinatorConfig::SETTINGS)
    {
        assert!(
            setting.doc.trim().ends_with('.'),
            "{}: {}",
            setting.name(),
            setting.doc
        );
        let is_required =
            ["url", "key", "model"].contains(&setting.key) || setting.name() == "serve.alias.name";
        let is_explained = setting.default.is_some() || !setting.unset.is_empty() || is_required;
        assert!(
            is_explained,
            "{} does not say what unset means",
            setting.name()
        );
    }
}

#[test]
fn a_flag_counts_more_than_a_variable_and_a_variable_more_than_the_file() {
    let file = "[engine]\nthreads = 1\n";
    let variable = [("MUSTER_ENGINE_THREADS", "2")];
    let flag = Flag {
        name: "--threads",
        setting: "engine.threads",
        value: "3".to_owned(),
    };
    let threads = |loaded: &Loaded| {
        (
            loaded.config.engine.threads,
            origin(loaded, "engine.threads"),
        )
    };

    assert_eq!(
        threads(&load("", &[], &[]).unwrap()),
        (None, "default".to_owned())
    );
    let (value, place) = threads(&load(file, &[], &[]).unwrap());
    assert!(
        value == Some(1) && place.ends_with("worker.toml:2"),
        "{place}"
    );
    assert_eq!(
        threads(&load(file, &variable, &[]).unwrap()),
        (Some(2), "$MUSTER_ENGINE_THREADS".to_owned())
    );
    assert_eq!(
        threads(&load(file, &variable, &[flag]).unwrap()),
        (Some(3), "--threads".to_owned())
    );
}

#[test]
fn the_hubs_own_variables_count_less_than_the_file() {
    let variables = [
        ("HF_HUB_OFFLINE", "1"),
        ("HF_HOME", "/big/hf"),
        ("HF_TOKEN", "hf_1"),
    ];
    let hub = load("", &variables, &[]).unwrap().config.hub;
    assert!(hub.offline);
    assert_eq!(hub.cache_dir, Path::new("/big/hf/hub"));
    assert_eq!(hub.token.unwrap().expose(), "hf_1");

    let loaded = load("[hub]\noffline = false\n", &variables, &[]).unwrap();
    assert!(!loaded.config.hub.offline);
}

#[test]
fn an_unknown_setting_is_refused_with_the_nearest_known_one() {
    check(
        "[engine]\nmax_runing = 3\n",
        "worker.toml:2: unknown setting engine.max_runing; did you mean max_running?",
    );
    check(
        "\n[engin]\n",
        "worker.toml:2: unknown section engin; did you mean engine?",
    );
    check("[colours]\n", "worker.toml:1: unknown section colours");
    check(
        "threads = 3\n",
        "worker.toml:1: threads is outside a section: move it below a [section]",
    );
}

#[test]
fn a_variable_of_a_program_around_us_is_only_mentioned() {
    let loaded = load(
        "",
        &[("MUSTER_FUZZ_SECONDS", "9"), ("MUSTER_CONFIG", "x")],
        &[],
    )
    .unwrap();
    assert_eq!(loaded.warnings, ["unknown variable MUSTER_FUZZ_SECONDS"]);
}

proptest! {
    #[test]
    fn no_text_makes_the_configuration_panic(
        section in "(worker|models|engine|hub|owner|coordinator|x)",
        key in "(name|serve|threads|kv_memory|token|url|drain|[a-z.\"]{0,8})",
        value in "[\\x20-\\x7e\\n]{0,20}",
        noise in ".{0,20}",
    ) {
        let _ = load(&format!("[{section}]\n{key} = {value}\n{noise}"), &[], &[]);
        let _ = load(&format!("[[{section}]]\n{key} = \"{value}\""), &[], &[]);
    }
}

#[test]
fn a_mistyped_variable_is_refused_and_a_strange_one_mentioned() {
    let error = load("", &[("MUSTER_ENGINE_TREADS", "1")], &[])
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "environment: unknown variable MUSTER_ENGINE_TREADS; did you mean MUSTER_ENGINE_THREADS?"
    );
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_what_was_wanted() {
    check(
        "[engine]\n\nthreads = \"many\"\n",
        "worker.toml:3: engine.threads must be an integer from 1 to 1024, found \"many\"",
    );
    check(
        "[engine]\nthreads = 0\n",
        "worker.toml:2: engine.threads must be an integer from 1 to 1024, found 0",
    );
    check(
        "[engine]\nkv_memory = \"2 apples\"\n",
        "worker.toml:2: engine.kv_memory must be a size such as \"2 GiB\" from 1 MiB to 1024 TiB, found \"2 apples\"",
    );
    check(
        "[worker]\nlog_level = \"loud\"\n",
        "worker.toml:2: worker.log_level must be one of \"error\", \"warn\", \"info\", \"debug\", \"trace\", found \"loud\"",
    );
    check(
        "[models]\nserve = \"one\"\n",
        "worker.toml:2: models.serve must be a list of models such as [\"qwen3-0.6b\", \"./tiny.gguf\"], found \"one\"",
    );
}

#[test]
fn charging_that_would_do_nothing_or_refuse_everything_is_refused() {
    check(
        "[serve]\ncharging = \"on\"\n",
        "worker.toml:2: serve.charging needs prices: without [[serve.price]] every request that is charged is refused",
    );
    let price =
        "[[serve.price]]\nmodel = \"tiny\"\ninput_per_mtok_usd = 1\noutput_per_mtok_usd = 2\n";
    check(
        &format!("[serve]\ncharging = \"allowlist\"\n{price}"),
        "worker.toml:2: serve.charging is allowlist and serve.charged_accounts is empty: list accounts or choose off",
    );
    check(
        &format!("[serve]\ncharging = \"on\"\ncharged_accounts = [\"alice\"]\n{price}"),
        "worker.toml:3: serve.charged_accounts needs serve.charging = \"allowlist\"",
    );
    check(
        "[serve]\nfree_credits_per_day_usd = 0.5\n",
        "worker.toml:2: serve.free_credits_per_day_usd needs serve.charging: without it requests cost no credits",
    );
    let allowed =
        format!("[serve]\ncharging = \"allowlist\"\ncharged_accounts = [\"alice\"]\n{price}");
    assert!(load(&allowed, &[], &[]).is_ok());
}

#[test]
fn an_alias_names_one_model() {
    let alias =
        |name: &str, model: &str| format!("[[serve.alias]]\nname = {name:?}\nmodel = {model:?}\n");
    let two = alias("gpt-4o-mini", "tiny") + &alias("tts-1", "speaks");
    let config = load(&two, &[], &[]).unwrap().config;
    let aliases = config.aliases.iter();
    let aliases: Vec<_> = aliases.map(|one| (&*one.name, &*one.model)).collect();
    assert_eq!(aliases, [("gpt-4o-mini", "tiny"), ("tts-1", "speaks")]);
    let twice = alias("tts-1", "tiny") + &alias("tts-1", "speaks");
    let error = load(&twice, &[], &[]).unwrap_err().to_string();
    assert!(
        error.contains("tts-1 stands for two models in [[serve.alias]]: keep one"),
        "{error}"
    );
    let error = load(&alias("tiny", "tiny"), &[], &[])
        .unwrap_err()
        .to_string();
    assert!(error.contains("tiny is an alias of itself"), "{error}");
}

#[test]
fn a_quantization_is_a_word_that_the_catalog_knows_in_any_case() {
    let known: Vec<&str> = muster::catalog::quantizations().collect();
    assert_eq!(Quantization::WORDS, known);
    let preferred = |text: &str| {
        let variables = [("MUSTER_MODELS_QUANTIZATION", text)];
        let config = load("", &variables, &[]).map(|loaded| loaded.config);
        config.map(|config| config.models.quantization.map(Quantization::word))
    };
    assert_eq!(preferred("Q8_0").unwrap(), Some("q8_0"));
    assert_eq!(preferred("").unwrap(), None);
    let words: Vec<String> = known.iter().map(|word| format!("{word:?}")).collect();
    assert_eq!(
        preferred("q8").unwrap_err().to_string(),
        format!(
            "MUSTER_MODELS_QUANTIZATION: models.quantization must be one of {}, found q8",
            words.join(", ")
        )
    );
}

#[test]
fn all_problems_are_found_in_one_pass() {
    let text = problems("[engine]\nthreads = 0\nmax_runing = 1\n[hub]\noffline = 3\n");
    assert!(
        text.starts_with("the configuration has 3 errors:\n"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 4, "{text}");
}

#[test]
fn broken_syntax_is_named_with_its_line() {
    let text = problems("[engine]\nthreads = \n");
    assert!(text.starts_with("worker.toml:2: "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_setting_written_twice_is_refused() {
    let text = problems("[engine]\nthreads = 1\nthreads = 2\n");
    assert!(text.starts_with("worker.toml:3: "), "{text}");
}

#[test]
fn paths_start_where_they_are_written() {
    let flag = |value: &str| Flag {
        name: "--data-dir",
        setting: "worker.data_dir",
        value: value.to_owned(),
    };
    let by_flag = |value| {
        load("", &[], &[flag(value)])
            .unwrap()
            .config
            .worker
            .data_dir
    };
    assert_eq!(by_flag("data"), Path::new("/here/data"));
    assert_eq!(by_flag("~/data"), Path::new("/home/ada/data"));
    let in_file = load("[worker]\ndata_dir = \"data\"\n", &[], &[])
        .unwrap()
        .config
        .worker
        .data_dir;
    assert!(
        in_file.is_absolute() && in_file.ends_with("data") && in_file != Path::new("/here/data")
    );
}

#[test]
fn a_secret_comes_from_a_file_or_a_variable_and_is_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "hf_from_file\n").unwrap();
    let token = |text: &str| {
        load(
            &format!("[hub]\ntoken = \"{text}\"\n"),
            &[("TOKEN", "hf_variable")],
            &[],
        )
    };

    let from_file = token(&format!("file:{}", file.display())).unwrap();
    let from_variable = token("env:TOKEN").unwrap();
    let plain = token("hf_plain").unwrap();
    for (loaded, secret) in [
        (from_file, "hf_from_file"),
        (from_variable, "hf_variable"),
        (plain, "hf_plain"),
    ] {
        assert_eq!(loaded.config.hub.token.as_ref().unwrap().expose(), secret);
        let shown = format!("{loaded:?}");
        assert!(!shown.contains(secret), "{shown}");
        assert!(shown.contains("hidden"), "{shown}");
    }
    let missing = token("env:NO_SUCH").unwrap_err().to_string();
    assert!(missing.contains("NO_SUCH is not"), "{missing}");
    let missing = token("file:/no/such/file").unwrap_err().to_string();
    assert!(missing.contains("/no/such/file"), "{missing}");
}

#[test]
fn coordinators_are_several_and_their_addresses_fit_their_kind() {
    let two = "[[coordinator]]\nurl = \"wss://a.example\"\nkey = \"k\"\n[[coordinator]]\nkey = \"k\"\nurl = \"https://b.example\"\nkind = \"legacy\"\n";
    let loaded = load(two, &[], &[]).unwrap();
    assert_eq!(loaded.config.coordinators.len(), 2);
    assert!(origin(&loaded, "coordinator[2].url").ends_with("worker.toml:6"));

    check(
        "[[coordinator]]\nkey = \"k\"\n",
        "worker.toml:1: coordinator[1].url is missing: must be a URL such as https://example.org",
    );
    check(
        "[[coordinator]]\nurl = \"wss://a.example\"\n",
        "worker.toml:1: coordinator[1].key is missing: must be a secret: the text itself, \"file:PATH\" or \"env:NAME\"",
    );
    check(
        "[[coordinator]]\nurl = \"ftp://a.example\"\nkey = \"k\"\n",
        "worker.toml:1: a socket coordinator's url must begin with ws:// or wss:// or http:// or https://, found ftp://",
    );
    check(
        "[coordinator]\nurl = \"wss://a.example\"\n",
        "worker.toml:1: [coordinator] must be [[coordinator]]: the section can repeat",
    );
    check(
        "[[engine]]\nthreads = 1\n",
        "worker.toml:1: [[engine]] must be [engine]: the section cannot repeat",
    );
}

#[test]
fn a_key_does_not_travel_in_the_clear_unless_the_section_says_so() {
    let section = |url: &str, further: &str| {
        format!("[[coordinator]]\nurl = \"{url}\"\nkey = \"k\"\n{further}\n")
    };
    let legacy = "kind = \"legacy\"";
    for (url, further) in [("ws://a.example", ""), ("http://10.0.0.7", legacy)] {
        let problem = problems(&section(url, further));
        assert!(problem.starts_with("worker.toml:1: "), "{problem}");
        assert!(problem.contains("set insecure = true"), "{problem}");
        let allowed = section(url, &format!("{further}\ninsecure = true"));
        load(&allowed, &[], &[]).unwrap();
    }
    for here in ["ws://localhost:7010", "http://127.0.0.9", "ws://[::1]:1"] {
        load(&section(here, ""), &[], &[]).unwrap();
    }
}

#[test]
fn what_is_asked_by_http_has_an_address_of_it() {
    let wanted = "must be a URL that begins with https:// or http://, found";
    check(
        "[hub]\nendpoint = \"ftp://x\"\n",
        &format!("worker.toml:2: hub.endpoint {wanted} \"ftp://x\""),
    );
    let from_outside = load("", &[("HF_ENDPOINT", "huggingface.co")], &[]);
    let error = from_outside.unwrap_err().to_string();
    assert!(error.starts_with("HF_ENDPOINT: hub.endpoint"), "{error}");
}

#[test]
fn a_model_is_served_once_however_the_list_is_written() {
    check(
        "[models]\nserve = [\"demo-text\", \"Demo-Text\"]\n",
        "worker.toml:2: models.serve must be a list without duplicates, found Demo-Text twice",
    );
    let served = |text: &str| {
        let loaded = load("", &[("MUSTER_MODELS_SERVE", text)], &[]);
        loaded.map(|loaded| loaded.config.models.serve.0)
    };
    let both = ["demo-text", "/here/./tiny.gguf"];
    assert_eq!(served("demo-text, ./tiny.gguf").unwrap(), both);
    assert_eq!(served(r#"["demo-text", "./tiny.gguf"]"#).unwrap(), both);
    let error = served(r#"["demo-text""#).unwrap_err().to_string();
    assert!(error.contains("must be a list of models"), "{error}");
}

#[test]
fn every_settings_variable_is_its_name() {
    let names = sections().into_iter().flatten().map(Setting::variable);
    assert!(
        names
            .into_iter()
            .any(|name| name == "MUSTER_WORKER_DATA_DIR")
    );
}

#[test]
fn config_check_shows_values_and_where_they_come_from() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("worker.toml"),
        "[engine]\nthreads = 3\n[hub]\ntoken = \"hf_mine\"\n",
    )
    .unwrap();
    let shown = worker(&["config", "check", "worker.toml", "--offline"])
        .inside(folder.path())
        .env("MUSTER_ENGINE_MAX_RUNNING", "5")
        .run()
        .ok();
    let line = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("engine.threads"), "3 worker.toml:2");
    assert_eq!(line("engine.max_running"), "5 $MUSTER_ENGINE_MAX_RUNNING");
    assert_eq!(line("hub.offline"), "true --offline");
    assert_eq!(line("hub.token"), "(hidden) worker.toml:4");
    assert_eq!(line("hub.connections"), "8 default");
}

#[test]
fn config_check_fails_on_a_wrong_and_on_a_missing_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("worker.toml"), "[engine]\nthread = 3\n").unwrap();
    let check = |file: &str| {
        worker(&["config", "check", file])
            .inside(folder.path())
            .run()
    };
    check("worker.toml").fails(
        78,
        "worker.toml:2: unknown setting engine.thread; did you mean threads?",
    );
    check("missing.toml").fails(66, "missing.toml");
    check(".").fails(1, "cannot read");
}

#[test]
fn the_coordinators_section_is_held_against_itself() {
    check(
        "[serve]\nlisten = \"everywhere\"",
        "worker.toml:2: serve.listen must be an address and port such as \"127.0.0.1:7010\" or \"[::]:7010\", found \"everywhere\"",
    );
    check(
        "[serve]\ntls_key = \"key.pem\"",
        "worker.toml:2: serve.tls_key is set and serve.tls_certificate is not: TLS needs both",
    );
    check(
        "[serve]\nname = \"x\"\ntls_certificate = \"chain.pem\"",
        "worker.toml:3: serve.tls_certificate is set and serve.tls_key is not: TLS needs both",
    );
    check(
        "[serve]\n\ndatabase = \"mysql://me:secret@host/name\"",
        "worker.toml:3: serve.database must be a path, sqlite:PATH or postgres://HOST/NAME, found mysql://",
    );
    check(
        "[serve]\nblocked_clients = [\"Painter:1.2\", \" :1\"]",
        "worker.toml:2: serve.blocked_clients must contain \"name\" or \"name:version\", found \":1\"",
    );
    let serve = load("[serve]\nlisten = \"localhost:0\"", &[], &[])
        .unwrap()
        .config
        .serve;
    assert!(serve.listen.ip().is_loopback() && serve.tls().is_none());
}

#[test]
fn files_of_the_coordinator_that_are_missing_are_told_with_their_setting() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let serve = |settings: &str| {
        let text =
            format!("[worker]\ndata_dir = {data:?}\n[serve]\nlisten = \"127.0.0.1:0\"\n{settings}");
        std::fs::write(folder.path().join("worker.toml"), text).unwrap();
        worker(&["serve", "--config", "worker.toml"])
            .inside(folder.path())
            .run()
    };
    serve("documents = \"/nope\"").fails(66, "serve.documents: cannot read /nope");
    serve("tls_certificate = \"/nope.pem\"\ntls_key = \"/nope.key\"").fails(
        78,
        "serve.tls_certificate and serve.tls_key: reading /nope.pem as PEM failed",
    );
}
