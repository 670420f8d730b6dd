//! Features of worker software by name and version, which is all that workers send.

use super::words::{PostProcessor, Sampler, Word};

/// Features by the major version that introduced them. A worker has those of all versions up to its own.
type Features = &'static [(u64, &'static [&'static str])];

const REGEN: &str = "AI Horde Worker reGen";
const CLASSIC: &str = "AI Horde Worker";
/// A worker of ours.
pub const MUSTER: &str = "Muster";

/// The samplers, schedules, settings of solvers and kinds of control maps that came together.
pub const NEWER_DRAWING: &str = "newer_drawing";

/// The two workers that most run, and the versions from which on they count as new. Later ones know more, and count
/// for no more.
const CURRENT: [(&str, u64); 2] = [(REGEN, 13), (CLASSIC, 24)];

#[rustfmt::skip]
const AGENTS: [(&str, Features); 5] = [
    (REGEN, &[
        (1, &[
            "img2img", "inpainting", "karras", "post-processing", "r2", "r2_source", "clip_skip", "controlnet",
            "image_is_control", "return_control_map", "hires_fix", "tiling", "GFPGAN", "CodeFormers",
            "strip_background", "RealESRGAN_x4plus", "RealESRGAN_x2plus", "RealESRGAN_x4plus_anime_6B", "NMKD_Siax",
            "4x_AnimeSharp",
        ]),
        (2, &["lora", "textual_inversion"]),
        (3, &["lora_versions"]),
        (5, &["extra_source_images"]),
        (6, &["stable_cascade_2pass"]),
        (7, &["qr_code", "extra_texts", "workflow"]),
        (8, &["layer_diffuse"]),
        (9, &["flux"]),
        (13, &[
            "4xNomos8kSC", "4xLSDIRplus", "4xNomosWebPhoto_RealPLKSR", "4xNomos2_realplksr_dysample",
            "4xNomos2_hq_dat2", "2xModernSpanimationV1", "GFPGANv1.3", "RestoreFormer",
        ]),
        (17, &[NEWER_DRAWING]),
        (18, &["control_strength"]),
    ]),
    (CLASSIC, &[
        (3, &["img2img"]),
        (4, &["inpainting"]),
        (6, &["karras"]),
        (7, &["post-processing", "GFPGAN", "RealESRGAN_x4plus"]),
        (8, &["r2"]),
        (9, &["CodeFormers"]),
        (13, &["hires_fix", "clip_skip"]),
        (14, &["r2_source"]),
        (15, &["controlnet"]),
        (18, &["strip_background", "return_control_map", "RealESRGAN_x4plus_anime_6B"]),
        (19, &["NMKD_Siax", "4x_AnimeSharp"]),
        (21, &["RealESRGAN_x2plus"]),
        (22, &["lora"]),
        (23, &["image_is_control"]),
        (24, &["textual_inversion"]),
    ]),
    ("SD-WebUI Stable Horde Worker Bridge", &[
        (1, &["inpainting", "karras", "r2", "CodeFormers"]),
        (2, &["tiling"]),
        (3, &["r2_source"]),
        (4, &["clip_skip"]),
    ]),
    (MUSTER, &[
        (0, &[
            "img2img", "inpainting", "karras", "r2", "r2_source", "clip_skip", "tiling", "hires_fix", "lora",
            "textual_inversion",
        ]),
    ]),
    ("HordeAutoWebBridge", &[
        (1, &["painting", "img2img", "karras"]),
        (2, &["tiling"]),
    ]),
];

/// Text workers validated to return the model's output unchanged.
const VALIDATED: [&str; 5] = [
    "AI Horde Worker",
    "AI Horde Worker~aphrodite~oai",
    "AI Horde Worker~aphrodite~kai",
    "KoboldCppEmbedWorker",
    "TabbyAPI",
];

/// Whether who says that it is `name:version:url` is this program: `name`, or `name:version`.
pub fn is_program(agent: &str, program: &str) -> bool {
    let mut said = agent.split(':');
    let mut wanted = program.split(':');
    wanted.all(|part| {
        said.next()
            .is_some_and(|said| said.trim().eq_ignore_ascii_case(part.trim()))
    })
}

/// `name:version:url`, as far as it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeAgent {
    pub name: String,
    pub version: (u64, u64, u64),
}

