//! Files of sentence-transformers in a model's folder: `modules.json` lists the steps after the network,
//! `1_Pooling/config.json` has the pooling, `2_Dense/config.json` a dense layer, `1_LogitScore/config.json` the tokens
//! whose logits are scores, `sentence_bert_config.json` the longest text, `config_sentence_transformers.json` the
//! instructions for queries and documents.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::PairTemplate;
use crate::networks::encoder::Pooling;
use crate::networks::weights::{CheckpointError, Flaw};

/// The steps after the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentenceConfig {
    /// `None` if the folder has no such files: it holds a plain network.
    pub pooling: Option<Pooling>,
    /// Products after the pooling, in order.
    pub dense: Vec<DenseModule>,
    /// The answer tokens of a decoder that scores pairs.
    pub answers: Option<AnswerRows>,
    pub template: PairTemplate,
    pub normalizes: bool,
    pub max_tokens: Option<usize>,
}

/// A product with vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenseModule {
    pub weights: DenseWeights,
    pub inputs: usize,
    pub outputs: usize,
    pub has_bias: bool,
    pub activation: DenseActivation,
}

/// The location of a dense layer's weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DenseWeights {
    /// A file in this folder.
    Folder(PathBuf),
    /// A tensor of this name in the network's file.
    Tensor(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenseActivation {
    Identity,
    Tanh,
}

/// The rows of the output matrix that give the logits of the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerRows {
    /// Rows of the output layer of the language model.
    Tokens(Answers),
    /// A separate tensor: yes, then no.
    Tensor(&'static str),
}

/// The answer tokens of a reranking decoder, which states whether a document fits a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    pub yes: u32,
    /// With it, the score is the difference of both logits.
    pub no: Option<u32>,
}

/// The widest vector.
const MOST_DIMENSIONS: u64 = 1 << 16;

const MAX_BYTES: u64 = 1 << 20;

const MODES: &[(&str, Pooling)] = &[
    ("cls", Pooling::First),
    ("mean", Pooling::Mean),
    ("max", Pooling::Max),
    ("lasttoken", Pooling::Last),
];

/// The same in older files, each with a separate flag.
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
                "Dense" if config.pooling.is_some() && !config.normalizes => {
                    config.dense.push(dense(folder, module, &path)?);
                }
                "LogitScore" => {
                    config.answers = Some(AnswerRows::Tokens(answers(folder, module, &path)?));
                }
                "Normalize" => config.normalizes = true,
                _ => {
                    let known =
                        "Transformer, Pooling, Dense between them and Normalize, LogitScore";
                    return Err(Flaw::unsupported("a module", kind, known).in_file(&path));
                }
            }
        }
        let lengths = read_json(&folder.join("sentence_bert_config.json"))?;
        let most = lengths.as_ref();
        let most = most.and_then(|lengths| lengths["max_seq_length"].as_u64());
        config.max_tokens = most.and_then(|most| usize::try_from(most).ok());
        let prompts = read_json(&folder.join("config_sentence_transformers.json"))?;
        config.template = PairTemplate {
            instruction: prompts.and_then(|prompts| {
                let name = prompts["default_prompt_name"].as_str()?;
                Some(prompts["prompts"][name].as_str()?.to_owned())
            }),
            adds_generation_prompt: lengths.is_some_and(|lengths| {
                lengths["processing_kwargs"]["chat_template"]["add_generation_prompt"] == true
            }),
        };
        Ok(config)
    }

    /// Whether the steps fit the network and each other.
    pub fn check(&self, hidden_size: usize, is_decoder: bool) -> Result<(), Flaw> {
        if self.answers.is_some() && !(is_decoder && self.pooling.is_none()) {
            let found = "LogitScore beside a pooling, or after a network that writes nothing";
            return Err(Flaw::unsupported(
                "a module",
                found,
                "LogitScore after a decoder",
            ));
        }
        let mut width = hidden_size;
        for dense in &self.dense {
            if dense.inputs != width {
                let wanted = format!("{width}, the width before it");
                return Err(Flaw::broken("in_features", dense.inputs, wanted));
            }
            width = dense.outputs;
        }
        Ok(())
    }
}

/// The folder of a module, and its parsed `config.json`.
fn module_config(
    folder: &Path,
    module: &Value,
    modules: &Path,
) -> Result<(PathBuf, Value), CheckpointError> {
    let name = module["path"].as_str().unwrap_or_default();
    let mut parts = Path::new(name).components();
    let (Some(Component::Normal(part)), None) = (parts.next(), parts.next()) else {
        let wanted = "the name of a folder beside it";
        return Err(Flaw::broken("a module's path", format!("{name:?}"), wanted).in_file(modules));
    };
    let folder = folder.join(part);
    let config = read_json(&folder.join("config.json"))?.unwrap_or_default();
    Ok((folder, config))
}

fn pooling(folder: &Path, module: &Value, modules: &Path) -> Result<Pooling, CheckpointError> {
    let (folder, config) = module_config(folder, module, modules)?;
    mode(&config).map_err(|flaw| flaw.in_file(&folder.join("config.json")))
}

fn dense(folder: &Path, module: &Value, modules: &Path) -> Result<DenseModule, CheckpointError> {
    let (folder, config) = module_config(folder, module, modules)?;
    dense_of(&folder, &config).map_err(|flaw| flaw.in_file(&folder.join("config.json")))
}

