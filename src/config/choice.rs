//! Settings that are one of a few words.

/// Defines an enum whose variants are words of the configuration.
macro_rules! choice {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl $crate::value::Value for $name {
            fn wanted() -> String {
                let words: Vec<_> = Self::ALL.iter().map(|choice| format!("{:?}", choice.word())).collect();
                format!("one of {}", words.join(", "))
            }

            fn parse(raw: &$crate::raw::Raw, _: &$crate::value::Place<'_>) -> Result<Self, String> {
                let text = raw.text().unwrap_or_default();
                Self::ALL.iter().copied().find(|choice| choice.word() == text).ok_or_else(String::new)
            }

            fn show(&self) -> Option<String> {
                Some($crate::value::quote(self.word()))
            }
        }
    };
}

pub(super) use choice;
