//! Grammar sources are first compiled in a child process, which can be killed.
//!
//! The library that compiles grammars may recurse, allocate or compute without end, and nothing stops it from inside. A
//! prover compiles a source and generates random text from it; only sources that pass are compiled here. Masks stay in
//! this process, where they take microseconds: a matcher has no serialized form, and proven sources are bounded by the
//! library's own limits on items and lexer states. A prover has a vocabulary of bytes, so it needs nothing of the
//! model.

mod child;

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::runtime::Failure;
use muster_process::child::{ChildProcess, Death, to_bytes};

pub use child::serve;

/// Time and memory limits per source.
const PROOF_TIME: Duration = Duration::from_secs(3);
const MEMORY: u64 = 512 << 20;
/// Schemas are compiled recursively.
const STACK: usize = 16 << 20;
/// Sources after which a prover is started anew, since memory of the earlier ones may be in pieces.
const MOST_PROOFS: u32 = 256;
/// Verdicts that are remembered.
const MOST_KNOWN: usize = 4096;
/// A source that took too long is tried again after this: the machine may have been busy.
const TOO_SLOW_FOR: Duration = Duration::from_secs(60);

/// How a prover is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProverProgram {
    /// This executable, with the arguments that make it call [`serve`].
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

/// The prover's verdict on a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    Sound,
    /// The reason is shown to the client.
    Refused(String),
}

/// The provers of one engine.
pub struct Prover {
    program: ProverProgram,
    idle: Mutex<Vec<RunningProver>>,
    known: Mutex<Verdicts>,
}

struct RunningProver {
    process: ChildProcess,
    proofs: u32,
}

/// Why a source is not compiled, and until when that is known.
struct RememberedRefusal {
    reason: String,
    until: Option<Instant>,
}

/// Keyed by seeded hashes, so that clients cannot construct collisions.
#[derive(Default)]
struct Verdicts {
    keys: [RandomState; 2],
    sound: HashSet<[u64; 2]>,
    refused: HashMap<[u64; 2], RememberedRefusal>,
    /// The oldest first.
    order: VecDeque<[u64; 2]>,
}

impl Prover {
    pub fn new(program: ProverProgram) -> Self {
        Self {
            program,
            idle: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Fails if the source must not be compiled. Verdicts are cached, whatever their cost.
    pub fn prove(&self, source: &TopLevelGrammar) -> Result<(), Failure> {
        let frame = to_bytes(source);
        let proof = match self.verdict(&frame) {
            Some(proof) => proof,
            None => {
                let (proof, until) = self.ask(&frame)?;
                lock(&self.known).note(&frame, &proof, until);
                proof
            }
        };
        match proof {
            Proof::Sound => Ok(()),
            Proof::Refused(reason) => Err(Failure::BadRequest(format!(
                "the grammar cannot be compiled: {reason}"
            ))),
        }
    }

    /// Cached refusals are returned without waiting for a slot.
    pub fn known_refusal(&self, source: &TopLevelGrammar) -> Option<Failure> {
        match self.verdict(&to_bytes(source))? {
            Proof::Sound => None,
            Proof::Refused(reason) => Some(Failure::BadRequest(format!(
                "the grammar cannot be compiled: {reason}"
            ))),
        }
    }

    fn verdict(&self, frame: &[u8]) -> Option<Proof> {
        lock(&self.known).of(frame)
    }

    /// The prover's verdict, and its expiry.
    fn ask(&self, frame: &[u8]) -> Result<(Proof, Option<Instant>), Failure> {
        let idle = lock(&self.idle).pop();
        if let Some(prover) = idle {
            match self.ask_one(prover, frame) {
                Ok(proof) => return Ok((proof, None)),
                Err(death @ Death::Time(_)) => return Ok(refused_by(&death)),
                // Memory of earlier sources may have been in the way: a fresh prover decides.
                Err(_) => {}
            }
        }
        let told = self.ask_one(self.start()?, frame);
        Ok(told.map_or_else(|death| refused_by(&death), |proof| (proof, None)))
    }

    /// The prover waits for the next source afterwards, unless it died.
    fn ask_one(&self, mut prover: RunningProver, frame: &[u8]) -> Result<Proof, Death> {
        let proof = prover.process.ask(frame, PROOF_TIME)?;
        prover.proofs += 1;
        if prover.proofs < MOST_PROOFS {
            lock(&self.idle).push(prover);
        }
        Ok(proof)
    }

    fn start(&self) -> Result<RunningProver, Failure> {
        let ProverProgram { program, arguments } = &self.program;
        let process = ChildProcess::start(program, arguments).map_err(|error| {
            Failure::internal(format!(
                "starting {} to check a grammar failed: {error}",
                program.display()
            ))
        })?;
        Ok(RunningProver { process, proofs: 0 })
    }
}

fn refused_by(death: &Death) -> (Proof, Option<Instant>) {
    warn!("a grammar ended its prover, it is refused: {death}");
    let is_slow = matches!(death, Death::Time(_));
    let until = is_slow.then(|| Instant::now() + TOO_SLOW_FOR);
    (Proof::Refused(reason(death)), until)
}

/// The error text for clients.
fn reason(death: &Death) -> String {
    match death {
        Death::Time(limit) => format!(
            "it is too complex: compiling took over {} s",
            limit.as_secs()
        ),
        Death::Memory => format!(
            "it is too complex: compiling took over {} MiB",
            MEMORY >> 20
        ),
        Death::Stack => "it recurses without end, or holds a number that it cannot".to_owned(),
        Death::Other(_) => "compiling it failed".to_owned(),
    }
}

impl Verdicts {
    fn key(&self, frame: &[u8]) -> [u64; 2] {
        [0, 1].map(|which: usize| self.keys[which].hash_one(frame))
    }

    fn of(&self, frame: &[u8]) -> Option<Proof> {
        let key = self.key(frame);
        if self.sound.contains(&key) {
            return Some(Proof::Sound);
        }
        let refusal = self.refused.get(&key)?;
        let is_known = refusal.until.is_none_or(|until| Instant::now() < until);
        is_known.then(|| Proof::Refused(refusal.reason.clone()))
    }

    fn note(&mut self, frame: &[u8], proof: &Proof, until: Option<Instant>) {
        let key = self.key(frame);
        match proof {
            Proof::Sound => drop(self.sound.insert(key)),
            Proof::Refused(reason) => {
                let reason = reason.clone();
                drop(
                    self.refused
                        .insert(key, RememberedRefusal { reason, until }),
                );
            }
        }
        self.order.push_back(key);
        if self.order.len() > MOST_KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.sound.remove(&oldest);
            self.refused.remove(&oldest);
        }
    }
}

/// A panic while holding the lock cannot leave these values half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Proof, Verdicts};

    #[test]
    fn a_source_that_took_too_long_is_tried_again_later() {
        let mut known = Verdicts::default();
        let refused = Proof::Refused("slow".to_owned());
        let now = Instant::now();
        known.note(b"late", &refused, Some(now));
        known.note(b"slow", &refused, Some(now + Duration::from_secs(600)));
        known.note(b"wrong", &refused, None);
        known.note(b"sound", &Proof::Sound, None);
        assert_eq!(known.of(b"late"), None);
        assert_eq!(known.of(b"slow"), Some(refused.clone()));
        assert_eq!(known.of(b"wrong"), Some(refused));
        assert_eq!(known.of(b"sound"), Some(Proof::Sound));
        assert_eq!(known.of(b"new"), None);
    }
}
