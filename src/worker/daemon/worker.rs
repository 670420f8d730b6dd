//! A worker at work: its engine on one side, its lines to coordinators on the other.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;
use tracing::warn;
use url::Url;

use super::engines::Fleet;
use super::jobs::{self, Shop};
use super::look::{Look, set_status};
use super::owner::Availability;
use super::pace::Paces;
use super::registration::{claims, registration};
use super::served::{OfferTerms, PolledTerms, Served};
use super::summary::{self, Activity, Counters};
use super::throttle::keep_duty;
use crate::link::legacy::{self, PolledKind, Polling};
use crate::link::{Condition, Dial, Line, Link, Offer, Standing, WAITING_OFFERS};
use muster_engine::runtime::Failure;
use muster_process::tasks::Tasks;
use muster_protocol::link::Registration;

/// Years of coordinators know agents as name, version and address.
const AGENT: &str = concat!("Muster:", env!("CARGO_PKG_VERSION"), ":worker");
/// Time for the lines to close, in addition to the grace period.
const FAREWELL: Duration = Duration::from_secs(3);

/// A coordinator, and the worker's identity there.
#[derive(Clone)]
pub struct Post {
    /// The coordinator's name in the log.
    pub label: String,
    pub way: Way,
    pub key: String,
    pub name: String,
    /// Hosts of links besides its own.
    pub media_hosts: Vec<String>,
    pub terms: OfferTerms,
}

/// How the work comes.
#[derive(Clone)]
pub enum Way {
    Socket {
        dial: Dial,
        /// Sockets towards a coordinator that gives each one job at a time.
        sockets: usize,
    },
    /// By the AI Horde API: the worker pops jobs and submits results.
    Calls {
        base: Url,
        tls: Arc<ClientConfig>,
        /// Jobs at once.
        jobs: usize,
        /// The software name sent to the coordinator, if it differs from ours.
        agent: Option<String>,
    },
}

/// The models that a worker offers, and the threads that run them. Both change while it works.
#[derive(Clone)]
pub struct Stock {
    pub fleet: Fleet,
    pub served: Served,
}

/// Takes jobs from its coordinators and does them.
pub struct Worker {
    stock: watch::Sender<Stock>,
    condition: watch::Sender<Condition>,
    availability: watch::Sender<Availability>,
    lines: Vec<PostLine>,
    counters: Counters,
    /// How fast its jobs were lately.
    pub paces: Arc<Paces>,
}

/// A line to a coordinator.
struct PostLine {
    /// The coordinator's name in the log.
    label: String,
    link: Link,
    models: LineModels,
}

/// The models that a line offers, and the channel of their updates.
enum LineModels {
    Socket(Box<Post>, watch::Sender<Registration>),
    Calls {
        terms: PolledTerms,
        served: watch::Sender<legacy::Served>,
    },
}

impl Worker {
    /// Begins to work at every post. Returns at once; [`connected`](Self::connected) waits.
    pub fn start(fleet: impl Into<Fleet>, served: Served, posts: Vec<Post>, tasks: &Tasks) -> Self {
        let fleet = fleet.into();
        posts.iter().for_each(|post| served.tell_unknown(post));
        let (offers, taken) = mpsc::channel(WAITING_OFFERS);
        let (condition, heard) = watch::channel(Condition::default());
        let (availability, is_available) = watch::channel(Availability::Open);
        let shop = Shop {
            fleet: fleet.clone(),
            availability: is_available,
            paces: Arc::default(),
            counters: Counters::default(),
            captioning: served.captioning(),
            upstreams: served.upstreams.clone().into(),
        };
        let (counters, paces) = (shop.counters.clone(), Arc::clone(&shop.paces));
        let (stock, stocked) = watch::channel(Stock { fleet, served });
        let look = Look::new(stocked.clone(), shop.clone(), condition.clone());
        tasks.start(look.keep(tasks.clone()));
        tasks.start(take_offers(taken, shop, stocked.clone(), tasks.clone()));
        let Stock { fleet, served } = stocked.borrow().clone();
        let claims = claims(&fleet, &served);
        let keep = |post: Post| match post.way.clone() {
            Way::Socket { dial, sockets } => {
                let offered = served.offered_to(&post.terms);
                let (told, registration) =
                    watch::channel(registration(&post, &offered, claims.clone()));
                let line = Line {
                    registration,
                    label: post.label.clone(),
                    dial,
                    sockets,
                    media_hosts: post.media_hosts.clone(),
                    permissions: post.terms.permissions,
                };
                let link = line.keep(&offers, &heard, tasks);
                let label = post.label.clone();
                let models = LineModels::Socket(Box::new(post), told);
                vec![PostLine {
                    label,
                    link,
                    models,
                }]
            }
            Way::Calls {
                base,
                tls,
                jobs,
                agent,
            } => {
                let terms = PolledTerms {
                    jobs,
                    offer: post.terms.clone(),
                };
                let kinds = served.to_those_polled(&terms, &fleet);
                if served.draws() && !fleet.can_judge() {
                    let label = &post.label;
                    warn!(
                        "{label} is polled for no images: set engine.safety_checker, which jobs there ask for"
                    );
                }
                let keep = |(at, served): (usize, legacy::Served)| {
                    // A name belongs to one type of worker there.
                    let name = match (at, served.kind) {
                        (0, _) | (_, PolledKind::Text) => post.name.clone(),
                        (_, PolledKind::Image) => format!("{} images", post.name),
                        (_, PolledKind::Form) => format!("{} forms", post.name),
                    };
                    let (told, served) = watch::channel(served);
                    let line = Polling {
                        label: post.label.clone(),
                        base: base.clone(),
                        tls: tls.clone(),
                        key: post.key.clone(),
                        name,
                        agent: agent.clone().unwrap_or_else(|| AGENT.to_owned()),
                        media_hosts: post.media_hosts.clone(),
                        served,
                    };
                    PostLine {
                        label: post.label.clone(),
                        link: line.keep(&offers, &heard, tasks),
                        models: LineModels::Calls {
                            terms: terms.clone(),
                            served: told,
                        },
                    }
                };
                kinds.into_iter().enumerate().map(keep).collect()
            }
        };
        let lines: Vec<PostLine> = posts.into_iter().flat_map(keep).collect();
        let is_available = availability.subscribe();
        let summary = summary::keep(counters.clone(), named(&lines), is_available, tasks.clone());
        tasks.start(summary);
        Self {
            stock,
            condition,
            availability,
            lines,
            counters,
            paces,
        }
    }

