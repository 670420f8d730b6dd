//! Lists the files of a repository on disk, from any program, and selects those of a model.

use std::{fs, path::Path};

use super::{
    Hub, HubError, choose,
    record::{self, Record},
    source::{FilePath, Repository, Revision, Source, SourceFile},
};

impl Hub {
    /// The files on disk that [`Hub::choose`] would choose for a name; without one, all supported files. `None` if none
    /// exist.
    pub fn choose_on_disk(
        &self,
        repository: &Repository,
        wanted: Option<&str>,
    ) -> Result<Option<Source>, HubError> {
        self.first_on_disk(repository, |here| match wanted {
            Some(wanted) => choose::named(repository, here, wanted),
            None => Ok(Some(here.to_vec())),
        })
    }

    /// The model files on disk for a name; without one, those of the only model on disk.
    pub fn model_on_disk(
        &self,
        repository: &Repository,
        wanted: Option<&str>,
    ) -> Result<Option<Source>, HubError> {
        let only = |here: &[FilePath]| match choose::choose(repository, here, None) {
            Err(HubError::NothingUsable { .. }) => Ok(None),
            chosen => chosen.map(Some),
        };
        match wanted {
            Some(_) => self.choose_on_disk(repository, wanted),
            None => self.first_on_disk(repository, only),
        }
    }

    /// The last queried commit of a repository, and its supported files on disk.
    pub fn on_disk(&self, repository: &Repository) -> Option<(Revision, Vec<FilePath>)> {
        self.commits_on_disk(repository).next()
    }

    /// The weights that were pulled, by their repositories.
    pub fn pulled_weights(&self) -> Vec<(Repository, FilePath)> {
        let records_dir = &self.settings.records_dir;
        let mut weights = Vec::new();
        for repository in record::repositories(records_dir) {
            let files = Record::read(records_dir, &repository).files();
            let files = files.into_iter().filter(FilePath::is_weights);
            weights.extend(files.map(|file| (repository.clone(), file)));
        }
        weights
    }

    /// The chosen files of the first matching commit, with the record of their pull.
    fn first_on_disk(
        &self,
        repository: &Repository,
        chosen: impl Fn(&[FilePath]) -> Result<Option<Vec<FilePath>>, HubError>,
    ) -> Result<Option<Source>, HubError> {
        let record = Record::read(&self.settings.records_dir, repository);
        let commits: Vec<_> = self.commits_on_disk(repository).collect();
        for (commit, here) in &commits {
            let Some(files) = chosen(here)? else {
                continue;
            };
            let weights = files.iter().find(|file| file.is_weights());
            let pulled = weights.and_then(|file| record.file(file));
            let last = commits.iter().find(|(commit, here)| {
                let is_it = pulled.as_ref().is_some_and(|file| file.commit == *commit);
                is_it && files.iter().all(|file| here.contains(file))
            });
            return Ok(Some(Source {
                repository: repository.clone(),
                revision: Some(last.map_or(commit, |(commit, _)| commit).clone()),
                files: files.into_iter().map(SourceFile::from).collect(),
            }));
        }
        Ok(None)
    }

    /// The commits with files on disk: first the pulled one, then that of `main`, then others.
    fn commits_on_disk(
        &self,
        repository: &Repository,
    ) -> impl Iterator<Item = (Revision, Vec<FilePath>)> + use<> {
        let cached = self.cached(repository);
        let pulled = Record::read(&self.settings.records_dir, repository).main_commit();
        let main = cached.commit_of(&Revision::main());
        let mut commits: Vec<Revision> = Vec::new();
        for commit in pulled.into_iter().chain(main).chain(cached.commits()) {
            if !commits.contains(&commit) {
                commits.push(commit);
            }
        }
        commits.into_iter().filter_map(move |commit| {
            let mut files = Vec::new();
            list_files(&cached.snapshot(&commit), "", &mut files);
            files.sort();
            (!files.is_empty()).then_some((commit, files))
        })
    }
}

/// The files of use below a folder.
pub fn list_files(folder: &Path, prefix: &str, files: &mut Vec<FilePath>) {
    for item in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = item.file_name().into_string() else {
            continue;
        };
        let path = format!("{prefix}{name}");
        if item.path().is_dir() {
            list_files(&item.path(), &format!("{path}/"), files);
        } else if item.path().is_file() {
            files.extend(path.parse::<FilePath>());
        }
    }
}
