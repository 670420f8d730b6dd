//! Handles for callers: [`Runtime`] submits requests, [`Generation`] receives events.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use super::device_thread::{self, ThreadHandle};
use super::encode::Purpose;
use super::engine::{Command, EncodeBatch, Engine, Loader};
use super::grammar::{Prover, ProverProgram};
use super::load::{self, LoadError, ModelSource};
use super::prepare::{check_ids, prepare};
use super::scheduler::Limits;
use super::shared::Shared;
use super::text::Language;
use super::{
    DeviceChoice, EncoderInput, EngineLimits, Event, Failure, ImageInput, ModelInfo, PAGE_TOKENS,
    Status, TextRequest,
};

/// A handle to an inference thread. After the last clone is dropped the thread finishes running jobs and ends.
#[derive(Clone)]
pub struct Runtime {
    thread: ThreadHandle<Command>,
    shared: Arc<Shared>,
    /// One permit per job that may run or wait.
    places: Arc<Semaphore>,
    /// Tokens that are encoded in one step, where no sequence has more.
    batch_tokens: usize,
}

/// A job's events. Dropping it cancels the job within one step.
pub struct Generation {
    events: mpsc::Receiver<Event>,
    wake: mpsc::WeakSender<Command>,
    has_ended: bool,
}

impl Runtime {
    /// Starts the thread of a device.
    pub fn start(device: DeviceChoice, limits: EngineLimits) -> Result<Self, LoadError> {
        let device = device.open()?;
        Self::start_with(load::loader(device), limits)
    }

    pub(super) fn start_with(loader: Loader, limits: EngineLimits) -> Result<Self, LoadError> {
        let places = limits.max_running + limits.max_waiting;
        let shared = Arc::new(Shared::default());
        let steps = Limits {
            max_running: limits.max_running,
            prefill_chunk: limits.prefill_chunk,
        };
        let engine = Engine::new(loader, steps, limits.speculation, Arc::clone(&shared));
        let body = move |inbox| device_thread::run(engine, inbox);
        Ok(Self {
            thread: ThreadHandle::start("muster-engine", places, body)?,
            shared,
            places: Arc::new(Semaphore::new(places)),
            batch_tokens: limits.prefill_chunk,
        })
    }

    /// From now on, models check grammars in a child process of this program before compiling them. Without it a
    /// client's grammar may crash this process.
    pub fn prove_grammars_with(&self, program: ProverProgram) {
        self.shared.prove_with(Prover::new(program));
    }

    /// Loads a model under a name. Running jobs are suspended meanwhile. `progress` gets the loaded and total bytes.
    pub async fn load(
        &self,
        name: &str,
        source: ModelSource,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<Arc<ModelInfo>, LoadError> {
        let loaded = self.thread.ask(|reply| Command::Load {
            name: name.to_owned(),
            source: Box::new(source),
            progress: Box::new(progress),
            reply,
        });
        loaded.await.unwrap_or(Err(LoadError::Stopped))
    }

    /// Loads an adapter of a generative model, for jobs that name it as their model. Running jobs are suspended
    /// meanwhile.
    pub async fn load_adapter(
        &self,
        name: &str,
        base: &str,
        path: PathBuf,
    ) -> Result<Arc<ModelInfo>, LoadError> {
        let loaded = self.thread.ask(|reply| Command::LoadAdapter {
            name: name.to_owned(),
            base: base.to_owned(),
            path,
            reply,
        });
        loaded.await.unwrap_or(Err(LoadError::Stopped))
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.has_ended()
    }

    /// Gives the memory of a model with its adapters back, or that of an adapter. Jobs that still run on it fail.
    pub async fn unload(&self, name: &str) -> Result<(), Failure> {
        let name = name.to_owned();
        let unloaded = self.thread.ask(|reply| Command::Unload { name, reply });
        unloaded.await?
    }

    /// Changes the KV cache of a model to this many tokens, in whole pages, but keeps room for the longest sequence that
    /// the model takes. Running jobs go on; where their pages do not fit, the youngest read their tokens again later.
    /// Returns the tokens of the cache. After an error the model's jobs have failed.
    pub async fn resize_cache(&self, name: &str, tokens: usize) -> Result<usize, Failure> {
        let (name, pages) = (name.to_owned(), tokens / PAGE_TOKENS);
        let resized = self
            .thread
            .ask(|reply| Command::ResizeCache { name, pages, reply });
        Ok(resized.await?? * PAGE_TOKENS)
    }

    /// Returns when the device is idle: running jobs keep their state, and new jobs are refused.
    pub async fn pause(&self) -> Result<(), Failure> {
        self.thread.ask(Command::Pause).await
    }

    pub async fn resume(&self) -> Result<(), Failure> {
        self.thread.ask(Command::Resume).await
    }

    /// How to read and write with a model.
    pub fn language(&self, model: &str) -> Result<Arc<Language>, Failure> {
        Ok(self.shared.board.listing(model)?.language)
    }

    /// Properties of a loaded model.
    pub fn info(&self, model: &str) -> Result<Arc<ModelInfo>, Failure> {
        Ok(self.shared.board.listing(model)?.info)
    }

    /// How a model takes images; `None` of one that does not see.
    pub fn image_input(&self, model: &str) -> Result<Option<Arc<ImageInput>>, Failure> {
        Ok(self.shared.board.listing(model)?.images)
    }

    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Starts a job, or refuses it at once. The prompt is rendered and tokenized off the inference thread.
    pub async fn generate(&self, request: TextRequest) -> Result<Generation, Failure> {
        let listing = self.shared.board.listing(&request.model)?;
        if listing.info.purpose != Purpose::Generate {
            let model = &request.model;
            let message = format!("the model {model} encodes texts and does not write any");
            return Err(Failure::BadRequest(message));
        }
        if self.shared.board.is_paused() {
            return Err(Failure::Paused);
        }
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| self.busy())?;
        let prepared = tokio::task::spawn_blocking(move || prepare(request, &listing, place));
        let (job, events) = prepared.await.map_err(Failure::internal)??;
        let job = Command::Run(Box::new(job));
        self.thread.submit(job, || self.busy())?;
        Ok(Generation {
            events,
            wake: self.thread.downgrade(),
            has_ended: false,
        })
    }

