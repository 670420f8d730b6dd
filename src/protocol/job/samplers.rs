//! Names of samplers and noise schedules in image and video jobs: those of the AI Horde API. Socket media workers, and
//! many programs, use other names for the older samplers.

/// Each with its other name. `dpmsolver` is an old name of a later one.
#[rustfmt::skip]
const OLDER: [(&str, &str); 14] = [
    ("DDIM",           "ddim"),
    ("dpmsolver",      "dpmpp_2m"),
    ("k_dpm_2",        "dpm_2"),
    ("k_dpm_2_a",      "dpm_2_ancestral"),
    ("k_dpm_adaptive", "dpm_adaptive"),
    ("k_dpm_fast",     "dpm_fast"),
    ("k_dpmpp_2m",     "dpmpp_2m"),
    ("k_dpmpp_2s_a",   "dpmpp_2s_ancestral"),
    ("k_dpmpp_sde",    "dpmpp_sde"),
    ("k_euler",        "euler"),
    ("k_euler_a",      "euler_ancestral"),
    ("k_heun",         "heun"),
    ("k_lms",          "lms"),
    ("lcm",            "lcm"),
];

/// Not every worker has one of these.
const NEWER: [&str; 27] = [
    "uni_pc",
    "uni_pc_bh2",
    "dpmpp_2m_sde",
    "dpmpp_3m_sde",
    "ddpm",
    "deis",
    "ipndm",
    "res_multistep",
    "gradient_estimation",
    "heunpp2",
    "er_sde",
    "sa_solver",
    "euler_cfg_pp",
    "euler_ancestral_cfg_pp",
    "exp_heun_2_x0",
    "exp_heun_2_x0_sde",
    "dpmpp_2s_ancestral_cfg_pp",
    "dpmpp_2m_cfg_pp",
    "dpmpp_2m_sde_heun",
    "ipndm_v",
    "res_multistep_cfg_pp",
    "res_multistep_ancestral",
    "res_multistep_ancestral_cfg_pp",
    "gradient_estimation_cfg_pp",
    "seeds_2",
    "seeds_3",
    "sa_solver_pece",
];

pub const KARRAS: &str = "karras";
pub const NORMAL: &str = "normal";

pub const SCHEDULES: [&str; 11] = [
    NORMAL,
    KARRAS,
    "simple",
    "sgm_uniform",
    "exponential",
    "ddim_uniform",
    "beta",
    "linear_quadratic",
    "kl_optimal",
    "align_your_steps",
    "gits",
];

/// The sampler with any of its names, by the one that jobs have.
pub fn sampler(name: &str) -> Option<&'static str> {
    let own = names_of_jobs().find(|known| *known == name);
    let other = || OLDER.iter().rev().find(|(_, other)| *other == name);
    own.or_else(|| other().map(|(own, _)| *own))
}

/// The name for socket media workers.
pub fn public_name(name: &str) -> &str {
    let known = OLDER.iter().find(|(own, _)| *own == name);
    known.map_or(name, |(_, public)| public)
}

pub fn is_newer(name: &str) -> bool {
    NEWER.contains(&name)
}

/// In the order of the AI Horde API.
pub fn names_of_jobs() -> impl Iterator<Item = &'static str> {
    let older = OLDER.iter().map(|(own, _)| *own);
    older.chain(NEWER)
}

/// Every name of every sampler.
pub fn sampler_names() -> impl Iterator<Item = &'static str> {
    let others = OLDER.iter().map(|(_, other)| *other);
    let is_new = |name: &&str| names_of_jobs().all(|own| own != *name) && *name != "dpmpp_2m";
    names_of_jobs()
        .chain(others.filter(is_new))
        .chain(["dpmpp_2m"])
}

#[cfg(test)]
mod tests {
    use super::{public_name, sampler, sampler_names};

    #[test]
    fn a_sampler_has_a_name_in_each_protocol() {
        assert_eq!(sampler("k_euler"), Some("k_euler"));
        assert_eq!(sampler("euler"), Some("k_euler"));
        assert_eq!(sampler("dpmpp_2m"), Some("k_dpmpp_2m"));
        assert_eq!(sampler("none"), None);
        assert_eq!(public_name("k_euler_a"), "euler_ancestral");
        assert_eq!(public_name("uni_pc"), "uni_pc");
        assert!(sampler_names().all(|name| sampler(name).is_some()));
    }
}
