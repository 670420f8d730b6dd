//! The inference thread, the only owner of the device and its tensors.

mod adapters;
mod encoders;
mod images;
mod resident;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::device_thread::DeviceLoop;
use super::kv_cache::AdapterId;
use super::load::{LoadError, Loaded, LoadedNetwork, ModelSource};
use super::scheduler::{Limits, SequenceId};
use super::sequence::Job;
use super::shared::Shared;
use super::work::{Queue, entry_level};
use super::{EncoderInput, Failure, ModelInfo, Speculation, model};
use encoders::Encoders;
use muster_process::memory;
use resident::Resident;

/// Commands to the thread.
pub enum Command {
    Run(Box<Job>),
    /// Encode these sequences, in passes between the steps of texts.
    Encode(EncodeBatch),
    Load {
        name: String,
        source: Box<ModelSource>,
        progress: Progress,
        reply: oneshot::Sender<Result<Arc<ModelInfo>, LoadError>>,
    },
    /// Load an adapter of a loaded model.
    LoadAdapter {
        name: String,
        base: String,
        path: PathBuf,
        reply: oneshot::Sender<Result<Arc<ModelInfo>, LoadError>>,
    },
    Unload {
        name: String,
        reply: oneshot::Sender<Result<(), Failure>>,
    },
    /// Change the number of pages of a model.
    ResizeCache {
        name: String,
        pages: usize,
        reply: oneshot::Sender<Result<usize, Failure>>,
    },
    /// Starts no step until `Resume`; running jobs keep their state.
    Pause(oneshot::Sender<()>),
    Resume(oneshot::Sender<()>),
    /// A caller dropped its stream: wakes a parked thread to retire the job.
    Wake,
}

/// Sequences for an encoder, and the channel for the reply.
pub struct EncodeBatch {
    pub model: String,
    pub sequences: Vec<EncoderInput>,
    pub reply: oneshot::Sender<Result<Vec<Vec<f32>>, Failure>>,
}

/// Called with the loaded and total bytes of a model.
pub type Progress = Box<dyn FnMut(u64, u64) + Send>;

/// Brings a model to the device. Lives on the inference thread.
pub type Loader =
    Box<dyn FnMut(&ModelSource, &mut dyn FnMut(u64, u64)) -> Result<Loaded, LoadError> + Send>;

pub struct Engine {
    residents: Vec<Resident>,
    encoders: Encoders,
    loader: Loader,
    limits: Limits,
    speculation: Speculation,
    shared: Arc<Shared>,
    next_id: SequenceId,
    next_adapter: u64,
}

