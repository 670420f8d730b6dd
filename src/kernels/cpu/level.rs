//! Detects the instruction sets of this CPU, for the whole crate.

use std::sync::OnceLock;

/// Selects the best level to use, for comparisons and for processors whose features are slow.
pub const LEVEL_VARIABLE: &str = "MUSTER_CPU_LEVEL";

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
    /// The same with products of bf16.
    Avx512Bf16,
}

impl Level {
    const ALL: [Self; 5] = [
        Self::Portable,
        Self::Avx2,
        Self::AvxVnni,
        Self::Avx512,
        Self::Avx512Bf16,
    ];

    /// The best level of this CPU, or the best up to the one that [`LEVEL_VARIABLE`] names.
    pub fn best() -> Self {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| {
            let most = Self::stated().ok().flatten().unwrap_or(Self::Avx512Bf16);
            let usable = Self::usable().into_iter().filter(|level| *level <= most);
            usable.max().unwrap_or(Self::Portable)
        })
    }

    /// Every level this CPU can run and may, for tests that compare them.
    pub fn available() -> Vec<Self> {
        let usable = Self::usable().into_iter();
        usable.filter(|level| *level <= Self::best()).collect()
    }

    /// The level in [`LEVEL_VARIABLE`], or an error for an unknown name.
    pub fn stated() -> Result<Option<Self>, String> {
        match std::env::var(LEVEL_VARIABLE) {
            Ok(name) if !name.is_empty() => Self::named(&name).map(Some),
            _ => Ok(None),
        }
    }

    fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|level| level.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{LEVEL_VARIABLE} is `{name}`, which is none of {names}")
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
        }
    }

    fn usable() -> Vec<Self> {
        let best = detected();
        let below = Self::ALL.into_iter().filter(|level| *level <= best);
        below
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
        (true, true) if is_x86_feature_detected!("avx512bf16") => Level::Avx512Bf16,
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

/// Defines a function that calls a generic one (`#[inline(always)]`), compiled once per level.
///
/// The generic function may have a `const FAST: bool`: whether FMA and F16C are available.
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
                $crate::cpu::Level::Avx512 | $crate::cpu::Level::Avx512Bf16 => unsafe {
                    avx512($($argument),*)
                },
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

#[cfg(test)]
mod tests {
    use super::Level;

    #[test]
    fn levels_are_named() {
        for level in Level::ALL {
            assert_eq!(Level::named(level.name()), Ok(level));
        }
        let error = Level::named("sse").unwrap_err();
        assert!(
            error.contains("none of portable, avx2, avx-vnni, avx512, avx512-bf16"),
            "{error}"
        );
    }
}