impl BridgeAgent {
    /// Never fails: an unreadable agent is unknown and has version 0.
    pub fn parse(agent: &str) -> Self {
        let mut parts = agent.splitn(3, ':');
        let read = match (parts.next(), parts.next(), parts.next()) {
            (Some(name), Some(version), Some(_)) => {
                version_of(version).map(|version| (name, version))
            }
            _ => None,
        };
        let (name, version) = read.unwrap_or(("unknown", (0, 0, 0)));
        Self {
            name: name.to_owned(),
            version,
        }
    }

    /// Whether it has a feature of the table, by its name there.
    pub fn can(&self, feature: &str) -> bool {
        let features = AGENTS.iter().find(|(name, _)| *name == self.name);
        let mut rows = features.iter().flat_map(|(_, features)| features.iter());
        rows.any(|(since, names)| *since <= self.version.0 && names.contains(&feature))
    }

    pub fn can_process(&self, processor: PostProcessor) -> bool {
        self.can(processor.word())
    }

    /// Older and unknown software is taken for the classic worker, which knows all classic samplers but one, and one
    /// of them without the karras schedule only.
    pub fn can_sample(&self, sampler: Sampler, karras: bool) -> bool {
        if karras && !self.knows_karras() {
            return false;
        }
        let newest = self.name == REGEN && self.version.0 >= 3;
        match sampler {
            Sampler::Lcm => newest,
            Sampler::Ddim => !karras || (self.name == REGEN && self.version.0 >= 2),
            newer if newer.is_newer() => self.can(NEWER_DRAWING),
            _ => true,
        }
    }

    /// True for recent versions of the classic worker, and for unlisted software.
    pub fn knows_karras(&self) -> bool {
        let is_listed = AGENTS.iter().any(|(name, _)| *name == self.name);
        !is_listed || self.can("karras")
    }

    /// Whether it is one of the two workers that most run, and if so, whether it is new.
    pub fn is_current(&self) -> Option<bool> {
        let usual = CURRENT.iter().find(|(name, _)| *name == self.name);
        usual.map(|(_, since)| self.version.0 >= *since)
    }

    /// Whether a text request for validated backends may go there.
    pub fn is_validated(&self) -> bool {
        VALIDATED.contains(&self.name.as_str())
    }
}

