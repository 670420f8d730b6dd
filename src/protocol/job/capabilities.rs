//! Optional capabilities of workers, as a set that compares in one instruction.

use std::fmt;

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capabilities(u128);

impl Capabilities {
    /// Reads images in the prompt.
    pub const IMAGE_INPUT: Self = Self(1);
    pub const VIDEO_INPUT: Self = Self(2);
    /// Takes tools and gives back calls of them.
    pub const TOOLS: Self = Self(4);
    /// Can be made to call a tool, or to keep to a schema.
    pub const GRAMMAR: Self = Self(8);
    pub const LOGPROBS: Self = Self(16);
    /// Continues from tokens that another worker sampled.
    pub const CONTINUE: Self = Self(32);
    /// Takes frames of more than 1 MiB.
    pub const LARGE_FRAMES: Self = Self(64);
    /// The software supports every model that the worker names.
    pub const ITS_MODELS: Self = Self(1 << 7);

    // Permissions by owners of image workers.
    pub const SOURCE_IMAGES: Self = Self(1 << 8);
    pub const PAINTING: Self = Self(1 << 9);
    pub const POST_PROCESSING: Self = Self(1 << 10);
    pub const LORAS: Self = Self(1 << 11);
    pub const CONTROL: Self = Self(1 << 12);
    /// Control maps and layers for the second family of models.
    pub const LARGE_CONTROL: Self = Self(1 << 13);
    /// Serves NSFW requests.
    pub const NSFW: Self = Self(1 << 14);
    /// Requests from addresses that hide who asks.
    pub const HIDDEN_ADDRESSES: Self = Self(1 << 15);

    /// All of these: a worker's owner says yes or no to each.
    pub const ALLOWANCES: Self = Self(0xff << 8).with(Self::MORE_CONTROL);

    // Features of image worker software.
    pub const UPLOADS: Self = Self(1 << 16);
    pub const TILING: Self = Self(1 << 17);
    pub const CONTROL_NETS: Self = Self(1 << 18);
    pub const CONTROL_MAPS: Self = Self(1 << 19);
    pub const QR_CODES: Self = Self(1 << 20);
    pub const TWO_PASSES: Self = Self(1 << 21);
    pub const CLIP_SKIP: Self = Self(1 << 22);
    pub const LORA_VERSIONS: Self = Self(1 << 23);
    pub const INVERSIONS: Self = Self(1 << 24);
    pub const LAYERS: Self = Self(1 << 25);
    pub const CONSISTENCY_SAMPLER: Self = Self(1 << 26);
    pub const KARRAS_DDIM: Self = Self(1 << 27);
    pub const MORE_SOURCES: Self = Self(1 << 28);
    pub const CASCADE_PASSES: Self = Self(1 << 29);
    /// Models that are made for painting, and others.
    pub const PAINTING_MODELS: Self = Self(1 << 30);
    pub const PLAIN_MODELS: Self = Self(1 << 31);

    /// Replies at once: on a socket, or polling all the time.
    pub const INTERACTIVE: Self = Self(1 << 56);
    /// Keeps to `min_tokens`, `ignore_eos` and `stop_token_ids`.
    pub const STOP_RULES: Self = Self(1 << 57);

    /// Reports log probabilities of the prompt's tokens.
    pub const PROMPT_LOGPROBS: Self = Self(1 << 66);
    /// Encodes sound as MP3.
    pub const MP3: Self = Self(1 << 67);
    /// Searches for a transcript with several beams.
    pub const BEAM_SEARCH: Self = Self(1 << 68);
    /// Says when each word of a speech sounds.
    pub const WORD_TIMES: Self = Self(1 << 69);
    /// Reports log probabilities of the tokens of transcripts.
    pub const TRANSCRIPT_LOGPROBS: Self = Self(1 << 70);
    /// Finds the language of a sound among those that the request names.
    pub const NAMED_LANGUAGES: Self = Self(1 << 71);

    /// The kinds of control maps that came later, which owners allow apart.
    pub const MORE_CONTROL: Self = Self(1 << 59);
    /// How strongly a control map counts.
    pub const CONTROL_STRENGTH: Self = Self(1 << 60);
    /// The samplers, schedules, settings of solvers and kinds of control maps that came later.
    pub const NEWER_DRAWING: Self = Self(1 << 61);

    const FIRST_PROCESSOR: u32 = 36;
    const LAST_PROCESSOR: u32 = 52;

    /// Takes a source image for a control map.
    pub const READY_MAPS: Self = Self(1 << 62);
    pub const KARRAS: Self = Self(1 << 63);

    /// Software validated to return the model's output unchanged.
    pub const VALIDATED: Self = Self(1 << 32);
    /// The measured speed is high for the worker's models.
    pub const FAST: Self = Self(1 << 33);

    /// Fast enough for requests without `slow_workers`.
    pub const TIMELY: Self = Self(1 << 34);
    /// Accepts more steps than usual for a model.
    pub const MANY_STEPS: Self = Self(1 << 35);

    /// The capabilities of a model, where the others are those of a worker.
    pub const OF_MODELS: Self = Self::TOOLS.with(Self::IMAGE_INPUT);

