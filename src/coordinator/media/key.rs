//! Names of objects: the same in a folder, in a bucket and in a link.

use std::fmt;
use std::str::FromStr;

use muster_media::MediaType;
use uuid::Uuid;

/// The name of an object: `results/ID-NUMBER.webp`. Derived from the object's owner, so it is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    area: Area,
    id: Uuid,
    number: u32,
    /// Uploads may have another image type, until the image is converted.
    kind: MediaType,
}

/// The use of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Area {
    /// Workers' results. Each attempt has another name, by its number or its ticket, so that a late one never replaces
    /// another.
    Results,
    /// Clients' source images. The number is the image's index in its request.
    Sources,
}

/// A text that is no object name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid object name, expected a name such as results/ID-NUMBER.webp")]
pub struct NoKey;

impl Key {
    pub const fn new(area: Area, id: Uuid, number: u32, kind: MediaType) -> Self {
        Self {
            area,
            id,
            number,
            kind,
        }
    }

    /// Id of the object's owner.
    pub const fn id(&self) -> Uuid {
        self.id
    }

    pub const fn kind(&self) -> MediaType {
        self.kind
    }

    pub const fn area(&self) -> Area {
        self.area
    }
}

impl Area {
    pub const ALL: [Self; 2] = [Self::Results, Self::Sources];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Results => "results",
            Self::Sources => "sources",
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (area, kind) = (self.area.name(), self.kind.extension());
        write!(f, "{area}/{}-{}.{kind}", self.id, self.number)
    }
}

impl FromStr for Key {
    type Err = NoKey;

    /// Parses exactly the output of [`Key`]'s `Display`, so that each name has one spelling.
    fn from_str(text: &str) -> Result<Self, NoKey> {
        let key = parse(text).ok_or(NoKey)?;
        match key.to_string() == text {
            true => Ok(key),
            false => Err(NoKey),
        }
    }
}

fn parse(text: &str) -> Option<Key> {
    let (area, rest) = text.split_once('/')?;
    let (name, extension) = rest.split_once('.')?;
    let (id, number) = name.rsplit_once('-')?;
    let area = Area::ALL.into_iter().find(|known| known.name() == area)?;
    let kind = MediaType::from_extension(extension)?;
    Some(Key {
        area,
        id: id.parse().ok()?,
        number: number.parse().ok()?,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::{Area, Key, MediaType};

    #[test]
    fn a_name_reads_as_it_is_written() {
        let key = Key::new(Area::Results, Uuid::from_u128(7), 2, MediaType::Webp);
        let text = "results/00000000-0000-0000-0000-000000000007-2.webp";
        assert_eq!(key.to_string(), text);
        assert_eq!(text.parse(), Ok(key));
    }

    #[test]
    fn other_spellings_are_no_names() {
        for wrong in [
            "",
            "results/",
            "results/../secret",
            "results/../results/00000000-0000-0000-0000-000000000007-2.webp",
            "results//00000000-0000-0000-0000-000000000007-2.webp",
            "other/00000000-0000-0000-0000-000000000007-2.webp",
            "results/00000000000000000000000000000007-2.webp",
            "results/{00000000-0000-0000-0000-000000000007}-2.webp",
            "results/00000000-0000-0000-0000-000000000007-02.webp",
            "results/00000000-0000-0000-0000-000000000007-+2.webp",
            "results/00000000-0000-0000-0000-00000000000A-2.webp",
            "results/00000000-0000-0000-0000-000000000007-2.svg",
            "results/00000000-0000-0000-0000-000000000007-2.webp\0",
            "results/00000000-0000-0000-0000-000000000007-99999999999.webp",
        ] {
            assert!(wrong.parse::<Key>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_name_of_something_outside(text in "\\PC{0,80}|(results|sources)/[./a-f0-9-]{0,60}\\.(webp|png|jpg)") {
            if let Ok(key) = text.parse::<Key>() {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }
}
