//! Kinds of jobs on the link. Every worker states a job type for each model, and tasks for models of type `text`: all
//! results that are sent as tokens or values have type `text`.

use crate::job::{Kind, Kinds};

pub(super) fn job_type(kind: Kind) -> &'static str {
    kind.facts().job_type
}

/// The kind of a job of this type whose payload says no more.
pub(super) fn kind_of(job_type: &str) -> Option<Kind> {
    Kind::each().find(|kind| kind.facts().job_type == job_type)
}

pub(super) fn job_types(kinds: Kinds) -> Vec<&'static str> {
    let first = Kind::each().filter(|kind| kind_of(job_type(*kind)) == Some(*kind));
    first
        .map(job_type)
        .filter(|name| kinds.each().any(|kind| job_type(kind) == *name))
        .collect()
}

/// The tasks of text models; none of a model that writes text and does nothing else.
pub(super) fn tasks(kinds: Kinds) -> Vec<&'static str> {
    let names: Vec<_> = kinds.each().filter_map(|kind| kind.facts().task).collect();
    match *names {
        ["generate"] => Vec::new(),
        _ => names,
    }
}

/// Unknown names are left out.
pub(super) fn kinds_of(job_types: &[String], tasks: &[String]) -> Kinds {
    let named = |name: &String| Kind::each().find(|kind| kind.facts().task == Some(name));
    let tasks = tasks.iter().filter_map(named);
    let tasks = tasks.fold(Kinds::default(), Kinds::with);
    let has_tasks = tasks != Kinds::default();
    if job_types.is_empty() {
        return tasks;
    }
    let types = job_types.iter().filter_map(|name| kind_of(name));
    types.fold(Kinds::default(), |kinds, kind| match kind {
        Kind::Text if has_tasks => kinds.and(tasks),
        kind => kinds.with(kind),
    })
}

#[cfg(test)]
mod tests {
    use super::{job_types, kinds_of, tasks};
    use crate::job::{Kind, Kinds};

    #[test]
    fn kinds_are_read_as_they_were_written() {
        let names = |list: &[&str]| {
            list.iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let check = |kinds: &[Kind], types: &[&str], wanted: &[&str]| {
            let kinds = kinds.iter().copied().fold(Kinds::default(), Kinds::with);
            assert_eq!(
                (job_types(kinds), tasks(kinds)),
                (types.to_vec(), wanted.to_vec())
            );
            assert_eq!(kinds_of(&names(types), &names(wanted)), kinds);
        };
        check(&[Kind::Text], &["text"], &[]);
        check(&[Kind::Embedding], &["text"], &["embed"]);
        check(
            &[Kind::Text, Kind::Ranking],
            &["text"],
            &["generate", "rerank"],
        );
        check(&[Kind::Speech, Kind::Music], &["text", "audio"], &["speak"]);
        check(&[Kind::Image, Kind::Mesh], &["image", "3d"], &[]);
    }

    #[test]
    fn what_later_versions_say_is_left_out() {
        let names = |list: &[&str]| {
            list.iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            kinds_of(&names(&["smell"]), &names(&["sing"])),
            Kinds::default()
        );
        assert_eq!(
            kinds_of(&names(&["text"]), &names(&["sing"])),
            Kind::Text.into()
        );
        // Workers that know tasks and no kinds have text models alone.
        assert_eq!(kinds_of(&[], &names(&["embed"])), Kind::Embedding.into());
    }
}
