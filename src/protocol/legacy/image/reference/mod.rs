//! The reference of image models by name: their families and requirements. The data is `models/reference/images.toml`
//! of this repository; for an unlisted model only its name counts.
//!
//! | file | contents |
//! | --- | --- |
//! | `needs` | requirements of a model, and warnings for requests that miss them |
//!
//! Requirements never cause a refusal. Prices, deadlines and the limits of a worker follow its family and its steps.

mod needs;

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use super::baseline::Baseline;
use super::params::ModelGenerationInputImage;
use crate::legacy::requests::RequestSingleWarning;

pub use needs::Defaults;

use needs::ModelNeeds;

static IMAGES: LazyLock<HashMap<String, Known>> = LazyLock::new(|| {
    let table = read(include_str!("../../../../../models/reference/images.toml"));
    table.expect("the embedded table is valid, as a test checks")
});

/// The steps that a model is made for which says nothing else.
const USUAL_STEPS: (u32, u32) = (20, 40);

#[derive(Debug, PartialEq)]
struct Known {
    family: Baseline,
    needs: ModelNeeds,
}

/// Whether it is in the table.
pub fn knows(model: &str) -> bool {
    IMAGES.contains_key(model)
}

pub fn family(model: &str) -> Baseline {
    let known = IMAGES.get(model).map(|known| known.family);
    known.unwrap_or_else(|| Baseline::of_unknown(model))
}

/// How many steps a worker does of a model that does not want to do many: halfway between the fewest and the most that
/// the model is made for.
pub fn modest_steps(model: &str) -> u32 {
    let (fewest, most) = steps(model);
    fewest.midpoint(most)
}

/// The most steps that the model is made for.
pub fn most_steps(model: &str) -> u32 {
    steps(model).1
}

fn steps(model: &str) -> (u32, u32) {
    let known = IMAGES.get(model);
    known
        .and_then(|known| known.needs.steps)
        .unwrap_or(USUAL_STEPS)
}

/// The settings that suit the model, for a request that names none.
pub fn defaults(model: &str) -> Defaults {
    let known = IMAGES.get(model).map(|known| &known.needs);
    known.map_or_else(Defaults::default, ModelNeeds::defaults)
}

/// Mismatches of a request with one of its models.
pub fn warnings(
    models: &[String],
    params: &ModelGenerationInputImage,
) -> Vec<RequestSingleWarning> {
    let known = models.iter().filter_map(|model| IMAGES.get(model));
    let mut warnings: Vec<RequestSingleWarning> = Vec::new();
    for warning in known.flat_map(|known| known.needs.warnings(params)) {
        if warnings.iter().all(|other| other.code != warning.code) {
            warnings.push(warning);
        }
    }
    warnings
}

