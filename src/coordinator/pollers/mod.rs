//! Polling workers: they pop jobs and submit results over HTTP, as in the AI Horde API.
//!
//! | file | contents |
//! | --- | --- |
//! | `badge` | job tickets, which cannot be forged |
//! | `poller` | a polling worker and its last pop |
//! | `chat` | a polling worker's text, parsed as an assistant's message |
//! | `claim` | jobs leased by an earlier process |
//! | `held` | leases and their owners |
//!
//! To dispatch a polling worker is a session that has a free slot only during a pop. The worker is online while it
//! polls often enough, which is watched here. Leases are not stored: after a restart the jobs are queued again, a
//! worker registers with every pop anyway, and its job tickets prove its leases.

mod badge;
mod chat;
mod claim;
mod held;
mod poller;

#[cfg(test)]
mod tests;

pub use badge::{Badge, Badges};
pub use held::NotTaken;
pub use poller::{Ask, NotServed};

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OwnedMutexGuard;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use super::accounts::Caller;
use super::dispatch::{Frame, MOST_ATTEMPTS, Offer, Said, Skipped, Wants};
use super::metering::Meter;
use super::names::Names;
use super::rigs::{Applicant, NotAdmitted, Rigs};
use super::storage::Store;
use super::switchboard::{Brought, Lent, Pop, Receipt, Switchboard};
use super::turns::Turns;
use crate::values::Roles;
use crate::values::suspicion::Reason;
use muster_process::tasks::Tasks;
use muster_protocol::job::drawn::Drawn;
use muster_protocol::job::{
    AccountId, Event, Failure, FailureKind, FinishReason, Hidden, JobId, Kind, Kudos, Note,
    Product, Progress, TokenEvent, Usage, WorkerId,
};

use held::{Held, Out};
use poller::Poller;

/// A worker that has not polled for this long is offline.
const ONLINE: Duration = Duration::from_secs(300);
/// Number of attempts of a job with tickets, those of an earlier process first.
const ATTEMPTS: u32 = 2 * MOST_ATTEMPTS;
/// Kinds of polling workers.
const POLLED: [Kind; 3] = [Kind::Image, Kind::Text, Kind::Form];
const SWEEP: Duration = Duration::from_secs(10);
/// A submit is answered within this time: stored, or submit again.
const WRITTEN: Duration = Duration::from_secs(25);

/// All polling workers. Clones share the state.
#[derive(Debug, Clone)]
pub struct Pollers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    switchboard: Switchboard,
    rigs: Rigs,
    store: Store,
    names: Names,
    badges: Badges,
    meter: Meter,
    tasks: Tasks,
    /// How long a submit waits for the database.
    patience: Duration,
    /// Each with its own lock: pops of one worker are handled in order.
    by_name: Mutex<HashMap<Arc<str>, Arc<tokio::sync::Mutex<Poller>>>>,
    held: Mutex<Held>,
    /// Serialises claims of the same job.
    claims: Turns<JobId>,
}

/// The reply to a pop.
#[derive(Debug)]
pub struct Given {
    /// The receiving worker.
    pub worker: WorkerId,
    pub badge: Badge,
    /// Jobs of one request, which return to the queue unless kept.
    pub offers: Lent,
    /// The worker's name for their model.
    pub model: Option<Arc<str>>,
    /// Reasons of an empty pop.
    pub skipped: Skipped,
}

/// An attempt whose submit is being handled exclusively.
#[derive(Debug)]
pub struct Attempt {
    /// The job ticket.
    pub id: JobId,
    pub kind: Kind,
    /// Bounds of the image's size.
    pub drawn: Drawn,
    /// Held until dropped, so that concurrent submits of the same attempt take turns.
    _alone: OwnedMutexGuard<()>,
}

/// A worker's result of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Made {
    Brought {
        product: Product,
        /// Set if the worker censored the output.
        hidden: Option<Hidden>,
    },
    /// The worker failed the job.
    Fault,
}

