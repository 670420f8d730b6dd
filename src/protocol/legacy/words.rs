//! The closed lists of words that more than one schema names.

use crate::protocol::job::{Hidden, Kind};
use crate::protocol::openai::nearest::shortened;

use super::error::{Code, Refusal};
use super::tables::words;

/// One of a closed list, by its spelling.
pub trait Word: Copy + 'static {
    const ALL: &'static [Self];

    fn word(self) -> &'static str;
}

pub fn named<W: Word>(name: &str) -> Option<W> {
    W::ALL.iter().copied().find(|word| word.word() == name)
}

/// The word of a query, or the one that stands for none. `name` is the parameter's.
pub fn asked<W: Word>(name: &str, found: Option<&str>, default: W) -> Result<W, Refusal> {
    // Some clients send every parameter there is, empty where they mean nothing by it.
    let Some(found) = found.filter(|found| !found.is_empty()) else {
        return Ok(default);
    };
    named(found).ok_or_else(|| {
        let words: Vec<_> = W::ALL.iter().map(|word| word.word()).collect();
        let (found, words) = (shortened(found), words.join(", "));
        Refusal::new(
            Code::BadRequest,
            format!("found {name} {found:?}, wanted one of {words}"),
        )
    })
}

words! {
    /// How an image is denoised.
    pub enum Sampler {
        Ddim = "DDIM",
        DpmSolver = "dpmsolver",
        Dpm2 = "k_dpm_2",
        Dpm2Ancestral = "k_dpm_2_a",
        DpmAdaptive = "k_dpm_adaptive",
        DpmFast = "k_dpm_fast",
        Dpmpp2m = "k_dpmpp_2m",
        Dpmpp2sAncestral = "k_dpmpp_2s_a",
        DpmppSde = "k_dpmpp_sde",
        Euler = "k_euler",
        EulerAncestral = "k_euler_a",
        Heun = "k_heun",
        Lms = "k_lms",
        Lcm = "lcm",
    }

    /// What happens to an image once it is made, and what an interrogation may do to one that was sent.
    pub enum PostProcessor {
        Gfpgan = "GFPGAN",
        RealEsrganX4 = "RealESRGAN_x4plus",
        RealEsrganX2 = "RealESRGAN_x2plus",
        RealEsrganX4Anime = "RealESRGAN_x4plus_anime_6B",
        NmkdSiax = "NMKD_Siax",
        AnimeSharp = "4x_AnimeSharp",
        CodeFormers = "CodeFormers",
        StripBackground = "strip_background",
        Nomos8kSc = "4xNomos8kSC",
        LsdirPlus = "4xLSDIRplus",
        NomosWebPhoto = "4xNomosWebPhoto_RealPLKSR",
        Nomos2RealPlksr = "4xNomos2_realplksr_dysample",
        Nomos2HqDat2 = "4xNomos2_hq_dat2",
        ModernSpanimation = "2xModernSpanimationV1",
        Gfpgan13 = "GFPGANv1.3",
        RestoreFormer = "RestoreFormer",
    }

    pub enum ControlType {
        Canny = "canny",
        Hed = "hed",
        Depth = "depth",
        Normal = "normal",
        Openpose = "openpose",
        Seg = "seg",
        Scribble = "scribble",
        FakeScribbles = "fakescribbles",
        Hough = "hough",
    }

    /// What a source image is used for.
    pub enum SourceProcessing {
        Img2Img = "img2img",
        Inpainting = "inpainting",
        Outpainting = "outpainting",
        Remix = "remix",
    }

    pub enum Workflow {
        QrCode = "qr_code",
    }

    /// What a worker says about a result it sends.
    pub enum SubmitState {
        Ok = "ok",
        Censored = "censored",
        Faulted = "faulted",
        Csam = "csam",
    }

    /// What a client reads about a result it gets.
    pub enum ResultState {
        Ok = "ok",
        Censored = "censored",
        Csam = "csam",
    }

    /// What a style or a model makes.
    pub enum Making {
        Image = "image",
        Text = "text",
    }

    /// What a worker does.
    pub enum Trade {
        Image = "image",
        Text = "text",
        Interrogation = "interrogation",
    }
}

impl Trade {
    /// Of a worker that makes this, where the poll API has such workers.
    pub fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Text => Some(Self::Text),
            Kind::Image => Some(Self::Image),
            Kind::Interrogation => Some(Self::Interrogation),
            Kind::Video | Kind::Audio | Kind::Mesh => None,
        }
    }
}

impl PostProcessor {
    /// Makes the image larger; a request may name one.
    pub fn is_upscaler(self) -> bool {
        !matches!(
            self,
            Self::Gfpgan
                | Self::CodeFormers
                | Self::StripBackground
                | Self::Gfpgan13
                | Self::RestoreFormer
        )
    }

    /// Takes so much memory that fewer images fit into one batch.
    pub fn is_heavy(self) -> bool {
        matches!(
            self,
            Self::RealEsrganX4
                | Self::RealEsrganX4Anime
                | Self::NmkdSiax
                | Self::AnimeSharp
                | Self::CodeFormers
                | Self::Nomos8kSc
                | Self::LsdirPlus
                | Self::Nomos2HqDat2
                | Self::RestoreFormer
        )
    }
}

impl ResultState {
    pub fn of(hidden: Option<Hidden>) -> Self {
        match hidden {
            None => Self::Ok,
            Some(Hidden::Censored) => Self::Censored,
            Some(Hidden::Unlawful) => Self::Csam,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Making, asked};
    use crate::protocol::legacy::Code;

    #[test]
    fn a_query_names_a_word_of_the_list_or_none() {
        assert_eq!(asked("type", None, Making::Image), Ok(Making::Image));
        assert_eq!(asked("type", Some("text"), Making::Image), Ok(Making::Text));
        let refusal = asked("type", Some("sound"), Making::Image).unwrap_err();
        assert_eq!(refusal.code(), Some(Code::BadRequest));
        assert_eq!(
            refusal.to_string(),
            r#"found type "sound", wanted one of image, text"#
        );
    }
}
