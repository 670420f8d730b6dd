//! The maker's thread. A block is its step.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::handle::PipelineLoader;
use super::resident::{MakeJob, PipelinePanic, ResidentPipeline, guard};
use super::{Pipeline, PipelineStatus};
use crate::runtime::device_thread::{DeviceLoop, ModelBoard};
use crate::runtime::work::{Queue, entry_level};
use crate::runtime::{Failure, LoadError};
use muster_process::memory;

pub enum MakerCommand {
    Make(Box<MakeJob>),
    Load {
        name: String,
        loader: PipelineLoader,
        reply: oneshot::Sender<Result<(), LoadError>>,
    },
    Unload {
        name: String,
        reply: oneshot::Sender<Result<(), Failure>>,
    },
    /// Starts no block until `Resume`; jobs keep their state.
    Pause(oneshot::Sender<()>),
    Resume(oneshot::Sender<()>),
    /// A stream was dropped: retire its job, even when parked.
    Wake,
}

/// The pipelines that are loaded, for other threads.
pub type MakerBoard = ModelBoard<Arc<dyn Pipeline>, PipelineStatus>;

pub struct MakerThread {
    residents: Vec<ResidentPipeline>,
    board: Arc<MakerBoard>,
}

impl MakerThread {
    pub fn new(board: Arc<MakerBoard>) -> Self {
        Self {
            residents: Vec::new(),
            board,
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        let mut residents = self.residents.iter();
        residents.position(|resident| resident.name == name)
    }

    fn admit(&mut self, job: MakeJob) {
        let Some(index) = self.position(&job.model) else {
            // The model was unloaded after the check.
            let failure = self.board.not_loaded(&job.model);
            return job.outbox.finish(Err(failure));
        };
        let level = entry_level(&self.queues(), self.residents[index].queue().served);
        self.residents[index].admit(job, level);
    }

    fn load(&mut self, name: String, loader: PipelineLoader) -> Result<(), LoadError> {
        if self.position(&name).is_some() {
            return Err(LoadError::AlreadyLoaded { name });
        }
        let load = || loader().map(|pipeline| (pipeline.side_by_side(), pipeline));
        let (side_by_side, pipeline) = match guard(load) {
            Ok(loaded) => loaded?,
            Err(PipelinePanic(message)) => return Err(LoadError::Panicked { name, message }),
        };
        let pipeline: Arc<dyn Pipeline> = Arc::from(pipeline);
        self.board.enlist(name.clone(), Arc::clone(&pipeline));
        let resident = ResidentPipeline::new(name, pipeline, side_by_side);
        self.residents.push(resident);
        Ok(())
    }

    fn unload(&mut self, name: &str) -> Result<(), Failure> {
        self.board.delist(name);
        let failure = self.board.not_loaded(name);
        let Some(index) = self.position(name) else {
            return Err(failure);
        };
        self.residents.remove(index).close(&failure);
        memory::give_back();
        Ok(())
    }
}

impl DeviceLoop for MakerThread {
    type Command = MakerCommand;

    fn obey(&mut self, command: MakerCommand) {
        match command {
            MakerCommand::Make(job) => self.admit(*job),
            MakerCommand::Load {
                name,
                loader,
                reply,
            } => {
                let loaded = self.load(name, loader);
                self.report();
                let _ = reply.send(loaded);
            }
            MakerCommand::Unload { name, reply } => {
                let unloaded = self.unload(&name);
                self.report();
                let _ = reply.send(unloaded);
            }
            MakerCommand::Pause(reply) => {
                self.board.pause(true);
                let _ = reply.send(());
            }
            MakerCommand::Resume(reply) => {
                self.board.pause(false);
                let _ = reply.send(());
            }
            MakerCommand::Wake => {}
        }
    }

    fn retire_abandoned(&mut self) {
        let residents = self.residents.iter_mut();
        residents.for_each(ResidentPipeline::retire_abandoned);
    }

    fn report(&self) {
        let residents = self.residents.iter();
        self.board.report(residents.map(ResidentPipeline::status));
    }

    fn is_paused(&self) -> bool {
        self.board.is_paused()
    }

    fn queues(&self) -> Vec<Queue> {
        let residents = self.residents.iter();
        residents.map(ResidentPipeline::queue).collect()
    }

    fn step(&mut self, index: usize) {
        self.residents[index].advance();
    }

    fn stop(self) {
        for resident in self.residents {
            self.board.delist(&resident.name);
            resident.close(&Failure::Stopped);
        }
    }
}