impl Given {
    /// Tickets of the offered jobs.
    pub fn ids(&self) -> Vec<JobId> {
        let ids = self.offers.iter().map(|offer| self.badge.id_of(offer));
        ids.collect()
    }
}

impl Pollers {
    pub fn start(
        switchboard: Switchboard,
        rigs: Rigs,
        words: (Names, Badges),
        tasks: &Tasks,
    ) -> Self {
        Self::waiting(WRITTEN, switchboard, rigs, (words, tasks))
    }

    fn waiting(
        patience: Duration,
        switchboard: Switchboard,
        rigs: Rigs,
        ((names, badges), tasks): ((Names, Badges), &Tasks),
    ) -> Self {
        let pollers = Self(Arc::new(Inner {
            switchboard,
            store: rigs.store().clone(),
            rigs,
            names,
            badges,
            meter: Meter::start(tasks),
            tasks: tasks.clone(),
            patience,
            by_name: Mutex::default(),
            held: Mutex::default(),
            claims: Turns::for_each(|_| 1),
        }));
        let (swept, stopping) = (pollers.clone(), tasks.stopping());
        tasks.start(async move {
            let _ = stopping.run_until_cancelled(swept.sweep_on()).await;
        });
        pollers
    }

    /// Offers the next jobs to this worker, and keeps it registered from now on.
    pub async fn pop(&self, caller: &Caller, ask: Ask, wants: Wants) -> Result<Given, NotServed> {
        if !caller.is_for_worker(&ask.name) {
            return Err(NotServed::OtherRig);
        }
        let poller = self.poller(caller, &ask).await?;
        let mut poller = poller.lock().await;
        // A poller created by a submit has no record yet.
        let recalled = self.0.rigs.recall(poller.row.id).await;
        recalled.map_err(|_| NotServed::Unavailable)?;
        self.check(&poller, caller, &ask)?;
        if wants.own_only {
            self.0.rigs.suspect_of(poller.row.id, Reason::UnsafeAddress);
        }
        let longest = ask.reach.text.output;
        poller.vouch(caller.roles.contains(Roles::TRUSTED));
        let said = poller.news_for(&ask);
        self.0.rigs.check_in(poller.row.id, said).await;
        let news = poller.take_in(ask, &self.0.names, &self.0.switchboard);
        let is_doubted = self.0.rigs.is_doubted(poller.row.id);
        let wants = Wants {
            decoys: is_doubted.then(|| poller.shown()),
            ..wants
        };
        let popped = self.ask(&mut poller, news, wants).await?;
        if popped.own_only && popped.offers.is_empty() {
            self.explain_own_only(&poller)?;
        }
        let offers = match popped.decoy {
            Some(decoy) => Lent::copy(self.hand_out_decoy(&mut poller, decoy)),
            None => self.hand_out(&poller, popped.offers, longest),
        };
        let first = offers.first();
        Ok(Given {
            worker: poller.row.id,
            badge: self.0.badges.of(poller.row.id),
            model: first.map(|offer| poller.own_name(&offer.model, &self.0.names)),
            offers,
            skipped: popped.skipped,
        })
    }

    fn hand_out(&self, poller: &Poller, offers: Lent, longest: u32) -> Lent {
        let badge = self.0.badges.of(poller.row.id);
        let mut held = self.held();
        for offer in offers.iter() {
            held.add(badge.id_of(offer), offer, poller.row.owner, longest);
        }
        offers
    }

    fn hand_out_decoy(&self, poller: &mut Poller, decoy: Offer) -> Offer {
        let decoy = poller.decoy(decoy);
        let id = self.0.badges.of(poller.row.id).id_of(&decoy);
        self.held().add_decoy(id, &decoy, poller.row.owner);
        decoy
    }

