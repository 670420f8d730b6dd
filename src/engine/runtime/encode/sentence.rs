//! What sentence-transformers keeps beside a checkpoint: `modules.json` says which steps follow the network,
//! `1_Pooling/config.json` how hidden states are pooled, `sentence_bert_config.json` how long a text may be.

use std::fs;
use std::path::{Component, Path};

use serde_json::Value;

use crate::networks::encoder::Pooling;
use crate::networks::weights::{CheckpointError, Flaw};

/// The steps after the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentenceConfig {
    /// None where the folder has no such files: it holds a plain network.
    pub pooling: Option<Pooling>,
    pub normalizes: bool,
    pub max_tokens: Option<usize>,
}

const MAX_BYTES: u64 = 1 << 20;

const MODES: &[(&str, Pooling)] = &[
    ("cls", Pooling::First),
    ("mean", Pooling::Mean),
    ("max", Pooling::Max),
    ("lasttoken", Pooling::Last),
];

/// The same in older files, each with a flag of its own.
const FLAGS: &[(&str, &str)] = &[
    ("pooling_mode_cls_token", "cls"),
    ("pooling_mode_mean_tokens", "mean"),
    ("pooling_mode_max_tokens", "max"),
    ("pooling_mode_lasttoken", "lasttoken"),
    ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
    ("pooling_mode_weightedmean_tokens", "weightedmean"),
];

impl SentenceConfig {
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join("modules.json");
        let Some(modules) = read_json(&path)? else {
            return Ok(Self::default());
        };
        let mut config = Self::default();
        for module in modules.as_array().into_iter().flatten() {
            let kind = module["type"].as_str().unwrap_or("none");
            match kind.rsplit('.').next().unwrap_or(kind) {
                "Transformer" => {}
                "Pooling" => config.pooling = Some(pooling(folder, module, &path)?),
                "Normalize" => config.normalizes = true,
                _ => {
                    let known = "Transformer, Pooling and Normalize";
                    return Err(Flaw::unsupported("a module", kind, known).in_file(&path));
                }
            }
        }
        let lengths = read_json(&folder.join("sentence_bert_config.json"))?;
        let most = lengths.and_then(|lengths| lengths["max_seq_length"].as_u64());
        config.max_tokens = most.and_then(|most| usize::try_from(most).ok());
        Ok(config)
    }
}

fn pooling(folder: &Path, module: &Value, modules: &Path) -> Result<Pooling, CheckpointError> {
    let name = module["path"].as_str().unwrap_or_default();
    let mut parts = Path::new(name).components();
    let (Some(Component::Normal(part)), None) = (parts.next(), parts.next()) else {
        let wanted = "the name of a folder beside it";
        return Err(Flaw::broken("a module's path", format!("{name:?}"), wanted).in_file(modules));
    };
    let path = folder.join(part).join("config.json");
    let config = read_json(&path)?.unwrap_or_default();
    mode(&config).map_err(|flaw| flaw.in_file(&path))
}

fn mode(config: &Value) -> Result<Pooling, Flaw> {
    let flagged = FLAGS.iter().filter(|(flag, _)| config[*flag] == true);
    let flagged: Vec<&str> = flagged.map(|(_, name)| *name).collect();
    let names: Vec<&str> = match config["pooling_mode"].as_str() {
        Some(name) => vec![name],
        None => flagged,
    };
    let known = || {
        let names: Vec<&str> = MODES.iter().map(|(name, _)| *name).collect();
        format!("one of {}", names.join(", "))
    };
    match names.as_slice() {
        [name] => {
            let found = MODES.iter().find(|(known, _)| known == name);
            found
                .map(|(_, pooling)| *pooling)
                .ok_or_else(|| Flaw::unsupported("the pooling mode", name, known()))
        }
        [] => Err(Flaw::broken("the pooling mode", "nothing", known())),
        several => Err(Flaw::unsupported(
            "the pooling mode",
            several.join(" and "),
            known(),
        )),
    }
}

/// None where there is no such file.
fn read_json(path: &Path) -> Result<Option<Value>, CheckpointError> {
    let size = match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => return Ok(None),
    };
    if size > MAX_BYTES {
        let wanted = format!("at most {MAX_BYTES}");
        return Err(Flaw::broken("the file", format!("{size} bytes"), wanted).in_file(path));
    }
    let unreadable = |source| CheckpointError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let text = fs::read(path).map_err(unreadable)?;
    let value = serde_json::from_slice(&text)
        .map_err(|error| Flaw::broken("the file", error, "valid JSON").in_file(path))?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::{Value, json};

    use super::{SentenceConfig, mode};
    use crate::networks::encoder::Pooling;

    fn write(folder: &Path, name: &str, value: &Value) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value.to_string()).unwrap();
    }

    #[test]
    fn pooling_is_what_the_files_say() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(
            SentenceConfig::read(folder).unwrap(),
            SentenceConfig::default()
        );
        let kind = |name: &str| format!("sentence_transformers.models.{name}");
        let modules = json!([
            {"path": "", "type": kind("Transformer")},
            {"path": "1_Pooling", "type": kind("Pooling")},
            {"path": "2_Normalize", "type": kind("Normalize")},
        ]);
        write(folder, "modules.json", &modules);
        write(
            folder,
            "1_Pooling/config.json",
            &json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}),
        );
        write(
            folder,
            "sentence_bert_config.json",
            &json!({"max_seq_length": 256}),
        );
        let found = SentenceConfig::read(folder).unwrap();
        assert_eq!(found.pooling, Some(Pooling::First));
        assert_eq!((found.normalizes, found.max_tokens), (true, Some(256)));

        write(
            folder,
            "modules.json",
            &json!([{"path": "2_Dense", "type": kind("Dense")}]),
        );
        let refused = SentenceConfig::read(folder).unwrap_err().to_string();
        assert!(refused.contains("models.Dense"), "{refused}");
        write(
            folder,
            "modules.json",
            &json!([{"path": "../..", "type": kind("Pooling")}]),
        );
        let refused = SentenceConfig::read(folder).unwrap_err().to_string();
        assert!(refused.contains("a folder beside it"), "{refused}");
    }

    #[test]
    fn a_pooling_that_is_not_computed_is_refused() {
        assert_eq!(
            mode(&json!({"pooling_mode": "lasttoken"})).unwrap(),
            Pooling::Last
        );
        let both = json!({"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true});
        for config in [both, json!({"pooling_mode": "weightedmean"}), json!({})] {
            assert!(mode(&config).is_err(), "{config}");
        }
    }
}
