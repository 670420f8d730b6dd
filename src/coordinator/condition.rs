//! The coordinator's overall condition: starting, standby, serving or draining, and the expiry of its certificate. Read
//! by health checks and metrics, which ask the store and the media folder for their own problems.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use muster_protocol::job::UnixMillis;

/// Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Condition(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    /// 0 without a certificate.
    certificate_expiry_millis: AtomicI64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Serving,
    /// Still loading.
    Starting,
    /// Another coordinator leads; this one takes over when it stops.
    Standby,
    /// Shutting down: refuses new work, and ends when the running work has ended.
    Draining,
}

impl Condition {
    pub fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::Relaxed) {
            1 => Phase::Starting,
            2 => Phase::Draining,
            3 => Phase::Standby,
            _ => Phase::Serving,
        }
    }

    /// No phase follows `Draining`.
    pub fn enter(&self, phase: Phase) {
        let number = match phase {
            Phase::Serving => 0,
            Phase::Starting => 1,
            Phase::Draining => 2,
            Phase::Standby => 3,
        };
        if self.phase() != Phase::Draining {
            self.0.phase.store(number, Ordering::Relaxed);
        }
    }

    pub fn certificate_expiry(&self) -> Option<UnixMillis> {
        match self.0.certificate_expiry_millis.load(Ordering::Relaxed) {
            0 => None,
            millis => Some(UnixMillis(millis)),
        }
    }

    pub fn note_certificate_expiry(&self, expiry: UnixMillis) {
        let millis = &self.0.certificate_expiry_millis;
        millis.store(expiry.0, Ordering::Relaxed);
    }
}