    /// Submits a result for this attempt while no other submit of the attempt is handled. Returns when it is stored.
    pub async fn bring_alone(
        &self,
        owner: AccountId,
        attempt: Attempt,
        made: Made,
    ) -> Result<Kudos, NotTaken> {
        let out = self.out(owner, attempt.id, &[attempt.kind]).await?;
        let Err(too_long) = check_length(&out, &made) else {
            return self.bring_holding(attempt, out, made).await;
        };
        // A too long result counts as a fault, so the job goes to another worker.
        let _ = self.bring_holding(attempt, out, Made::Fault).await;
        Err(too_long)
    }

    /// Runs in a task, so that it completes even if the worker disconnects.
    async fn bring_holding(
        &self,
        attempt: Attempt,
        out: Out,
        made: Made,
    ) -> Result<Kudos, NotTaken> {
        if out.decoy {
            match made {
                Made::Brought { .. } => self.held().brought(out.id),
                Made::Fault => self.held().given_back(out.id),
            }
            return Ok(Kudos(0));
        }
        let pollers = self.clone();
        let bringing = self.0.tasks.start(async move {
            let brought = pollers.hand_over(&out, made).await;
            drop(attempt);
            brought
        });
        bringing.await.unwrap_or(Err(NotTaken::Unavailable))
    }

    async fn hand_over(&self, out: &Out, made: Made) -> Result<Kudos, NotTaken> {
        let id = out.id;
        let is_whole = matches!(made, Made::Brought { .. });
        let (made, finish) = self.read(out, made).await;
        let brought = Brought {
            job: out.job,
            attempt: out.attempt,
            frames: frames(out, made, finish),
        };
        let bringing = self.0.switchboard.bring(brought);
        match timeout(self.0.patience, bringing).await {
            Ok(Ok(Receipt::Taken(reward))) => {
                let mut held = self.held();
                match is_whole {
                    true => held.delivered(id),
                    // The job may be requeued, and nothing of it is stored.
                    false => held.given_back(id),
                }
                Ok(reward)
            }
            Ok(Ok(Receipt::NotWanted)) => Err(self.not_wanted(out).await),
            // The result is not lost: the database write is retried, and the repeated submit gets its outcome.
            Ok(Err(_)) | Err(_) => {
                self.held().unsure(id);
                Err(NotTaken::Unavailable)
            }
        }
    }

    /// The reason of a refused submit; an earlier one may have been stored meanwhile.
    async fn not_wanted(&self, out: &Out) -> NotTaken {
        let id = out.id;
        if out.unsure {
            match self.0.store.delivered(&[out.job], out.kind).await {
                Err(_) => return NotTaken::Unavailable,
                Ok(Some(true)) => self.held().delivered(id),
                Ok(Some(false) | None) => {}
            }
        }
        self.held().refused(id)
    }

    /// Parses the output and its finish reason. Clients of the AI Horde API get the text as submitted.
    async fn read(&self, out: &Out, made: Made) -> (Made, FinishReason) {
        match (&out.turn, made) {
            (
                Some(turn),
                Made::Brought {
                    product: Product::Text(text),
                    hidden: None,
                },
            ) => {
                let (text, finish) = turn.read(&text.text, &self.0.meter).await;
                let product = Product::from(text);
                (
                    Made::Brought {
                        product,
                        hidden: None,
                    },
                    finish,
                )
            }
            (_, made) => (made, FinishReason::Stop),
        }
    }

    /// The attempt of this account's worker with this ticket, perhaps from an earlier process, if its kind matches.
    /// Checking and storing an image takes a while: of several concurrent submits for one job the first is handled, and
    /// the others only if it was refused.
    pub async fn attempt(
        &self,
        owner: AccountId,
        id: JobId,
        kind: Kind,
    ) -> Result<Attempt, NotTaken> {
        let before = self.out(owner, id, &[kind]).await?;
        let alone = before.alone.lock_owned().await;
        let out = self.held().take(before.id, owner)?;
        Ok(Attempt {
            id: out.id,
            kind: out.kind,
            drawn: out.drawn,
            _alone: alone,
        })
    }

