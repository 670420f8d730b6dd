//! The closed lists of words that more than one schema names.

use crate::job::{Hidden, Kind};
use crate::openai::nearest::shortened;

use super::error::{Code, Refusal};
use super::tables::words;

/// A member of a closed list, by its spelling.
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
            format!("{name} must be one of {words}, found {found:?}"),
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
        /// From here on newer: see [`Sampler::is_newer`].
        UniPc = "uni_pc",
        UniPcBh2 = "uni_pc_bh2",
        Dpmpp2mSde = "dpmpp_2m_sde",
        Dpmpp3mSde = "dpmpp_3m_sde",
        Ddpm = "ddpm",
        Deis = "deis",
        Ipndm = "ipndm",
        ResMultistep = "res_multistep",
        GradientEstimation = "gradient_estimation",
        Heunpp2 = "heunpp2",
        ErSde = "er_sde",
        SaSolver = "sa_solver",
        EulerCfgPp = "euler_cfg_pp",
        EulerAncestralCfgPp = "euler_ancestral_cfg_pp",
        ExpHeun2X0 = "exp_heun_2_x0",
        ExpHeun2X0Sde = "exp_heun_2_x0_sde",
        Dpmpp2sAncestralCfgPp = "dpmpp_2s_ancestral_cfg_pp",
        Dpmpp2mCfgPp = "dpmpp_2m_cfg_pp",
        Dpmpp2mSdeHeun = "dpmpp_2m_sde_heun",
        IpndmV = "ipndm_v",
        ResMultistepCfgPp = "res_multistep_cfg_pp",
        ResMultistepAncestral = "res_multistep_ancestral",
        ResMultistepAncestralCfgPp = "res_multistep_ancestral_cfg_pp",
        GradientEstimationCfgPp = "gradient_estimation_cfg_pp",
        Seeds2 = "seeds_2",
        Seeds3 = "seeds_3",
        SaSolverPece = "sa_solver_pece",
    }

    /// Post-processors of a generated image; most are interrogation forms, too.
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

    /// How the lines of a source image are kept to.
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
        /// From here on newer: see [`ControlType::is_newer`].
        Mlsd = "mlsd",
        Binary = "binary",
        StandardLineart = "standard_lineart",
        Lineart = "lineart",
        LineartAnime = "lineart_anime",
        LineartAnimeDenoise = "lineart_anime_denoise",
        Pidinet = "pidinet",
        ScribbleXdog = "scribble_xdog",
        ScribblePidinet = "scribble_pidinet",
        Teed = "teed",
        Pyracanny = "pyracanny",
        MidasDepth = "midas_depth",
        ZoeDepth = "zoe_depth",
        DepthAnything = "depth_anything",
        DepthAnythingV2 = "depth_anything_v2",
        NormalBae = "normal_bae",
        OneformerAde20k = "oneformer_ade20k",
        OneformerCoco = "oneformer_coco",
        Color = "color",
        Shuffle = "shuffle",
        RecolorLuminance = "recolor_luminance",
        RecolorIntensity = "recolor_intensity",
        Tile = "tile",
        TileTtplanetGuided = "tile_ttplanet_guided",
        TileTtplanetSimple = "tile_ttplanet_simple",
    }

    /// How the noise is spread over the steps.
    pub enum Scheduler {
        Normal = "normal",
        Karras = "karras",
        /// From here on newer: see [`Scheduler::is_newer`].
        Simple = "simple",
        SgmUniform = "sgm_uniform",
        Exponential = "exponential",
        DdimUniform = "ddim_uniform",
        Beta = "beta",
        LinearQuadratic = "linear_quadratic",
        KlOptimal = "kl_optimal",
        AlignYourSteps = "align_your_steps",
        Gits = "gits",
    }

    /// How a solver corrects its steps.
    pub enum SolverType {
        Midpoint = "midpoint",
        Heun = "heun",
        Phi1 = "phi_1",
        Phi2 = "phi_2",
    }

    /// The use of a source image.
    pub enum SourceProcessing {
        Img2Img = "img2img",
        Inpainting = "inpainting",
        Outpainting = "outpainting",
        Remix = "remix",
    }

    pub enum Workflow {
        QrCode = "qr_code",
    }

    /// The state of a submitted result.
    pub enum SubmitState {
        Ok = "ok",
        Censored = "censored",
        Faulted = "faulted",
        Csam = "csam",
    }

    /// The state of a result, for clients.
    pub enum ResultState {
        Ok = "ok",
        Censored = "censored",
        Csam = "csam",
    }

    /// The output kind of a style or model.
    pub enum Making {
        Image = "image",
        Text = "text",
    }

    /// The kind of a worker.
    pub enum Trade {
        Image = "image",
        Text = "text",
        Interrogation = "interrogation",
    }
}

impl Trade {
    /// The kind of worker for jobs of this kind, if the AI Horde API has one.
    pub fn of(kind: Kind) -> Option<Self> {
        match kind.listed_as() {
            Kind::Text => Some(Self::Text),
            Kind::Image => Some(Self::Image),
            Kind::Form => Some(Self::Interrogation),
            _ => None,
        }
    }
}

impl Sampler {
    /// Classic software takes it for another one.
    pub fn is_newer(self) -> bool {
        self > Self::Lcm
    }

    /// Workers of ours have it.
    pub fn is_neutral(self) -> bool {
        !self.is_newer() || matches!(self, Self::UniPc | Self::UniPcBh2)
    }
}

impl ControlType {
    /// Owners of workers say of these apart whether they draw by them.
    pub fn is_newer(self) -> bool {
        self > Self::Hough
    }

    /// Whether its map can be requested by itself, where `hough` is called `mlsd`.
    pub fn is_annotation(self) -> bool {
        self != Self::Hough
    }
}

impl Scheduler {
    /// The flag `karras` has no value for it.
    pub fn is_newer(self) -> bool {
        self > Self::Karras
    }

    /// Workers of ours have it.
    pub fn is_neutral(self) -> bool {
        !matches!(self, Self::AlignYourSteps | Self::Gits)
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

    /// Whether it takes so much memory that fewer images fit into a batch.
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
    use super::{ControlType, Making, Sampler, Scheduler, Word, asked};
    use crate::legacy::Code;

    #[test]
    fn words_are_newer_from_one_on() {
        let samplers = Sampler::ALL.iter().filter(|one| one.is_newer()).count();
        assert_eq!((Sampler::ALL.len(), samplers), (41, 27));
        let kinds = ControlType::ALL.iter().filter(|one| one.is_newer()).count();
        assert_eq!((ControlType::ALL.len(), kinds), (34, 25));
        let schedules = Scheduler::ALL.iter().filter(|one| one.is_newer()).count();
        assert_eq!((Scheduler::ALL.len(), schedules), (11, 9));
    }

    #[test]
    fn a_query_names_a_word_of_the_list_or_none() {
        assert_eq!(asked("type", None, Making::Image), Ok(Making::Image));
        assert_eq!(asked("type", Some("text"), Making::Image), Ok(Making::Text));
        let refusal = asked("type", Some("sound"), Making::Image).unwrap_err();
        assert_eq!(refusal.code(), Some(Code::BadRequest));
        assert_eq!(
            refusal.to_string(),
            r#"type must be one of image, text, found "sound""#
        );
    }
}
