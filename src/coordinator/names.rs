//! Names of models in requests and offers. All names of a model lead to one id, the key of the queue; an unlisted name
//! is its own id, in its exact spelling. The caller of `start` provides the table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

/// A table of names. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Names {
    table: Arc<Table>,
    /// Ids by names that administrators gave while the coordinator ran. A name of the table takes precedence.
    copies: Arc<RwLock<BTreeMap<Arc<str>, Arc<str>>>>,
}

#[derive(Debug, Clone, Default)]
struct Table {
    /// Ids by name; each id is a name, too.
    ids: HashMap<Arc<str>, Arc<str>>,
    /// Aliases by id.
    others: BTreeMap<Arc<str>, Vec<Arc<str>>>,
}

impl Names {
    /// The ids and names of models. A name belongs to the first model that has it.
    pub fn of<'a, N>(models: impl IntoIterator<Item = (&'a str, N)>) -> Self
    where
        N: IntoIterator<Item = &'a str>,
    {
        let mut table = Table::default();
        for (id, names) in models {
            table.add(id.into(), names);
        }
        Self::from(table)
    }

    /// The same with further aliases, each with a name of its model. An alias is taken from another model that has it.
    #[must_use]
    pub fn with_aliases<'a>(self, aliases: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut table = Arc::unwrap_or_clone(self.table);
        for (name, model) in aliases {
            table.alias(name, model);
        }
        Self::from(table)
    }

    /// The id of the model with this name, or the name itself.
    pub fn id(&self, name: &str) -> Arc<str> {
        self.listed(name).unwrap_or_else(|| name.into())
    }

    /// The id of the model with this name, if it is listed.
    pub fn listed(&self, name: &str) -> Option<Arc<str>> {
        let listed = self.table.ids.get(name).cloned();
        listed.or_else(|| self.copies.read().get(name).cloned())
    }

    /// Whether the table has this name. Copies are no part of it.
    pub fn is_fixed(&self, name: &str) -> bool {
        self.table.ids.contains_key(name)
    }

    /// Other names of the model with this id, without copies.
    pub fn others(&self, id: &str) -> &[Arc<str>] {
        self.table.others.get(id).map_or(&[], Vec::as_slice)
    }

    /// Gives a further name to the model with this id.
    pub fn copy(&self, name: &str, id: Arc<str>) {
        self.copies.write().insert(name.into(), id);
    }

    /// Whether the name was a copy.
    pub fn remove_copy(&self, name: &str) -> bool {
        self.copies.write().remove(name).is_some()
    }

    pub fn is_copy(&self, name: &str) -> bool {
        self.copies.read().contains_key(name)
    }

    /// Copies of the model with this id.
    pub fn copies_of(&self, id: &str) -> Vec<Arc<str>> {
        let copies = self.copies.read();
        let of_model = copies.iter().filter(|(_, model)| ***model == *id);
        of_model.map(|(name, _)| name.clone()).collect()
    }
}

impl From<Table> for Names {
    fn from(table: Table) -> Self {
        Self {
            table: Arc::new(table),
            copies: Arc::default(),
        }
    }
}

impl Table {
    fn alias(&mut self, name: &str, model: &str) {
        let id = self.ids.get(model).cloned();
        let id = id.unwrap_or_else(|| model.into());
        self.add(id.clone(), []);
        let name = Arc::<str>::from(name);
        if let Some(before) = self.ids.insert(name.clone(), id.clone())
            && let Some(others) = self.others.get_mut(&before)
        {
            others.retain(|other| *other != name);
        }
        self.others.entry(id).or_default().push(name);
    }

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

    #[test]
    fn an_alias_leads_to_the_model_that_is_named_for_it() {
        let names = Names::of([
            ("tiny", ["Org/Tiny", "small"]),
            ("big", ["Org/Big", "large"]),
        ]);
        let names = names.with_aliases([
            ("gpt-4o-mini", "Org/Tiny"),
            ("small", "big"),
            ("whisper-1", "own-model"),
        ]);
        for (name, id) in [
            ("gpt-4o-mini", "tiny"),
            ("small", "big"),
            ("whisper-1", "own-model"),
            ("own-model", "own-model"),
        ] {
            assert_eq!(&*names.id(name), id);
        }
        assert_eq!(
            names.others("tiny"),
            ["Org/Tiny".into(), "gpt-4o-mini".into()]
        );
        let others: Vec<_> = names.others("big").iter().map(|name| &**name).collect();
        assert_eq!(others, ["Org/Big", "large", "small"]);
    }

    #[test]
    fn a_copy_is_a_name_for_all_clones_until_it_is_removed() {
        let names = Names::of([("tiny", ["Org/Tiny"])]);
        let clone = names.clone();
        names.copy("mine", names.id("Org/Tiny"));
        assert_eq!(&*clone.id("mine"), "tiny");
        assert_eq!(clone.copies_of("tiny"), ["mine".into()]);
        assert!(clone.is_copy("mine") && !clone.is_fixed("mine"));
        assert_eq!(clone.others("tiny"), ["Org/Tiny".into()]);
        assert!(clone.remove_copy("mine") && !names.remove_copy("mine"));
        assert_eq!(&*names.id("mine"), "mine");
    }
}
