//! Sets of named values: bits in memory, space-separated names in the store.

/// Declares a set type and its members.
macro_rules! named_set {
    (
        $(#[doc = $about:literal])+
        $set:ident {
            $($(#[doc = $doc:literal])* $member:ident = $bit:literal $name:literal,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $set(u16);

        impl $set {
            $($(#[doc = $doc])* pub const $member: Self = Self($bit);)+

            pub const NONE: Self = Self(0);
            pub const ALL: Self = Self($($bit)|+);

            const NAMES: &[(Self, &'static str)] = &[$((Self::$member, $name)),+];

            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            pub const fn contains(self, all: Self) -> bool {
                self.0 & all.0 == all.0
            }

            pub fn named(name: &str) -> Option<Self> {
                let named = Self::NAMES.iter().find(|(_, known)| *known == name);
                named.map(|(one, _)| *one)
            }

            /// Parses names separated by spaces. Names of newer versions are ignored, so they grant no permission.
            pub fn parse(text: &str) -> Self {
                text.split_whitespace().filter_map(Self::named).collect()
            }

            pub fn names(self) -> impl Iterator<Item = &'static str> {
                let named = Self::NAMES.iter().filter(move |(one, _)| self.contains(*one));
                named.map(|(_, name)| *name)
            }
        }

        impl FromIterator<Self> for $set {
            fn from_iter<I: IntoIterator<Item = Self>>(sets: I) -> Self {
                sets.into_iter().fold(Self::default(), Self::with)
            }
        }

        /// The form that `parse` reads.
        impl std::fmt::Display for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.names().collect::<Vec<_>>().join(" "))
            }
        }

        impl std::fmt::Debug for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_set().entries(self.names()).finish()
            }
        }
    };
}
pub(crate) use named_set;