impl Engine {
    pub fn new(
        loader: Loader,
        limits: Limits,
        speculation: Speculation,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            residents: Vec::new(),
            encoders: Encoders::default(),
            loader,
            limits,
            speculation,
            shared,
            next_id: 0,
            next_adapter: 0,
        }
    }

    fn admit(&mut self, job: Job) {
        let queues = self.queues();
        let Some(resident) = self
            .residents
            .iter_mut()
            .find(|resident| resident.serves(&job.model))
        else {
            let failure = self.shared.board.not_loaded(&job.model);
            return job.outbox.finish(super::Event::Failed(failure));
        };
        let id = self.next_id;
        self.next_id += 1;
        let level = entry_level(&queues, resident.queue().served);
        resident.admit(id, job, level);
    }

    fn encode(&mut self, batch: EncodeBatch) {
        if self.is_paused() {
            let _ = batch.reply.send(Err(Failure::Paused));
            return;
        }
        let level = entry_level(&self.queues(), self.encoders.queue().served);
        self.encoders.push(batch, level);
    }

    fn load(
        &mut self,
        name: String,
        source: &ModelSource,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<ModelInfo>, LoadError> {
        self.check_new(&name)?;
        let Loaded {
            network,
            language,
            mut info,
            defaults,
            images,
        } = (self.loader)(source, progress)?;
        info.name = name;
        let (info, language) = (Arc::new(info), Arc::new(language));
        self.shared
            .enlist(Arc::clone(&info), Arc::clone(&language), defaults, images);
        match network {
            LoadedNetwork::Text { model, pages } => self.residents.push(Resident::new(
                Arc::clone(&info),
                model,
                language,
                self.limits,
                self.speculation,
                pages,
            )),
            LoadedNetwork::Encoder(network) => {
                self.encoders.insert(info.name.clone(), network);
            }
        }
        Ok(info)
    }

    fn load_adapter(
        &mut self,
        name: String,
        base: String,
        path: &Path,
    ) -> Result<Arc<ModelInfo>, LoadError> {
        self.check_new(&name)?;
        let mut residents = self.residents.iter_mut();
        let resident = residents.find(|resident| resident.info.name == base);
        let (Some(resident), Ok(listing)) = (resident, self.shared.board.listing(&base)) else {
            return Err(LoadError::NoBase { name, base });
        };
        let id = AdapterId(self.next_adapter);
        self.next_adapter += 1;
        let weight_bytes = resident.load_adapter(&name, id, path)?;
        let info = Arc::new(ModelInfo {
            name,
            parent: Some(base),
            weight_bytes,
            cache_bytes: 0,
            ..(*resident.info).clone()
        });
        self.shared.enlist_adapter(Arc::clone(&info), listing);
        Ok(info)
    }

    fn check_new(&self, name: &str) -> Result<(), LoadError> {
        let mut residents = self.residents.iter();
        match residents.any(|it| it.serves(name)) || self.encoders.contains(name) {
            true => Err(LoadError::AlreadyLoaded {
                name: name.to_owned(),
            }),
            false => Ok(()),
        }
    }

    fn unload(&mut self, name: &str) -> Result<(), Failure> {
        self.shared.board.delist(name);
        let failure = self.shared.board.not_loaded(name);
        let mut residents = self.residents.iter_mut();
        if let Some(resident) = residents.find(|resident| resident.has_adapter(name)) {
            resident.unload_adapter(name, &failure);
            memory::give_back();
            return Ok(());
        }
        if self.encoders.remove(name, &failure) {
            memory::give_back();
            return Ok(());
        }
        let Some(index) = self
            .residents
            .iter()
            .position(|resident| resident.info.name == name)
        else {
            return Err(failure);
        };
        let mut resident = self.residents.remove(index);
        for adapter in resident.adapter_names() {
            self.shared.board.delist(adapter);
        }
        resident.fail_all(&failure);
        drop(resident);
        memory::give_back();
        Ok(())
    }

    fn resize_cache(&mut self, name: &str, pages: usize) -> Result<usize, Failure> {
        let mut residents = self.residents.iter_mut();
        let resident = residents.find(|resident| resident.info.name == name);
        let resident = resident.ok_or_else(|| self.shared.board.not_loaded(name))?;
        let resized = resident.resize_cache(pages);
        memory::give_back();
        resized.map_err(|error| Failure::internal(model::plain(&error)))
    }

    fn pause(&mut self, is_paused: bool) {
        self.shared.board.pause(is_paused);
        if is_paused {
            self.encoders.fail_all(&Failure::Paused);
        }
    }
}

impl DeviceLoop for Engine {
    type Command = Command;

    fn obey(&mut self, command: Command) {
        match command {
            Command::Run(job) => self.admit(*job),
            Command::Encode(batch) => self.encode(batch),
            Command::Load {
                name,
                source,
                mut progress,
                reply,
            } => {
                let loaded = self.load(name, &source, &mut *progress);
                self.report();
                let _ = reply.send(loaded);
            }
            Command::LoadAdapter {
                name,
                base,
                path,
                reply,
            } => {
                let _ = reply.send(self.load_adapter(name, base, &path));
            }
            Command::Unload { name, reply } => {
                let unloaded = self.unload(&name);
                self.report();
                let _ = reply.send(unloaded);
            }
            Command::ResizeCache { name, pages, reply } => {
                let resized = self.resize_cache(&name, pages);
                self.report();
                let _ = reply.send(resized);
            }
            Command::Pause(reply) => {
                self.pause(true);
                let _ = reply.send(());
            }
            Command::Resume(reply) => {
                self.pause(false);
                let _ = reply.send(());
            }
            Command::Wake => {}
        }
    }

    fn retire_abandoned(&mut self) {
        self.residents
            .iter_mut()
            .for_each(Resident::retire_abandoned);
        self.encoders.retire_abandoned();
    }

    fn report(&self) {
        let residents = self.residents.iter();
        self.shared.board.report(residents.map(Resident::status));
    }

    fn is_paused(&self) -> bool {
        self.shared.board.is_paused()
    }

    /// The queues of the generative models, then the one of all encoders.
    fn queues(&self) -> Vec<Queue> {
        let texts = self.residents.iter().map(Resident::queue);
        texts.chain([self.encoders.queue()]).collect()
    }

    fn step(&mut self, index: usize) {
        if index == self.residents.len() {
            let board = &self.shared.board;
            return self.encoders.pass(|model| board.not_loaded(model));
        }
        let others = self.residents.iter().enumerate();
        let others = others.filter(|(other, _)| *other != index);
        let others = others.map(|(_, resident)| resident.generating_step()).sum();
        self.residents[index].step(others);
    }

    fn stop(mut self) {
        for resident in &mut self.residents {
            resident.fail_all(&Failure::Stopped);
        }
        self.encoders.fail_all(&Failure::Stopped);
    }
}

#[cfg(test)]
pub mod fake;
#[cfg(test)]
mod tests;