fn dense_of(folder: &Path, config: &Value) -> Result<DenseModule, Flaw> {
    let size = |name: &str| match config[name].as_u64() {
        Some(size) if (1..=MOST_DIMENSIONS).contains(&size) => Ok(size as usize),
        _ => {
            let wanted = format!("1 to {MOST_DIMENSIONS}");
            Err(Flaw::broken(name, &config[name], wanted))
        }
    };
    if config["use_residual"] == true {
        return Err(Flaw::unsupported("use_residual", true, "false"));
    }
    let vector = "sentence_embedding";
    for name in ["module_input_name", "module_output_name"] {
        if let Some(found) = config[name].as_str().filter(|&found| found != vector) {
            return Err(Flaw::unsupported(name, found, vector));
        }
    }
    let activation = config["activation_function"].as_str().unwrap_or("Tanh");
    Ok(DenseModule {
        weights: DenseWeights::Folder(folder.to_owned()),
        inputs: size("in_features")?,
        outputs: size("out_features")?,
        has_bias: config["bias"].as_bool().unwrap_or(true),
        activation: match activation.rsplit('.').next() {
            Some("Identity") => DenseActivation::Identity,
            Some("Tanh") => DenseActivation::Tanh,
            _ => {
                let known = "Identity and Tanh";
                return Err(Flaw::unsupported("activation_function", activation, known));
            }
        },
    })
}

fn answers(folder: &Path, module: &Value, modules: &Path) -> Result<Answers, CheckpointError> {
    let (folder, config) = module_config(folder, module, modules)?;
    let token = |name: &str| match config[name].as_u64().map(u32::try_from) {
        Some(Ok(token)) => Ok(token),
        _ => Err(Flaw::broken(name, &config[name], "the id of a token")),
    };
    let read = || {
        let no = config.get("false_token_id").filter(|no| !no.is_null());
        Ok(Answers {
            yes: token("true_token_id")?,
            no: no.map(|_| token("false_token_id")).transpose()?,
        })
    };
    read().map_err(|flaw: Flaw| flaw.in_file(&folder.join("config.json")))
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

/// `None` if the file does not exist.
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

    use super::{
        AnswerRows, Answers, DenseActivation, DenseWeights, PairTemplate, SentenceConfig, mode,
    };
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
        // Without a pooling the product would be with hidden states.
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
    fn products_after_the_pooling_are_read_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let modules = json!([
            {"path": "", "type": "sentence_transformers.models.Transformer"},
            {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"path": "2_Dense", "type": "sentence_transformers.models.Dense"},
        ]);
        write(folder, "modules.json", &modules);
        write(
            folder,
            "1_Pooling/config.json",
            &json!({"pooling_mode": "mean"}),
        );
        let dense = |changes: Value| {
            let mut config = json!({
                "in_features": 768, "out_features": 3072, "bias": false,
                "activation_function": "torch.nn.modules.linear.Identity",
            });
            for (key, value) in changes.as_object().unwrap() {
                config[key] = value.clone();
            }
            write(folder, "2_Dense/config.json", &config);
            SentenceConfig::read(folder).map_err(|error| error.to_string())
        };
        let found = dense(json!({})).unwrap().dense;
        assert_eq!((found[0].inputs, found[0].outputs), (768, 3072));
        assert_eq!(found[0].activation, DenseActivation::Identity);
        let beside = DenseWeights::Folder(folder.join("2_Dense"));
        assert!(!found[0].has_bias && found[0].weights == beside);
        for (changes, expected) in [
            (
                json!({"in_features": 0}),
                "in_features: found 0, expected 1 to 65536",
            ),
            (
                json!({"out_features": 1_u64 << 40}),
                "out_features: found 1099511627776",
            ),
            (
                json!({"activation_function": "torch.nn.ReLU"}),
                "found torch.nn.ReLU",
            ),
            (json!({"use_residual": true}), "use_residual: found true"),
            (
                json!({"module_input_name": "token_embeddings"}),
                "found token_embeddings",
            ),
        ] {
            let refused = dense(changes).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn the_tokens_that_score_are_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let modules = json!([
            {"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
            {"path": "1_LogitScore", "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"},
        ]);
        write(folder, "modules.json", &modules);
        let tokens = json!({"true_token_id": 9693, "false_token_id": 2152});
        write(folder, "1_LogitScore/config.json", &tokens);
        let found = SentenceConfig::read(folder).unwrap().answers;
        let (yes, no) = (9693, Some(2152));
        assert_eq!(found, Some(AnswerRows::Tokens(Answers { yes, no })));
        assert_eq!(
            SentenceConfig::read(folder).unwrap().template,
            PairTemplate::default()
        );
        write(
            folder,
            "config_sentence_transformers.json",
            &json!({"prompts": {"search": "Find it."}, "default_prompt_name": "search"}),
        );
        write(
            folder,
            "sentence_bert_config.json",
            &json!({"processing_kwargs": {"chat_template": {"add_generation_prompt": true}}}),
        );
        let template = SentenceConfig::read(folder).unwrap().template;
        assert_eq!(template.instruction.as_deref(), Some("Find it."));
        assert!(template.adds_generation_prompt);
        let without = json!({"true_token_id": 9693, "false_token_id": null});
        write(folder, "1_LogitScore/config.json", &without);
        let found = SentenceConfig::read(folder).unwrap().answers;
        let answers = Answers { yes, no: None };
        assert_eq!(found, Some(AnswerRows::Tokens(answers)));
        write(
            folder,
            "1_LogitScore/config.json",
            &json!({"true_token_id": -1}),
        );
        let refused = SentenceConfig::read(folder).unwrap_err().to_string();
        assert!(refused.contains("true_token_id: found -1"), "{refused}");
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
