//! Which instructions this CPU has: the one place that asks.

use std::sync::OnceLock;

/// A set of instructions that kernels are written for, poorest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// The same with 256-bit VNNI.
    AvxVnni,
    /// AVX-512 F, BW, VL and VNNI.
    Avx512,
}

impl Level {
    /// The best level of this CPU.
    pub fn best() -> Self {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(detected)
    }

    /// Every level this CPU can run, for tests that compare them.
    pub fn available() -> Vec<Self> {
        let all = [Self::Portable, Self::Avx2, Self::AvxVnni, Self::Avx512];
        all.into_iter()
            .filter(|level| *level <= Self::best())
            .filter(|level| *level != Self::AvxVnni || has_avx_vnni())
            .collect()
    }
}

#[cfg(target_arch = "x86_64")]
fn detected() -> Level {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) if has_avx_vnni() => Level::AvxVnni,
        (true, false) => Level::Avx2,
        (false, _) => Level::Portable,
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx_vnni() -> bool {
    is_x86_feature_detected!("avxvnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> Level {
    Level::Portable
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx_vnni() -> bool {
    false
}

/// Defines a function that does what a generic one (`#[inline(always)]`) does, compiled once for each level.
///
/// The generic function may take `const FAST: bool`: whether FMA and F16C are there.
macro_rules! at_every_level {
    ($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) = $($generic:ident)::+ $(<$($param:ty),*>)?;) => {
        $(#[$meta])*
        #[cfg_attr(
            target_arch = "x86_64",
            expect(unsafe_code, reason = "instructions are chosen at run time")
        )]
        fn $name(level: $crate::cpu::Level, $($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
            fn avx512($($argument: $type),*) {
                $($generic)::+::<$($($param,)*)? true>($($argument),*);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($argument: $type),*) {
                $($generic)::+::<$($($param,)*)? true>($($argument),*);
            }
            match level {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the level was detected.
                $crate::cpu::Level::Avx512 => unsafe { avx512($($argument),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the level was detected.
                $crate::cpu::Level::Avx2 | $crate::cpu::Level::AvxVnni => unsafe {
                    avx2($($argument),*)
                },
                _ => $($generic)::+::<$($($param,)*)? false>($($argument),*),
            }
        }
    };
}
pub(crate) use at_every_level;
