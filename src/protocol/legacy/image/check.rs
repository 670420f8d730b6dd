//! Checks between the parameters of an image request. Each refuses with the code that clients know, in the order of the
//! public service, so that several errors give the same code.

use crate::legacy::error::{Code, Refusal};
use crate::legacy::words::{self, ControlType, PostProcessor, SourceProcessing, Word, Workflow};

use super::baseline::Baseline;
use super::params::{ModelGenerationInputImage, ModelPayloadLorasImage};
use super::request::GenerationInputImage;

/// Models that only change an image they are given.
const NEED_SOURCE: [&str; 2] = ["Stable Diffusion 2 Depth", "pix2pix"];
const PIX2PIX: &str = "pix2pix";
/// Models reserved for one user: `horde_special::name#id`.
const SPECIAL: &str = "horde_special";
/// Longest prompt in bytes.
pub const LONGEST_PROMPT: usize = 64 << 10;

/// Facts for the checks that the request itself does not contain.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The family of each model.
    pub baseline: &'a dyn Fn(&str) -> Baseline,
    pub asker: Asker<'a>,
}

/// Properties of the caller that count.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// `name#id`
    pub alias: &'a str,
    pub special: bool,
    /// Trusted, or a patron.
    pub trusted: bool,
}

impl GenerationInputImage {
    /// Everything that can be said no to without looking at the queue, the kudos or the images themselves.
    pub fn check(&self, known: Known) -> Result<(), Refusal> {
        self.check_number_of_sources(known.asker)?;
        self.check_batch(known.asker)?;
        self.params.check_families(&self.models, known)?;
        self.check_prompt()?;
        self.params.check_numbers()?;
        self.check_special(known.asker)?;
        self.check_sources()?;
        self.check_control(known)?;
        self.check_transparency()?;
        self.check_extras(known)?;
        self.check_needed_source()
    }

    /// Several are for trusted users.
    pub fn check_number_of_sources(&self, asker: Asker) -> Result<(), Refusal> {
        let extra = self.extra_source_images().len();
        Code::TooManyExtraSourceImages.when(extra > 5)?;
        Code::MoreThanMinExtraSourceImage.when(extra > 1 && !asker.trusted)
    }

    /// Options for trusted users only.
    pub fn check_batch(&self, asker: Asker) -> Result<(), Refusal> {
        let alone = self.disable_batching && self.params.n > 1;
        Code::RequiresTrust.when(alone && !asker.trusted)
    }

    /// A style or a filter may have left nothing of it.
    fn check_prompt(&self) -> Result<(), Refusal> {
        const MOST_WORDS: usize = 7500;
        Code::MissingPrompt.when(self.prompt.is_empty())?;
        let words = self.prompt.split_whitespace().take(MOST_WORDS + 1).count();
        let too_long = words > MOST_WORDS || self.prompt.len() > LONGEST_PROMPT;
        Code::InvalidPromptSize.when(too_long)?;
        check_names(&self.models)
    }

    fn check_special(&self, asker: Asker) -> Result<(), Refusal> {
        let special = |model: &&String| model.starts_with(SPECIAL);
        for model in self.models.iter().filter(special) {
            Code::SpecialModelNeedsSpecialUser.when(!asker.special)?;
            let alias = model.split_once("::").map(|(_, alias)| alias);
            let alias = alias.filter(|alias| !alias.is_empty());
            let alias = alias.ok_or(Code::SpecialMissingUsername)?;
            Code::SpecialForbidden.when(alias != asker.alias)?;
            Code::SpecialMissingPayload.when(self.params.special.is_none())?;
        }
        let field = self.params.special.is_some() && !asker.special;
        Code::SpecialFieldNeedsSpecialUser.when(field)
    }

    fn check_sources(&self) -> Result<(), Refusal> {
        let mask_alone = self.source_mask.is_some() && self.source_image.is_none();
        Code::SourceMaskUnnecessary.when(mask_alone)
    }

    fn check_control(&self, known: Known) -> Result<(), Refusal> {
        let Some(control) = self.params.control_type else {
            return Ok(());
        };
        let mut baselines = self.models.iter().map(|model| (known.baseline)(model));
        let missing_for_sd2 = matches!(control, ControlType::Normal | ControlType::Hough);
        let unsupported = self.models.iter().any(|model| model == PIX2PIX)
            || (missing_for_sd2 && baselines.clone().any(|one| one == Baseline::Sd2));
        Code::UnsupportedControlNet.when(unsupported)?;
        Code::ControlNetSourceMissing.when(self.source_image.is_none())?;
        let painting = self.source_processing == SourceProcessing::Inpainting;
        Code::ControlNetInpaintingMismatch.when(painting)?;
        Code::ControlNetMismatch.when(baselines.any(|one| !one.has_control()))
    }

    fn check_transparency(&self) -> Result<(), Refusal> {
        let transparent = self.params.transparent;
        let sources = !self.extra_source_images().is_empty();
        Code::InvalidTransparencyImg2Img.when(transparent && sources)?;
        let controlled = self.params.control_type.is_some();
        Code::InvalidTransparencyCN.when(transparent && controlled)
    }

    fn check_extras(&self, known: Known) -> Result<(), Refusal> {
        let remix = self.source_processing == SourceProcessing::Remix;
        let is_cascade = |model: &String| (known.baseline)(model) == Baseline::Cascade;
        Code::InvalidRemix.when(remix && !self.models.iter().all(is_cascade))?;
        let extra_images = !self.extra_source_images().is_empty();
        Code::InvalidExtraSourceImages.when(extra_images && !remix)?;
        let extra_texts = self.params.extra_texts();
        let qr_code = self.params.workflow == Some(Workflow::QrCode);
        Code::InvalidExtraTexts.when(!extra_texts.is_empty() && !qr_code)?;
        let says_what = extra_texts
            .iter()
            .any(|extra| extra.reference.as_deref() == Some(Workflow::QrCode.word()));
        Code::MissingExtraTexts.when(qr_code && !says_what)
    }

