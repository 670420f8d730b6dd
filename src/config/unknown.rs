//! Unknown keys, sections and variables, reported with the most similar known name.

use super::document::Table;
use super::nearest::nearest;
use super::problem::Problem;
use super::reader::Reader;
use super::setting::Setting;
use super::{repeated_sections, sections};

/// Prefix of our variables. `MUSTER_CONFIG` is the path of the file.
const OURS: &str = "MUSTER_";

impl Reader<'_> {
    /// Reports unknown keys, sections and variables.
    pub fn refuse_unknown(&mut self) {
        for table in &self.document.tables {
            self.refuse_unknown_in(table);
        }
        self.refuse_unknown_variables();
    }

    fn refuse_unknown_in(&mut self, table: &Table) {
        let here = self.document.place(table.line);
        let Some(settings) = known(&table.name) else {
            let all = sections().into_iter().chain(repeated_sections());
            let names = all.filter_map(|settings| Some(settings.first()?.section));
            let meant = nearest(&table.name, names);
            return self.problem(here, unknown("section", &table.name, meant));
        };
        if table.repeated != is_repeated(&table.name) {
            return self.problem(here, wrong_brackets(table));
        }
        for entry in &table.entries {
            if !settings.iter().any(|setting| setting.key == entry.key) {
                let meant = nearest(&entry.key, settings.iter().map(|setting| setting.key));
                let what = unknown("setting", &format!("{}.{}", table.name, entry.key), meant);
                self.problem(self.document.place(entry.line), what);
            }
        }
    }

    /// A similar name is a typing error; other variables may belong to other programs.
    fn refuse_unknown_variables(&mut self) {
        let known: Vec<String> = sections()
            .into_iter()
            .flatten()
            .map(Setting::variable)
            .collect();
        let known: Vec<&str> = known
            .iter()
            .filter_map(|name| name.strip_prefix(OURS))
            .collect();
        let ours = self
            .sources
            .environment
            .keys()
            .filter_map(|name| name.strip_prefix(OURS));
        for name in ours.filter(|name| !known.contains(name) && *name != "CONFIG") {
            // Compares names without the common prefix, which would make all of them similar.
            let meant = nearest(name, known.iter().copied()).map(|name| format!("{OURS}{name}"));
            let what = unknown("variable", &format!("{OURS}{name}"), meant.as_deref());
            match meant {
                Some(_) => self.problems.push(Problem {
                    place: "environment".to_owned(),
                    what,
                }),
                None => self.warnings.push(what),
            }
        }
    }
}

fn is_repeated(section: &str) -> bool {
    let mut first = repeated_sections()
        .into_iter()
        .filter_map(|settings| settings.first());
    first.any(|setting| setting.section == section)
}

fn known(section: &str) -> Option<&'static [Setting]> {
    let mut all = sections().into_iter().chain(repeated_sections());
    all.find(|settings| {
        settings
            .first()
            .is_some_and(|setting| setting.section == section)
    })
}

fn unknown(kind: &str, name: &str, meant: Option<&str>) -> String {
    match meant {
        Some(meant) => format!("unknown {kind} {name}; did you mean {meant}?"),
        None => format!("unknown {kind} {name}"),
    }
}

fn wrong_brackets(table: &Table) -> String {
    let name = &table.name;
    match table.repeated {
        true => format!("[[{name}]] must be [{name}]: the section cannot repeat"),
        false => format!("[{name}] must be [[{name}]]: the section can repeat"),
    }
}