    /// The lease of this account's worker, perhaps from an earlier process, if it is of one of these kinds.
    async fn out(&self, owner: AccountId, id: JobId, kinds: &[Kind]) -> Result<Out, NotTaken> {
        if let Some(out) = self.out_here(owner, id, kinds) {
            return out;
        }
        // Of several concurrent claims the first one runs, and the others find its lease.
        let _turn = self.0.claims.turn(id).await;
        if let Some(out) = self.out_here(owner, id, kinds) {
            return out;
        }
        for &kind in kinds {
            match self.claim(owner, id, kind).await {
                Err(NotTaken::Unknown) => {}
                claimed => return claimed,
            }
        }
        Err(NotTaken::Unknown)
    }

    /// `None` if this process does not know the ticket.
    fn out_here(
        &self,
        owner: AccountId,
        id: JobId,
        kinds: &[Kind],
    ) -> Option<Result<Out, NotTaken>> {
        let held = self.held();
        let known = held.kind(id)?;
        Some(match kinds.contains(&known) {
            true => held.take(id, owner),
            false => Err(NotTaken::Unknown),
        })
    }

    /// Records a worker's progress. Claims a job leased by an earlier process, so that no other worker gets it.
    pub async fn progress(
        &self,
        owner: AccountId,
        id: JobId,
        progress: Progress,
    ) -> Result<(), NotTaken> {
        let out = self.out(owner, id, &POLLED).await?;
        if out.decoy {
            return Ok(());
        }
        self.held().goes_on(id);
        let frame = frame(&out, Event::Progress(progress));
        let said = self.0.switchboard.said(frame).await;
        said.map_err(|_| NotTaken::Unavailable)
    }

    /// Removes a deleted worker.
    pub fn forget(&self, name: &str) {
        self.by_name().remove(name);
    }

    /// Renames a worker, which keeps its leases.
    pub async fn rename(&self, from: &str, to: &str) {
        let known = {
            let mut by_name = self.by_name();
            let known = by_name.remove(from);
            known.inspect(|poller| {
                by_name.insert(to.into(), poller.clone());
            })
        };
        if let Some(poller) = known {
            poller.lock().await.rename(to);
        }
    }

    /// A name stays bound to its owner and its kind of worker.
    fn check(&self, poller: &Poller, caller: &Caller, ask: &Ask) -> Result<(), NotServed> {
        let trade = self.0.rigs.trade(poller.row.id);
        if trade.is_some_and(|trade| Some(trade) != ask.trade()) {
            return Err(NotAdmitted::OtherTrade.into());
        }
        match poller.row.owner == caller.account {
            true => Ok(()),
            false => Err(NotAdmitted::NameTaken.into()),
        }
    }

    /// Reports maintenance to the worker; a pause is hidden from it.
    fn explain_own_only(&self, poller: &Poller) -> Result<(), NotServed> {
        match self.0.rigs.maintenance(poller.row.id) {
            Some(note) => Err(NotServed::Maintenance(note)),
            None => Ok(()),
        }
    }

    /// Fails jobs whose offers were not delivered, on behalf of the worker, which does not know of them.
    pub async fn end(&self, offers: &[Offer], failure: Failure) {
        for offer in offers {
            self.held().end(offer);
            let frame = Frame {
                session: offer.session,
                job: offer.job.id,
                attempt: Some(offer.attempt),
                seq: None,
                said: Said::Event(Event::Failed(failure.clone())),
            };
            // A stopped switchboard has no running jobs.
            let _ = self.0.switchboard.said(frame).await;
        }
    }