fn read(text: &str) -> Result<HashMap<String, Known>, String> {
    let families: BTreeMap<Baseline, BTreeMap<String, ModelNeeds>> =
        toml::from_str(text).map_err(|error| error.to_string())?;
    let mut models = HashMap::new();
    for (family, entries) in families {
        for (name, needs) in entries {
            if !needs.is_possible() {
                return Err(format!("{name}: the minimum exceeds the maximum"));
            }
            let before = models.insert(name.clone(), Known { family, needs });
            if before.is_some() {
                return Err(format!("{name} is listed in two families"));
            }
        }
    }
    Ok(models)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{IMAGES, defaults, family, modest_steps, read, warnings};
    use crate::legacy::Body;
    use crate::legacy::image::baseline::Baseline;
    use crate::legacy::image::request::GenerationInputImage;
    use crate::legacy::requests::Warning;
    use crate::legacy::words::Word;

    #[test]
    fn every_family_has_models_and_an_unknown_name_says_what_it_can() {
        for expected in Baseline::ALL {
            assert!(IMAGES.values().any(|known| known.family == *expected));
        }
        let check = |model, expected| assert_eq!(family(model), expected, "{model}");
        check("Juggernaut XL", Baseline::Sdxl);
        check("stable_diffusion_2.1", Baseline::Sd2);
        check("mine [Flux]", Baseline::Flux);
        check("juggernaut xl", Baseline::Sd15);
    }

    #[test]
    fn modest_steps_are_halfway_to_the_most() {
        let check = |model, expected| assert_eq!(modest_steps(model), expected, "{model}");
        check("Deliberate", 30);
        check("Z-Image-Turbo", 8);
        check("Flux.1-Schnell fp8 (Compact)", 5);
        // Names of users do not change the steps.
        check("somebody's lightning", 30);
        check("somebody's", 30);
    }

    #[test]
    fn defaults_are_what_a_model_is_made_for() {
        let check = |model, steps, cfg_scale, karras| {
            let found = defaults(model);
            assert_eq!(
                (found.steps, found.cfg_scale, found.karras),
                (steps, cfg_scale, karras),
                "{model}"
            );
        };
        check("Deliberate", 30, 5.0, true);
        check("somebody's", 30, 5.0, true);
        check("Flux.1-Schnell fp8 (Compact)", 8, 1.0, false);
    }

    #[test]
    fn what_does_not_suit_a_model_is_said_once_by_its_code() {
        let check = |models: &[&str], params: serde_json::Value, expected: &[Warning]| {
            let body = json!({"prompt": "p", "models": models, "params": params});
            let asked = GenerationInputImage::read(body).unwrap();
            let codes: Vec<_> = warnings(&asked.models, &asked.params)
                .iter()
                .map(|it| it.code)
                .collect();
            assert_eq!(codes, expected, "{models:?} {params}");
        };
        check(&["Deliberate", "nobody's"], json!({"steps": 500}), &[]);
        let both = ["Pony Diffusion XL", "MeinaMix"];
        check(&both, json!({}), &[Warning::ClipSkipMismatch]);
        check(&both, json!({"clip_skip": 2}), &[]);
        let dreams = ["DreamShaper XL"];
        let quick = json!({"steps": 3, "cfg_scale": 0.5, "sampler_name": "k_dpmpp_sde"});
        check(
            &dreams,
            quick,
            &[Warning::StepsTooFew, Warning::CfgScaleTooSmall],
        );
        check(
            &dreams,
            json!({"steps": 30, "cfg_scale": 7}),
            &[
                Warning::StepsTooMany,
                Warning::CfgScaleTooLarge,
                Warning::SamplerMismatch,
            ],
        );
        check(
            &["Flux.1-Schnell fp8 (Compact)"],
            json!({"steps": 4, "cfg_scale": 2, "sampler_name": "k_euler"}),
            &[Warning::CfgScaleMismatch, Warning::SchedulerMismatch],
        );
        let schedule = |word: &str| json!({"steps": 4, "cfg_scale": 1, "sampler_name": "k_euler", "scheduler": word});
        let flux = ["Flux.1-Schnell fp8 (Compact)"];
        check(&flux, schedule("simple"), &[]);
        check(&flux, schedule("normal"), &[]);
        check(&flux, schedule("beta"), &[Warning::SchedulerMismatch]);
    }

    #[test]
    fn a_wrong_entry_is_refused_with_what_is_wrong() {
        let check = |text: &str, part: &str| {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        check("[sd9]\n\"a\" = {}", "sd9");
        check("[sd15]\n\"a\" = { samplers = [\"x\"] }", "`x`");
        check("[sd15]\n\"a\" = { scheduler = \"x\" }", "`x`");
        check(
            "[sd15]\n\"a\" = { steps = [4, 2] }",
            "a: the minimum exceeds",
        );
        check("[sd15]\n\"a\" = {}\n[sdxl]\n\"a\" = {}", "two families");
        check("[sd15]\n\"a\" = { size = 1 }", "size");
    }
}