    /// Encodes sequences: a vector of each, or one score. Batches have as many tokens as a step of a prompt
    /// has, so that texts flow on meanwhile.
    pub async fn encode(
        &self,
        model: &str,
        sequences: Vec<EncoderInput>,
    ) -> Result<Vec<Vec<f32>>, Failure> {
        let info = self.info(model)?;
        check(&info, &sequences)?;
        let mut encoded = Vec::with_capacity(sequences.len());
        for sequences in batches(sequences, self.batch_tokens) {
            if self.shared.board.is_paused() {
                return Err(Failure::Paused);
            }
            let model = model.to_owned();
            let more = self.thread.ask(|reply| {
                Command::Encode(EncodeBatch {
                    model,
                    sequences,
                    reply,
                })
            });
            encoded.extend(more.await??);
        }
        Ok(encoded)
    }

    /// Waits until the thread has ended, which only a panic causes while a `Runtime` exists.
    pub async fn ended(&self) {
        self.thread.ended().await;
    }

    /// Waits until the thread has ended: until every other `Runtime` is dropped and running jobs have finished.
    pub async fn drain(self) {
        self.thread.drain().await;
    }

    fn busy(&self) -> Failure {
        let Status {
            running, waiting, ..
        } = self.status();
        Failure::Busy { running, waiting }
    }
}

/// Refuses sequences that are too long, with the numbers.
fn check(info: &ModelInfo, sequences: &[EncoderInput]) -> Result<(), Failure> {
    for sequence in sequences {
        let (found, limit) = (sequence.tokens.len(), info.context);
        if found > limit {
            return Err(Failure::PromptTooLong { found, limit });
        }
        if found == 0 {
            let message = "a text without tokens has no meaning: send at least one token";
            return Err(Failure::BadRequest(message.to_owned()));
        }
        check_ids("a text", &sequence.tokens, info.vocabulary)?;
    }
    Ok(())
}

/// Batches in order, each with at most `most_tokens` tokens or a single sequence.
fn batches(sequences: Vec<EncoderInput>, most_tokens: usize) -> Vec<Vec<EncoderInput>> {
    let (mut batches, mut tokens) = (Vec::<Vec<EncoderInput>>::new(), 0);
    for sequence in sequences {
        tokens += sequence.tokens.len();
        match batches.last_mut() {
            Some(batch) if tokens <= most_tokens => batch.push(sequence),
            _ => {
                tokens = sequence.tokens.len();
                batches.push(vec![sequence]);
            }
        }
    }
    batches
}

impl Generation {
    /// The next event. After [`Event::Done`] or [`Event::Failed`], which always comes, `None`.
    pub async fn next(&mut self) -> Option<Event> {
        if self.has_ended {
            return None;
        }
        let event = self
            .events
            .recv()
            .await
            .unwrap_or(Event::Failed(Failure::Stopped));
        self.has_ended = matches!(event, Event::Done { .. } | Event::Failed(_));
        Some(event)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.events.close();
        if self.has_ended {
            return;
        }
        // Wakes a paused thread. A thread with a full inbox is awake anyway.
        if let Some(inbox) = self.wake.upgrade() {
            let _ = inbox.try_send(Command::Wake);
        }
    }
}