    async fn poller(
        &self,
        caller: &Caller,
        ask: &Ask,
    ) -> Result<Arc<tokio::sync::Mutex<Poller>>, NotServed> {
        if let Some(poller) = self.by_name().get(&ask.name) {
            return Ok(poller.clone());
        }
        let applicant = Applicant {
            name: &ask.name,
            owner: caller.account,
            roles: caller.roles,
            trade: ask.trade(),
            agent: &ask.agent,
            address: &ask.said.address,
        };
        let row = self.0.rigs.meet(&applicant).await?;
        let poller = Poller::new(row);
        let mut by_name = self.by_name();
        let known = by_name.entry(ask.name.clone());
        let known = known.or_insert_with(|| Arc::new(tokio::sync::Mutex::new(poller)));
        Ok(known.clone())
    }

    /// Pops, and registers again if the session has ended meanwhile.
    async fn ask(
        &self,
        poller: &mut Poller,
        news: Option<super::switchboard::News>,
        wants: Wants,
    ) -> Result<super::switchboard::Popped, NotServed> {
        let board = &self.0.switchboard;
        let mut news = news;
        for _ in 0..2 {
            let pop = Pop {
                session: poller.session,
                news: news.take(),
                wants: wants.clone(),
            };
            let popped = board.pop(pop).await.map_err(|_| NotServed::Unavailable)?;
            if let Some(popped) = popped {
                return Ok(popped);
            }
            news = Some(poller.introduce(&self.0.names, board));
        }
        Err(NotServed::Barred)
    }

    /// Ends sessions of workers that stopped polling, and forgets expired leases.
    async fn sweep_on(self) {
        loop {
            sleep(SWEEP).await;
            let now = Instant::now();
            while self.held().forget(now) {
                yield_now().await;
            }
            for session in self.take_absent(now) {
                // A stopped switchboard has no sessions, and the process ends.
                let _ = self.0.switchboard.lost(session).await;
            }
        }
    }

    fn take_absent(&self, now: Instant) -> Vec<super::dispatch::SessionId> {
        let mut absent = Vec::new();
        let held = self.held();
        self.by_name().retain(|_, poller| {
            let Ok(poller) = poller.try_lock() else {
                return true;
            };
            let stays = poller.seen + ONLINE > now || held.is_busy(poller.session, now);
            if !stays {
                absent.push(poller.session);
            }
            stays
        });
        absent
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<tokio::sync::Mutex<Poller>>>> {
        self.0.by_name.lock()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock()
    }
}

/// Refuses output longer than its job allows.
fn check_length(out: &Out, made: &Made) -> Result<(), NotTaken> {
    let bytes = match made {
        Made::Brought { product, .. } => product.text().len(),
        Made::Fault => 0,
    };
    let most = out.written;
    match bytes > most {
        true => Err(NotTaken::TooLong { bytes, most }),
        false => Ok(()),
    }
}

/// The frames that a socket worker would have sent. Polling workers count no tokens; settlement does.
fn frames(out: &Out, made: Made, finish: FinishReason) -> Vec<Frame> {
    let done = |finish| Event::Done {
        finish,
        usage: Usage::default(),
    };
    let token = |text| {
        Event::Token(TokenEvent {
            text,
            ..TokenEvent::default()
        })
    };
    let events = match made {
        Made::Brought { product, hidden } => {
            let output = match product {
                Product::Text(text) if text.note == Note::default() => vec![token(text.text)],
                Product::Text(text) => vec![Event::Note(text.note), token(text.text)],
                Product::Media(media) => vec![Event::Media(media)],
                Product::Transcript(_) => Vec::new(),
            };
            let finish = hidden.map_or(finish, Hidden::finish);
            output.into_iter().chain([done(finish)]).collect()
        }
        Made::Fault => vec![Event::Failed(Failure::new(
            FailureKind::WorkerFailed,
            "the worker reported a fault",
        ))],
    };
    events.into_iter().map(|event| frame(out, event)).collect()
}

fn frame(out: &Out, event: Event) -> Frame {
    Frame {
        session: out.session,
        job: out.job,
        attempt: Some(out.attempt),
        seq: None,
        said: Said::Event(event),
    }
}
