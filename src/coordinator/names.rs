//! Under which names a model is asked for and served. All of them lead to one id, the key of the queue; a name nobody
//! listed is its own id, in its exact spelling. Whoever starts the coordinator brings the table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A table of names. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Names(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Every name, ids among them.
    ids: HashMap<Arc<str>, Arc<str>>,
    /// The other names of each id.
    others: BTreeMap<Arc<str>, Vec<Arc<str>>>,
}

impl Names {
    /// Each model's id with all its names. A name stays with the first model that has it.
    pub fn of<'a, N>(models: impl IntoIterator<Item = (&'a str, N)>) -> Self
    where
        N: IntoIterator<Item = &'a str>,
    {
        let mut table = Table::default();
        for (id, names) in models {
            table.add(id.into(), names);
        }
        Self(Arc::new(table))
    }

    /// The id of the model that is called this.
    pub fn id(&self, name: &str) -> Arc<str> {
        self.listed(name).unwrap_or_else(|| name.into())
    }

    /// The id of the model that is called this, if it is one of ours.
    pub fn listed(&self, name: &str) -> Option<Arc<str>> {
        self.0.ids.get(name).cloned()
    }

    /// What else the model of this id is called.
    pub fn others(&self, id: &str) -> &[Arc<str>] {
        self.0.others.get(id).map_or(&[], Vec::as_slice)
    }
}

impl Table {
    fn add<'a>(&mut self, id: Arc<str>, names: impl IntoIterator<Item = &'a str>) {
        self.ids.entry(id.clone()).or_insert_with(|| id.clone());
        for name in names {
            if self.ids.contains_key(name) {
                continue;
            }
            let name = Arc::<str>::from(name);
            self.ids.insert(name.clone(), id.clone());
            self.others.entry(id.clone()).or_default().push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn every_name_leads_to_the_id_and_an_unknown_one_to_itself() {
        let names = Names::of([
            ("tiny", ["tiny", "Org/Tiny"]),
            ("big", ["Org/Tiny", "Org/Big"]),
        ]);
        for (name, id) in [
            ("tiny", "tiny"),
            ("Org/Tiny", "tiny"),
            ("Org/Big", "big"),
            ("org/big", "org/big"),
        ] {
            assert_eq!(&*names.id(name), id);
        }
        assert_eq!(names.listed("org/big"), None);
        assert_eq!(names.others("tiny"), ["Org/Tiny".into()]);
        assert!(names.others("nobody").is_empty());
    }
}