    /// Changes the offered models while running jobs continue. Returns false if the worker has to restart: a polled
    /// coordinator would need a further line for another kind of jobs, or one line less. A removed model keeps its
    /// engine until its jobs have ended.
    pub async fn offer(&self, stock: Stock) -> Result<bool, Failure> {
        let Stock { fleet, served } = stock.clone();
        let polled = |terms: &PolledTerms| served.to_those_polled(terms, &fleet);
        let has_lines = |line: &PostLine| match &line.models {
            LineModels::Socket(..) => true,
            LineModels::Calls { terms, served } => {
                let kind = served.borrow().kind;
                let kinds = polled(terms);
                let has_work = kinds.iter().any(|served| served.kind == kind);
                has_work && kinds.iter().all(|served| self.is_polled_for(served.kind))
            }
        };
        if !self.lines.iter().all(has_lines) {
            return Ok(false);
        }
        // Before the lines report a new model, since its jobs may arrive at once.
        self.stock.send_replace(stock);
        if *self.availability.borrow() == Availability::Paused {
            fleet.pause().await?;
        }
        let claims = claims(&fleet, &served);
        for line in &self.lines {
            match &line.models {
                LineModels::Socket(post, told) => {
                    let offered = served.offered_to(&post.terms);
                    let now = registration(post, &offered, claims.clone());
                    told.send_if_modified(|told| replaces(told, now));
                }
                LineModels::Calls {
                    terms,
                    served: told,
                } => {
                    let kind = told.borrow().kind;
                    let mut kinds = polled(terms).into_iter();
                    if let Some(now) = kinds.find(|now| now.kind == kind) {
                        told.send_if_modified(|told| replaces(told, now));
                    }
                }
            }
        }
        Ok(true)
    }

    fn is_polled_for(&self, kind: PolledKind) -> bool {
        self.lines.iter().any(|line| match &line.models {
            LineModels::Socket(..) => false,
            LineModels::Calls { served, .. } => served.borrow().kind == kind,
        })
    }

    /// Has the devices compute for this share of time from now on.
    pub fn keep_duty(&self, duty: watch::Receiver<f64>, tasks: &Tasks) {
        keep_duty(self.stock.subscribe(), duty, tasks);
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        self.lines.iter().map(|line| &line.link)
    }

    /// Waits until a coordinator has the current list of models.
    pub async fn until_up_to_date(&self) {
        let waits = self.links().cloned().map(|mut link| {
            Box::pin(async move {
                link.up_to_date().await;
            })
        });
        let waits: Vec<_> = waits.collect();
        if !waits.is_empty() {
            futures_util::future::select_all(waits).await;
        }
    }

    /// Waits until every connected coordinator has it.
    pub async fn until_all_up_to_date(&self) {
        for mut link in self.links().cloned() {
            if matches!(link.standing(), Standing::Connected(_)) {
                link.up_to_date().await;
            }
        }
    }

    fn fleet(&self) -> Fleet {
        self.stock.borrow().fleet.clone()
    }