/// Parses `major[.minor[.patch]]`, ignoring a suffix.
fn version_of(version: &str) -> Option<(u64, u64, u64)> {
    let numbers = version.split(['-', '+']).next()?;
    let mut parts =
        numbers.split('.').map(
            |part| match part.bytes().all(|byte| byte.is_ascii_digit()) {
                true => part.parse().ok(),
                false => None,
            },
        );
    let major = parts.next()??;
    let minor = parts.next().unwrap_or(Some(0))?;
    let patch = parts.next().unwrap_or(Some(0))?;
    match parts.next() {
        None => Some((major, minor, patch)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{BridgeAgent, is_program};
    use crate::legacy::words::{PostProcessor, Sampler};

    fn agent(agent: &str) -> BridgeAgent {
        BridgeAgent::parse(agent)
    }

    #[test]
    fn a_program_is_named_with_its_version_or_without() {
        let agent = "Painter:1.2:https://example.org:8080";
        for program in ["Painter", "painter", "Painter:1.2", " painter : 1.2 "] {
            assert!(is_program(agent, program), "{program}");
        }
        for other in ["", "Paint", "Painter:1", "Painter:1.2.0", "unknown"] {
            assert!(!is_program(agent, other), "{other}");
        }
    }

    #[test]
    fn an_agent_is_a_name_a_version_and_an_address() {
        let check = |text, name: &str, version| {
            let expected = BridgeAgent {
                name: name.to_owned(),
                version,
            };
            assert_eq!(agent(text), expected, "{text}");
        };
        check(
            "AI Horde Worker reGen:9.0.2:https://example.org",
            "AI Horde Worker reGen",
            (9, 0, 2),
        );
        check("TabbyAPI:1:x", "TabbyAPI", (1, 0, 0));
        check("TabbyAPI:1.2-rc.1+b:x", "TabbyAPI", (1, 2, 0));
        for unreadable in [
            "",
            "unknown",
            "a:b",
            "a:1",
            "a::x",
            "a:one:x",
            "a:1.x:y",
            "a:1.2.3.4:y",
            "a:-1:x",
            "a:99999999999999999999:x",
        ] {
            check(unreadable, "unknown", (0, 0, 0));
        }
        check("unknown:0:unknown", "unknown", (0, 0, 0));
    }

    #[test]
    fn features_add_up_with_the_version() {
        let check = |text: &str, feature: &str, expected: bool| {
            assert_eq!(
                agent(&format!("{text}:x")).can(feature),
                expected,
                "{text} {feature}"
            );
        };
        check("AI Horde Worker reGen:1", "r2", true);
        check("AI Horde Worker reGen:1", "lora", false);
        check("AI Horde Worker reGen:2.9", "lora", true);
        check("AI Horde Worker reGen:13", "RestoreFormer", true);
        check("AI Horde Worker:7", "r2", false);
        check("AI Horde Worker:24", "r2", true);
        check("AI Horde Worker:24", "tiling", false);
        check("HordeAutoWebBridge:2", "tiling", true);
        check("unknown:0", "r2", false);
        assert!(agent("AI Horde Worker:9:x").can_process(PostProcessor::CodeFormers));
    }

    #[test]
    fn samplers_depend_on_the_software_too() {
        let check = |text, sampler, karras, expected: bool| {
            assert_eq!(
                agent(text).can_sample(sampler, karras),
                expected,
                "{text} {sampler:?}"
            );
        };
        check("AI Horde Worker reGen:2:x", Sampler::Lcm, false, false);
        check("AI Horde Worker reGen:3:x", Sampler::Lcm, true, true);
        check("AI Horde Worker reGen:3:x", Sampler::Ddim, true, true);
        check("unknown:0:unknown", Sampler::Lcm, false, false);
        check("unknown:0:unknown", Sampler::Ddim, false, true);
        check("unknown:0:unknown", Sampler::Ddim, true, false);
        check("unknown:0:unknown", Sampler::Euler, true, true);
        check("AI Horde Worker:5:x", Sampler::Euler, true, false);
        check("AI Horde Worker:5:x", Sampler::Euler, false, true);
        check("AI Horde Worker:6:x", Sampler::Euler, true, true);
        check("HordeAutoWebBridge:0:x", Sampler::Euler, true, false);
        check("AI Horde Worker reGen:16:x", Sampler::UniPc, true, false);
        check("AI Horde Worker reGen:17:x", Sampler::UniPc, true, true);
        check("AI Horde Worker reGen:17:x", Sampler::UniPc, false, true);
        check("AI Horde Worker:24:x", Sampler::UniPc, true, false);
        check("unknown:0:unknown", Sampler::UniPc, false, false);
    }

    #[test]
    fn software_is_new_from_a_version_on_whatever_later_ones_know() {
        let check = |text: &str, expected| assert_eq!(agent(text).is_current(), expected, "{text}");
        check("AI Horde Worker reGen:12:x", Some(false));
        check("AI Horde Worker reGen:13:x", Some(true));
        check("AI Horde Worker reGen:18:x", Some(true));
        check("AI Horde Worker:23:x", Some(false));
        check("AI Horde Worker:24:x", Some(true));
        check("HordeAutoWebBridge:2:x", None);
    }

    #[test]
    fn some_text_workers_are_validated() {
        assert!(agent("KoboldCppEmbedWorker:1:x").is_validated());
        assert!(!agent("somebody:1:x").is_validated());
    }
}
