//! The loop on the maker's thread. A block is the unit of everything: commands are obeyed and cancelled jobs retired
//! between two blocks.
//!
//! Idle is parked on the inbox. The last [`Maker`](super::Maker) dropped closes the inbox: running jobs finish first, then
//! the thread ends.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Pipeline;
use super::handle::PipelineLoader;
use super::resident::{MakeJob, PipelinePanic, ResidentPipeline, guard};
use super::shared::MakerShared;
use crate::runtime::work::{Queue, Work, entry_level, next_work};
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
    /// Start no further block until told to resume; jobs keep their place.
    Pause(oneshot::Sender<()>),
    Resume(oneshot::Sender<()>),
    /// A stream was dropped: retire its job, even when parked.
    Wake,
}

pub struct MakerThread {
    residents: Vec<ResidentPipeline>,
    shared: Arc<MakerShared>,
    is_paused: bool,
}

pub fn run(mut maker: MakerThread, mut inbox: mpsc::Receiver<MakerCommand>) {
    loop {
        while let Ok(command) = inbox.try_recv() {
            maker.obey(command);
        }
        maker.retire_abandoned();
        maker.report();
        match maker.next_work() {
            Work::Step(index) => maker.residents[index].advance(),
            Work::Wait => match inbox.blocking_recv() {
                Some(command) => maker.obey(command),
                // A job that rested for its reader goes on.
                None if matches!(maker.next_work(), Work::Step(_)) => {}
                None => return maker.stop(),
            },
        }
    }
}

impl MakerThread {
    pub fn new(shared: Arc<MakerShared>) -> Self {
        Self {
            residents: Vec::new(),
            shared,
            is_paused: false,
        }
    }

    fn next_work(&self) -> Work {
        match self.is_paused {
            true => Work::Wait,
            false => next_work(&self.queues()),
        }
    }

    fn queues(&self) -> Vec<Queue> {
        let residents = self.residents.iter();
        residents.map(ResidentPipeline::queue).collect()
    }

    fn obey(&mut self, command: MakerCommand) {
        // A caller that is gone changes nothing: the command is obeyed all the same.
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
                self.pause(true);
                let _ = reply.send(());
            }
            MakerCommand::Resume(reply) => {
                self.pause(false);
                let _ = reply.send(());
            }
            MakerCommand::Wake => {}
        }
    }

    fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        self.shared.pause(is_paused);
    }

    fn report(&self) {
        let residents = self.residents.iter();
        self.shared.report(residents.map(ResidentPipeline::status));
    }

    fn position(&self, name: &str) -> Option<usize> {
        let mut residents = self.residents.iter();
        residents.position(|resident| resident.name == name)
    }

    fn admit(&mut self, job: MakeJob) {
        let Some(index) = self.position(&job.model) else {
            // Unloaded since the job was checked.
            let failure = self.shared.not_loaded(&job.model);
            return job.outbox.finish(Err(failure));
        };
        let level = entry_level(&self.queues(), self.residents[index].queue().served);
        self.residents[index].admit(job, level);
    }

    fn retire_abandoned(&mut self) {
        let residents = self.residents.iter_mut();
        residents.for_each(ResidentPipeline::retire_abandoned);
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
        self.shared.enlist(&name, Arc::clone(&pipeline));
        let resident = ResidentPipeline::new(name, pipeline, side_by_side);
        self.residents.push(resident);
        Ok(())
    }

    fn unload(&mut self, name: &str) -> Result<(), Failure> {
        self.shared.delist(name);
        let failure = self.shared.not_loaded(name);
        let Some(index) = self.position(name) else {
            return Err(failure);
        };
        self.residents.remove(index).close(&failure);
        memory::give_back();
        Ok(())
    }

    /// Only jobs that were paused are left: no caller can resume them.
    fn stop(self) {
        for resident in self.residents {
            self.shared.delist(&resident.name);
            resident.close(&Failure::Stopped);
        }
    }
}
