//! `worker eval`: prompts with checkable answers, and a score per skill.

mod expect;
mod measure;
mod prompts;
mod scores;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::place::Place;
use super::table::Table;
use super::{Exit, Failure, Root, load, output, threads};
pub use measure::measure;
pub use prompts::{Prompt, read};
pub use scores::{Required, Score, Scores};

const EXAMPLES: &str = "\
Examples:
  worker eval demo-text
  worker eval demo-text --require 95:85
  worker eval qwen3-0.6b --file prompts.jsonl --json";

/// The prompts of the built-in model, which any other model may be asked, too.
pub const DEMO_PROMPTS: &str = include_str!("../../../models/demo-text/eval.jsonl");

/// Score the answers of a model to a file of prompts, per skill.
///
/// Each line of a prompt file is a JSON object with `skill`, `messages`, `tools` (optional) and `expect`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Catalog NAME or NAME:QUANTIZATION, pulled org/name or org/name:FILE, or path of a .gguf file or model folder.
    model: String,
    /// File of prompts, one JSON object per line (default: the prompts of the built-in model).
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the scores and every wrong answer as JSON.
    #[arg(long)]
    json: bool,
    /// Fail below these percentages, over all prompts and in each skill, such as 95:85.
    #[arg(long, value_name = "OVERALL:EACH")]
    require: Option<Required>,
    /// Show wrong answers.
    #[arg(long)]
    wrong: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load()?.config;
    threads::settle(&config)?;
    let prompts = prompts_of(args.file.as_deref())?;
    let located = Place::open(&config)?.locate(&args.model)?;
    let answers = load::block_on(async {
        let (runtime, info) = load::load(&config, located, !root.quiet && !args.json).await?;
        Ok(measure(&runtime, &info.name, &prompts, 1).await?)
    })?;
    let scores = Scores::of(&prompts, &answers);
    show(&args, &prompts, &answers, &scores)?;
    require(args.require, &scores)
}

fn prompts_of(file: Option<&Path>) -> Result<Vec<Prompt>, Failure> {
    let (place, text) = match file {
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|error| Failure::reading(path, &error))?;
            (path.display().to_string(), text)
        }
        None => ("built-in prompts".to_owned(), DEMO_PROMPTS.to_owned()),
    };
    let prompts =
        read(&text).map_err(|bad| Failure::new(Exit::BadData, format!("{place}: {bad}")))?;
    match prompts.is_empty() {
        true => Err(Failure::new(
            Exit::BadData,
            format!("{place}: no prompts found"),
        )),
        false => Ok(prompts),
    }
}

fn show(
    args: &Args,
    prompts: &[Prompt],
    answers: &[String],
    scores: &Scores,
) -> Result<(), Failure> {
    let wrong = prompts
        .iter()
        .zip(answers)
        .filter(|(prompt, answer)| !prompt.expect.passes(answer));
    if args.json {
        let wrong: Vec<_> = wrong
            .map(|(prompt, answer)| json!({ "skill": prompt.skill, "messages": prompt.messages, "answer": answer }))
            .collect();
        let skills: Vec<_> = scores.skills.iter().map(score_json).collect();
        return output::json(
            &json!({ "overall": score_json(&scores.overall()), "skills": skills, "wrong": wrong }),
        );
    }
    if args.wrong {
        for (prompt, answer) in wrong {
            output::line(format!(
                "{}: {} -> {answer}",
                prompt.skill,
                prompt.question()
            ))?;
        }
    }
    let mut table = Table::new(["skill", "right", "asked", "percent"]);
    for score in scores.skills.iter().chain([&scores.overall()]) {
        table.row([
            score.skill.clone(),
            score.right.to_string(),
            score.asked.to_string(),
            format!("{:.1}", score.percent()),
        ]);
    }
    output::text(table)
}

fn score_json(score: &Score) -> serde_json::Value {
    json!({ "skill": score.skill, "right": score.right, "asked": score.asked, "percent": score.percent() })
}

fn require(required: Option<Required>, scores: &Scores) -> Result<(), Failure> {
    let shortfalls = required.map_or_else(Vec::new, |required| scores.shortfalls(required));
    match shortfalls.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, shortfalls.join("; "))),
    }
}