    const NAMES: [(Self, &'static str); 49] = [
        (Self::IMAGE_INPUT, "image input"),
        (Self::VIDEO_INPUT, "video input"),
        (Self::TOOLS, "tools"),
        (Self::GRAMMAR, "grammars"),
        (Self::LOGPROBS, "log probabilities"),
        (Self::CONTINUE, "stream continuation"),
        (Self::LARGE_FRAMES, "requests above 1 MiB"),
        (
            Self::ITS_MODELS,
            "a software version that supports the model",
        ),
        (Self::SOURCE_IMAGES, "source images"),
        (Self::PAINTING, "inpainting"),
        (Self::POST_PROCESSING, "post-processing"),
        (Self::LORAS, "LoRAs"),
        (Self::CONTROL, "control maps"),
        (Self::LARGE_CONTROL, "control maps for SDXL models"),
        (Self::NSFW, "NSFW requests"),
        (
            Self::HIDDEN_ADDRESSES,
            "requests from VPN or proxy addresses",
        ),
        (Self::UPLOADS, "uploads"),
        (Self::TILING, "tiling"),
        (Self::CONTROL_NETS, "ControlNet"),
        (Self::CONTROL_MAPS, "returning control maps"),
        (Self::QR_CODES, "QR codes"),
        (Self::TWO_PASSES, "hires_fix"),
        (Self::CLIP_SKIP, "clip_skip"),
        (Self::LORA_VERSIONS, "LoRA versions"),
        (Self::INVERSIONS, "textual inversions"),
        (Self::LAYERS, "transparent images"),
        (Self::CONSISTENCY_SAMPLER, "sampler lcm"),
        (Self::KARRAS_DDIM, "sampler DDIM with karras"),
        (Self::MORE_SOURCES, "several source images"),
        (Self::CASCADE_PASSES, "hires_fix with Stable Cascade"),
        (Self::PAINTING_MODELS, "inpainting models"),
        (Self::PLAIN_MODELS, "models not made for inpainting"),
        (Self::VALIDATED, "validated software"),
        (Self::FAST, "high speed"),
        (Self::TIMELY, "normal speed"),
        (Self::MANY_STEPS, "a high step count"),
        (Self::INTERACTIVE, "interactive replies"),
        (Self::STOP_RULES, "min_tokens, ignore_eos or stop_token_ids"),
        (Self::PROMPT_LOGPROBS, "log probabilities of prompts"),
        (Self::MP3, "sound as mp3"),
        (Self::BEAM_SEARCH, "beam_size"),
        (Self::WORD_TIMES, "times of spoken words"),
        (
            Self::TRANSCRIPT_LOGPROBS,
            "log probabilities of transcripts",
        ),
        (Self::NAMED_LANGUAGES, "several languages"),
        (Self::MORE_CONTROL, "newer control types"),
        (Self::CONTROL_STRENGTH, "control strength"),
        (Self::NEWER_DRAWING, "newer samplers and settings"),
        (Self::READY_MAPS, "image_is_control"),
        (Self::KARRAS, "scheduler karras"),
    ];

    /// The post-processor of this number.
    #[must_use]
    pub const fn processor(number: u32) -> Self {
        let bit = Self::FIRST_PROCESSOR + number;
        match bit <= Self::LAST_PROCESSOR {
            true => Self(1 << bit),
            false => Self(1 << Self::LAST_PROCESSOR),
        }
    }

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// With it, if it is so.
    #[must_use]
    pub const fn with_if(self, is_so: bool, other: Self) -> Self {
        match is_so {
            true => self.with(other),
            false => self,
        }
    }

    pub const fn contains(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

    /// Capabilities of `self` that are not in `offered`.
    #[must_use]
    pub const fn missing_from(self, offered: Self) -> Self {
        Self(self.0 & !offered.0)
    }

    /// The intersection of both sets.
    #[must_use]
    pub const fn of(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Each member as a set of one.
    pub fn each(self) -> impl Iterator<Item = Self> {
        let bits = (0..u128::BITS).map(|bit| Self(1 << bit));
        bits.filter(move |one| self.contains(*one))
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.each().map(|one| {
            let named = Self::NAMES.into_iter().find(|(known, _)| *known == one);
            named.map_or("a post-processor", |(_, name)| name)
        })
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Capabilities;

    #[test]
    fn a_set_names_what_another_lacks() {
        let wanted = Capabilities::TOOLS.with(Capabilities::LOGPROBS);
        let missing = wanted.missing_from(Capabilities::TOOLS);
        assert_eq!(missing.names().collect::<Vec<_>>(), ["log probabilities"]);
        assert!(wanted.contains(Capabilities::TOOLS));
        assert!(!Capabilities::TOOLS.contains(wanted));
    }

    #[test]
    fn every_capability_has_a_bit_and_a_name_of_its_own() {
        let mut all = Capabilities::default();
        for (one, _) in Capabilities::NAMES {
            assert_eq!(one.each().count(), 1);
            assert!(!all.contains(one));
            all = all.with(one);
        }
        for number in 0..16 {
            let one = Capabilities::processor(number);
            assert!(!all.contains(one));
            all = all.with(one);
        }
    }
}
