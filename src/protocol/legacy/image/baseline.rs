//! Families of image models. [`super::reference`] knows models by name; this module derives the family from a name
//! alone.

use crate::legacy::tables::words;

words! {
    #[derive(Default)]
    pub enum Baseline {
        #[default]
        Sd15 = "sd15",
        Sd2 = "sd2",
        Sdxl = "sdxl",
        Cascade = "cascade",
        Flux = "flux",
        Qwen = "qwen",
        ZImage = "z_image",
    }
}

impl Baseline {
    /// The family of an unlisted model: by a mark in its name, else the oldest.
    pub fn of_unknown(model: &str) -> Self {
        const MARKS: [(&str, Baseline); 5] = [
            ("[SDXL]", Baseline::Sdxl),
            ("[Flux]", Baseline::Flux),
            ("[Qwen]", Baseline::Qwen),
            ("[ZModel]", Baseline::ZImage),
            ("[ZImage]", Baseline::ZImage),
        ];
        let mark = MARKS.into_iter().find(|(mark, _)| model.contains(mark));
        mark.map_or(Self::default(), |(_, baseline)| baseline)
    }

    /// So large that jobs take several times as long, and a second pass makes no sense.
    pub fn is_large(self) -> bool {
        matches!(self, Self::Flux | Self::Qwen | Self::ZImage)
    }

    /// Flow models whose shift workers support; for ZImage they do not.
    pub fn has_shift(self) -> bool {
        matches!(self, Self::Flux | Self::Qwen)
    }

    /// Layers and qr codes are made for these.
    pub fn is_classic(self) -> bool {
        matches!(self, Self::Sd15 | Self::Sdxl)
    }

    /// Control maps exist for these.
    pub fn has_control(self) -> bool {
        matches!(self, Self::Sd15 | Self::Sd2)
    }
}

#[cfg(test)]
mod tests {
    use super::Baseline;

    #[test]
    fn a_mark_in_an_unknown_name_says_its_family() {
        let check = |name, expected| assert_eq!(Baseline::of_unknown(name), expected);
        check("my model [SDXL] v2", Baseline::Sdxl);
        check("[ZModel]x", Baseline::ZImage);
        check("[ZImage]x", Baseline::ZImage);
        check("a [Flux] b", Baseline::Flux);
        check("a [Qwen]", Baseline::Qwen);
        check("a [sdxl]", Baseline::Sd15);
    }
}