    /// Waits until a coordinator has taken it in. False when every one of them refuses it for good.
    pub async fn connected(&self) -> bool {
        let waits = self.links().cloned().map(|mut link| {
            Box::pin(async move {
                let settled = link.until(|standing| *standing != Standing::Away).await;
                matches!(settled, Some(Standing::Connected(_)))
            })
        });
        let mut waits: Vec<_> = waits.collect();
        while !waits.is_empty() {
            let (is_connected, _, rest) = futures_util::future::select_all(waits).await;
            if is_connected {
                return true;
            }
            waits = rest;
        }
        false
    }

    /// Waits until all coordinators have refused the worker for good and its running jobs are submitted, and returns
    /// the refusals. Never returns while one may still accept it, or without coordinators.
    pub async fn refused(&self) -> Vec<String> {
        if self.lines.is_empty() {
            return pending().await;
        }
        let mut refusals = Vec::new();
        for line in &self.lines {
            let mut link = line.link.clone();
            let is_refused = |standing: &Standing| matches!(standing, Standing::Refused(_));
            let Some(Standing::Refused(why)) = link.until(is_refused).await else {
                return pending().await;
            };
            link.ended().await;
            refusals.push(format!("{}: {why}", line.label));
        }
        refusals
    }

    /// Waits until a thread of a device has ended, by a panic or because the device failed. Tells which device.
    pub async fn engine_ended(&self) -> usize {
        self.fleet().ended().await
    }

    /// The lines, by the names of the coordinators in the log.
    pub fn named_links(&self) -> Vec<(String, Link)> {
        named(&self.lines)
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Totals since its start.
    pub fn activity(&self) -> Activity {
        self.counters.activity(summary::earned(self.links()))
    }

    /// Why coordinators give it no jobs of others, in the order of the lines. A coordinator that is polled has one for
    /// texts and one for images.
    pub fn maintenances(&self) -> Vec<Option<String>> {
        let links = self.links();
        links.map(|link| link.feedback().maintenance()).collect()
    }

    /// Standings of its lines, in order.
    pub fn standings(&self) -> Vec<Standing> {
        self.links().map(Link::standing).collect()
    }

    /// Pauses for the owner: running jobs are handed back at once without a strike, and the device is idle when this
    /// returns.
    pub async fn pause(&self, until: Option<SystemTime>) -> Result<(), Failure> {
        self.tell(Availability::Paused, until);
        self.fleet().pause().await
    }

    /// Accepts no new jobs, and finishes running ones.
    pub fn close(&self, until: Option<SystemTime>) {
        self.tell(Availability::Closing, until);
    }

    pub async fn resume(&self) -> Result<(), Failure> {
        self.fleet().resume().await?;
        self.tell(Availability::Open, None);
        Ok(())
    }

    fn tell(&self, availability: Availability, until: Option<SystemTime>) {
        let since = until.and_then(|until| until.duration_since(UNIX_EPOCH).ok());
        let until = since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0));
        let paused_until = (availability != Availability::Open).then_some(until);
        self.availability.send_replace(availability);
        self.condition.send_modify(|condition| {
            condition.is_paused = availability == Availability::Paused;
            condition.paused_until = paused_until;
            set_status(&mut condition.state, paused_until);
        });
    }

    /// Whether no job runs.
    pub fn is_idle(&self) -> bool {
        self.activity().running == 0
    }

    /// Accepts no more jobs, finishes running ones within the grace period, and leaves its coordinators. Unfinished
    /// jobs are handed back. Returns whether all jobs finished in time.
    pub async fn drain(self, grace: Duration) -> bool {
        self.condition
            .send_modify(|condition| condition.leave_within = Some(grace));
        let leave = async {
            for mut line in self.lines {
                line.link.ended().await;
            }
        };
        timeout(grace + FAREWELL, leave).await.is_ok()
    }
}

fn named(lines: &[PostLine]) -> Vec<(String, Link)> {
    let named = |line: &PostLine| (line.label.clone(), line.link.clone());
    lines.iter().map(named).collect()
}

/// Whether the new value is another one.
fn replaces<T: PartialEq>(value: &mut T, new: T) -> bool {
    let is_other = *value != new;
    *value = new;
    is_other
}

async fn take_offers(
    mut offered: mpsc::Receiver<Offer>,
    mut shop: Shop,
    mut stock: watch::Receiver<Stock>,
    tasks: Tasks,
) {
    let stopping = tasks.stopping();
    loop {
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            offer = offered.recv() => match offer {
                Some(offer) => {
                    if stock.has_changed().unwrap_or(false) {
                        let Stock { fleet, served } = &*stock.borrow_and_update();
                        shop.fleet = fleet.clone();
                        shop.captioning = served.captioning();
                        shop.upstreams = served.upstreams.clone().into();
                    }
                    tasks.start(jobs::run(offer, shop.clone()));
                }
                None => return,
            },
        };
    }
}
