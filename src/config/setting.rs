//! A setting, declared once: its name, type, range, default and words.

use std::ops::RangeInclusive;

/// The declaration of a key in a section.
#[derive(Debug)]
pub struct Setting {
    pub section: &'static str,
    pub key: &'static str,
    /// The description, with a reason to change the setting.
    pub doc: &'static str,
    /// In the syntax of the file.
    pub default: Option<&'static str>,
    /// The behaviour without a value or a default.
    pub unset: &'static str,
    pub range: Option<RangeInclusive<u64>>,
    /// Variables of other programs that set the value, last one first, and the suffix of each value.
    pub shared: &'static [(&'static str, &'static str)],
}

impl Setting {
    /// `engine.threads`
    pub fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// `MUSTER_ENGINE_THREADS`
    pub fn variable(&self) -> String {
        let section = self.section.replace('.', "_");
        format!("MUSTER_{section}_{}", self.key).to_uppercase()
    }
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// `worker.toml:4`
    File(String),
    Variable(String),
    Flag(&'static str),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(place) => f.write_str(place),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A setting's value as it will be used, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    /// In the syntax of the file, with secrets hidden; or the behaviour of an unset setting.
    pub value: String,
    pub is_set: bool,
    pub origin: Origin,
}

/// Declares a section: its struct, its table of settings, and the reading of one from the other.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident = $section:literal {
            $(
                $(#[doc = $doc:literal])+
                $key:ident : $type:ty
                    $(where ($range:expr))?
                    $(= $default:tt)?
                    $(; unset $unset:literal)?
                    $(; shared $shared:expr)?
            ),+ $(,)?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        pub struct $name { $($(#[doc = $doc])+ pub $key: $type),+ }

        impl $name {
            pub const SECTION: &str = $section;
            pub const ABOUT: &str = concat!($($about, "\n"),+);
            pub const SETTINGS: &[$crate::Setting] = &[$(
                #[allow(clippy::needless_update, reason = "a declaration may set every field")]
                $crate::Setting {
                    $(range: Some($range),)?
                    $(default: Some(stringify!($default)),)?
                    $(unset: $unset,)?
                    $(shared: $shared,)?
                    ..$crate::Setting::plain($section, stringify!($key), concat!($($doc, "\n"),+))
                }
            ),+];

            pub(super) fn read(reader: &mut $crate::reader::Reader<'_>) -> Option<Self> {
                let mut settings = Self::SETTINGS.iter();
                $(let $key = reader.value::<$type>(settings.next()?);)+
                Some(Self { $($key: $key?),+ })
            }
        }
    };
}
pub(super) use settings;

impl Setting {
    pub const fn plain(section: &'static str, key: &'static str, doc: &'static str) -> Self {
        Self {
            section,
            key,
            doc,
            default: None,
            unset: "",
            range: None,
            shared: &[],
        }
    }
}