    fn check_needed_source(&self) -> Result<(), Refusal> {
        let needs = |model: &String| NEED_SOURCE.contains(&model.as_str());
        let missing = self.source_image.is_none() && self.models.iter().any(needs);
        Code::SourceImageRequiredForModel.when(missing)
    }
}

impl ModelGenerationInputImage {
    /// Checks common to requests and styles.
    pub fn check(&self, models: &[String], known: Known) -> Result<(), Refusal> {
        self.check_families(models, known)?;
        check_names(models)?;
        self.check_numbers()
    }

    fn check_families(&self, models: &[String], known: Known) -> Result<(), Refusal> {
        let any = |is: fn(Baseline) -> bool| models.iter().any(|model| is((known.baseline)(model)));
        Code::HiResMismatch.when(self.hires_fix && any(Baseline::is_large))?;
        self.check_networks()?;
        let unclassic = any(|baseline| !baseline.is_classic());
        Code::InvalidTransparencyModel.when(self.transparent && unclassic)?;
        let qr_code = self.workflow == Some(Workflow::QrCode);
        Code::QrCodeMismatch.when(qr_code && unclassic)?;
        let flows = !models.is_empty() && !any(|baseline| !baseline.has_shift());
        match self.flow_shift {
            Some(shift) if !flows => Err(not_shifted(shift)),
            _ => Ok(()),
        }
    }

    fn check_numbers(&self) -> Result<(), Refusal> {
        let upscalers = self
            .post_processing()
            .iter()
            .filter(|one| one.is_upscaler());
        Code::TooManyUpscalers.when(upscalers.count() > 1)?;
        Code::BadCFGDecimals.when(!has_two_decimals(self.cfg_scale))
    }

    fn check_networks(&self) -> Result<(), Refusal> {
        Code::TooManyLoras.when(self.loras().len() > 5)?;
        let number = |name: &str| name.bytes().all(|digit| digit.is_ascii_digit());
        let wrong = |lora: &ModelPayloadLorasImage| lora.is_version && !number(&lora.name);
        Code::BadLoraVersion.when(self.loras().iter().any(wrong))?;
        Code::TooManyTIs.when(self.tis().len() > 20)
    }
}

/// Refuses names of post-processors and control types as models, since some lists show them together.
pub fn check_names(models: &[String]) -> Result<(), Refusal> {
    let is_none = |model: &String| {
        words::named::<PostProcessor>(model).is_some()
            || words::named::<ControlType>(model).is_some()
    };
    Code::UnexpectedModelName.when(models.iter().any(is_none))
}

/// Refuses `shift` without a model or for a family without support of it.
fn not_shifted(shift: f64) -> Refusal {
    let flowing = Baseline::ALL.iter().filter(|baseline| baseline.has_shift());
    let flowing: Vec<_> = flowing.map(|baseline| baseline.word()).collect();
    let wanted = format!(
        "use models of the families {}, or remove it",
        flowing.join(", ")
    );
    let found = format!("not supported by these models, found {shift}: {wanted}");
    Refusal::unfit(Code::FlowShiftInapplicable, "params.flow_shift", found)
}

fn has_two_decimals(number: f64) -> bool {
    let hundredths = number * 100.0;
    (hundredths - hundredths.round()).abs() < 1e-6
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Asker, Known};
    use crate::legacy::image::baseline::Baseline;
    use crate::legacy::image::request::GenerationInputImage;
    use crate::legacy::{Body, Code, Refusal};

    fn refused(asked: Value) -> Option<Refusal> {
        let known = Known {
            baseline: &Baseline::of_unknown,
            asker: Asker {
                alias: "alice#1",
                special: false,
                trusted: false,
            },
        };
        GenerationInputImage::read(asked)
            .unwrap()
            .check(known)
            .err()
    }

    #[test]
    fn a_flow_is_shifted_of_the_families_whose_workers_can() {
        let shifted = |models: Value| {
            let params = json!({"flow_shift": 3});
            refused(json!({"prompt": "p", "models": models, "params": params}))
        };
        assert_eq!(shifted(json!(["a [Flux]", "a [Qwen]"])), None);
        for models in [
            json!(["a [Flux]", "plain"]),
            json!(["a [ZImage]"]),
            json!([]),
        ] {
            let why = "not supported by these models, found 3: use models of the families flux, qwen, or \
                       remove it";
            let expected = Refusal::unfit(Code::FlowShiftInapplicable, "params.flow_shift", why);
            assert_eq!(shifted(models), Some(expected));
        }
    }

    #[test]
    fn later_kinds_of_control_maps_need_what_all_need() {
        let check = |models: Value, more: Value, expected: Option<Code>| {
            let mut asked =
                json!({"prompt": "p", "models": models, "params": {"control_type": "tile"}});
            for (name, value) in more.as_object().unwrap() {
                asked[name] = value.clone();
            }
            let code = refused(asked.clone()).and_then(|refusal| refusal.code());
            assert_eq!(code, expected, "{asked}");
        };
        let image = || json!({"source_image": "x"});
        check(json!([]), image(), None);
        check(json!([]), json!({}), Some(Code::ControlNetSourceMissing));
        check(json!(["a [SDXL]"]), image(), Some(Code::ControlNetMismatch));
        check(
            json!(["pyracanny"]),
            image(),
            Some(Code::UnexpectedModelName),
        );
    }
}
