//! Bodies, replies and closed lists of words as tables: one line for each field, with its name, its shape and its
//! default.

use serde::Serialize;
use serde_json::Value;

/// A request body of a client or worker. `needs` fields are required, `fills` fields have a default, missing `may`
/// fields are `None`.
///
/// Bodies are also written: to disk, and by our own worker to a legacy coordinator.
macro_rules! body {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            needs { $($(#[$need_meta:meta])* $need:ident: $need_type:ty = $need_rule:expr,)* }
            $(fills { $($(#[$fill_meta:meta])* $fill:ident: $fill_type:ty = $fill_rule:expr => $default:expr,)* })?
            $(may { $($(#[$may_meta:meta])* $may:ident: $may_type:ty = $may_rule:expr,)* })?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize)]
        pub struct $name {
            $($(#[$need_meta])* pub $need: $need_type,)*
            $($($(#[$fill_meta])* pub $fill: $fill_type,)*)?
            $($(
                $(#[$may_meta])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $may: Option<$may_type>,
            )*)?
        }

        impl $crate::legacy::Body for $name {
            fn take(entries: &mut $crate::legacy::body::Entries<'_>) -> Option<Self> {
                $(let $need: Option<$need_type> = entries.need(stringify!($need), &$need_rule);)*
                $($(let $fill: Option<$fill_type> =
                    entries.fill(stringify!($fill), &$fill_rule, || $default);)*)?
                $($(let $may: Option<Option<$may_type>> = entries.may(stringify!($may), &$may_rule);)*)?
                Some(Self {
                    $($need: $need?,)*
                    $($($fill: $fill?,)*)?
                    $($($may: $may?,)*)?
                })
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(fills { $($(#[$fill_meta:meta])* $fill:ident: $fill_type:ty = $fill_rule:expr => $default:expr,)* })?
            $(may { $($(#[$may_meta:meta])* $may:ident: $may_type:ty = $may_rule:expr,)* })?
        }
    ) => {
        $crate::legacy::tables::body! {
            $(#[$meta])*
            pub struct $name {
                needs {}
                $(fills { $($(#[$fill_meta])* $fill: $fill_type = $fill_rule => $default,)* })?
                $(may { $($(#[$may_meta])* $may: $may_type = $may_rule,)* })?
            }
        }

        /// The value of an empty object.
        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($($fill: $default,)*)?
                    $($($may: None,)*)?
                }
            }
        }
    };
}

/// A reply. `always` fields are present, as null where their type allows it; `known` fields are left out while they are
/// `None`.
macro_rules! reply {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(always { $($(#[$always_meta:meta])* $always:ident: $always_type:ty,)* })?
            $(known { $($(#[$known_meta:meta])* $known:ident: $known_type:ty,)* })?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize)]
        pub struct $name {
            $($($(#[$always_meta])* pub $always: $always_type,)*)?
            $($(
                $(#[$known_meta])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $known: Option<$known_type>,
            )*)?
        }
    )*};
}

/// A closed list of words, spelled as they are sent.
macro_rules! words {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)* }

        impl $crate::legacy::words::Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    )*};
}

/// A reply where these fields, if they are not known, are null instead of left out.
pub fn with_nulls(reply: &impl Serialize, names: &[&str]) -> serde_json::Result<Value> {
    let mut reply = serde_json::to_value(reply)?;
    for name in names {
        if reply.get(name).is_none() {
            reply[*name] = Value::Null;
        }
    }
    Ok(reply)
}

pub(crate) use {body, reply, words};
