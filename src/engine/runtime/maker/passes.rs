//! A job as an asynchronous function that stops after each block and reports on its way.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Advance, Making};
use crate::runtime::Failure;

/// A function on its way.
pub struct PassJob {
    pass: Option<PassFuture>,
    reports: PassReports,
}

type PassFuture = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// Reports that were not delivered yet.
#[derive(Clone, Default)]
pub struct PassReports(Arc<Mutex<VecDeque<Advance>>>);

impl PassJob {
    /// `begin` gets the place for reports.
    pub fn new<F, E>(begin: impl FnOnce(PassReports) -> F) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        let reports = PassReports::default();
        let pass = begin(reports.clone());
        Self {
            pass: Some(Box::pin(async { pass.await.map_err(Into::into) })),
            reports,
        }
    }
}

impl Making for PassJob {
    fn advance(&mut self) -> Result<Advance, Failure> {
        if let Some(report) = self.reports.take() {
            return Ok(report);
        }
        let Some(pass) = &mut self.pass else {
            return Ok(Advance::Done);
        };
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(ended) = pass.as_mut().poll(&mut context) {
            self.pass = None;
            ended?;
        }
        Ok(self.reports.take().unwrap_or(Advance::Busy))
    }
}

impl PassReports {
    fn take(&self) -> Option<Advance> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    }

    pub fn put(&self, report: Advance) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(report);
    }
}
