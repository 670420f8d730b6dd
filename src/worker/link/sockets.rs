//! The sockets of a line: one where the coordinator agrees on extensions, several where it is a public one.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::session::{Peer, Session, Settings};
use super::ws::Shell;
use super::{Condition, Feedback, Line, LineId, Offer, Present, Standing, Transfers, rand_seed};
use muster_process::tasks::Tasks;
use muster_protocol::job::Kind;
use muster_protocol::link::{ModelCapacity, Registration};

/// The first socket of a line, and further ones while the coordinator is a public one.
pub struct Sockets {
    pub id: LineId,
    pub line: Line,
    pub transfers: Transfers,
    pub offers: mpsc::Sender<Offer>,
    pub condition: watch::Receiver<Condition>,
    pub tasks: Tasks,
    pub present: Present,
    pub feedback: Feedback,
    /// By name.
    pub further: BTreeMap<String, FurtherSocket>,
}

pub struct FurtherSocket {
    registration: watch::Sender<Registration>,
    retired: CancellationToken,
}

impl Sockets {
    pub fn shell(
        &self,
        mut registration: watch::Receiver<Registration>,
        retired: CancellationToken,
    ) -> Shell {
        let first = registration.borrow_and_update().clone();
        Shell {
            line: self.id,
            label: self.line.label.clone(),
            dial: self.line.dial.clone(),
            registration,
            session: Session::new(Settings {
                registration: first,
                jitter: rand_seed(),
            }),
            offers: self.offers.clone(),
            transfers: self.transfers.clone(),
            permissions: self.line.permissions,
            condition: self.condition.clone(),
            stopping: self.tasks.stopping(),
            retired,
            feedback: self.feedback.clone(),
            _present: self.present.clone(),
        }
    }

    pub async fn follow(mut self, mut standing: watch::Receiver<Standing>) {
        let mut registration = self.line.registration.clone();
        let mut peer = None;
        loop {
            match &*standing.borrow_and_update() {
                Standing::Connected(now) => peer = Some(*now),
                Standing::Refused(_) => peer = None,
                Standing::Away | Standing::Left => {}
            }
            let whole = registration.borrow_and_update().clone();
            match peer {
                Some(Peer::Public) => self.adjust(&whole),
                Some(Peer::Ours) | None => self.close_all_but(&[]),
            }
            tokio::select! {
                changed = standing.changed() => if changed.is_err() {
                    return;
                },
                Ok(()) = registration.changed() => {}
            }
        }
    }

    fn adjust(&mut self, whole: &Registration) {
        let all = public_registrations(whole, self.line.sockets);
        let wanted = all.get(1..).unwrap_or_default();
        self.close_all_but(wanted);
        for registration in wanted {
            match self.further.get(&registration.name) {
                Some(socket) => {
                    let new = registration.clone();
                    let replace = |old: &mut Registration| std::mem::replace(old, new) != *old;
                    socket.registration.send_if_modified(replace);
                }
                None => self.open(registration),
            }
        }
    }

    fn open(&mut self, registration: &Registration) {
        let (label, name) = (&self.line.label, registration.name.clone());
        info!("opening another socket to {label}, which has no extensions: {name}");
        let retired = CancellationToken::new();
        let (sender, receiver) = watch::channel(registration.clone());
        let shell = self.shell(receiver, retired.clone());
        let (told, _) = watch::channel(Standing::Away);
        let (accepted, _) = watch::channel(None);
        self.tasks.start(shell.run(told, accepted));
        let socket = FurtherSocket {
            registration: sender,
            retired,
        };
        self.further.insert(name, socket);
    }

    fn close_all_but(&mut self, wanted: &[Registration]) {
        self.further.retain(|name, socket| {
            let is_wanted = wanted.iter().any(|one| one.name == *name);
            if !is_wanted {
                socket.retired.cancel();
            }
            is_wanted
        });
    }
}

/// The registrations of the sockets to a public coordinator, each with its own name. The first is that of the line's
/// first socket. If no model has a kind of the public protocol, every socket has all models.
pub fn public_registrations(whole: &Registration, sockets: usize) -> Vec<Registration> {
    let parts = Kind::each().filter_map(|kind| Some((Some(kind), part(whole, kind)?)));
    let mut parts: Vec<_> = parts.collect();
    if parts.is_empty() {
        parts.push((None, whole.clone()));
    }
    let mut all: Vec<Registration> = Vec::new();
    for (kind, part) in parts {
        let name = match kind {
            Some(kind) if !all.is_empty() => {
                format!("{}#{}", whole.name, kind.facts().job_type)
            }
            _ => whole.name.clone(),
        };
        let sockets = match kind {
            None | Some(Kind::Text) => sockets,
            Some(_) => sockets.min(jobs(&part)),
        };
        for socket in 1..=sockets.max(1) {
            let mut registration = part.clone();
            registration.name = match socket {
                1 => name.clone(),
                _ => format!("{name}#{socket}"),
            };
            if !all.is_empty() {
                registration.ext = None;
                registration.capacity = None;
            }
            all.push(registration);
        }
    }
    all
}

/// The registration of the first socket without extensions.
pub fn first_public_registration(whole: &Registration) -> Registration {
    public_registrations(whole, 1).swap_remove(0)
}

/// A registration for the models of one kind. `None` if the worker has none, or the public protocol lacks the kind.
fn part(whole: &Registration, kind: Kind) -> Option<Registration> {
    let job_type = kind.facts().job_type;
    // Kinds with another kind's job type are distinguished by an extension.
    let first = Kind::each().find(|one| one.facts().job_type == job_type);
    let mut part = whole.clone();
    let models = &mut part.capacity.as_mut()?.models;
    models.retain(|model| model.kinds.each().any(|one| one == kind));
    part.models = models.iter().map(|model| model.name.clone()).collect();
    part.kinds = kind.into();
    (first == Some(kind) && !part.models.is_empty()).then_some(part)
}

/// Jobs at once.
fn jobs(part: &Registration) -> usize {
    let models = part.capacity.iter().flat_map(|capacity| &capacity.models);
    models.map(|model: &ModelCapacity| model.max as usize).sum()
}

#[cfg(test)]
mod tests {
    use super::public_registrations;
    use muster_protocol::job::Kind;
    use muster_protocol::link::{Capacity, ModelCapacity, Registration};

    fn check(models: &[(&str, Kind, u32)], sockets: usize, wanted: &[(&str, &[&str], Kind)]) {
        let names = models.iter().map(|(name, ..)| (*name).to_owned()).collect();
        let capacity = models.iter().map(|(name, kind, max)| ModelCapacity {
            name: (*name).to_owned(),
            max: *max,
            kinds: (*kind).into(),
            ..ModelCapacity::default()
        });
        let whole = Registration {
            capacity: Some(Capacity {
                total: 9,
                models: capacity.collect(),
            }),
            ..Registration::new("key", "rig", names)
        };
        let all = public_registrations(&whole, sockets);
        let found: Vec<_> = all
            .iter()
            .map(|one| (one.name.as_str(), one.models.clone(), one.kinds))
            .collect();
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(name, models, kind)| {
                let models = models.iter().map(|name| (*name).to_owned()).collect();
                (*name, models, (*kind).into())
            })
            .collect();
        assert_eq!(found, wanted);
        assert!(all[1..].iter().all(|one| one.capacity.is_none()));
    }

    #[test]
    fn each_job_type_has_its_own_sockets_at_a_public_coordinator() {
        let (text, image) = (Kind::Text, Kind::Image);
        check(&[("a", image, 1)], 2, &[("rig", &["a"], image)]);
        check(
            &[("draws", image, 1), ("a", text, 4), ("b", text, 4)],
            2,
            &[
                ("rig", &["a", "b"], text),
                ("rig#2", &["a", "b"], text),
                ("rig#image", &["draws"], image),
            ],
        );
    }

    #[test]
    fn models_of_kinds_that_only_extensions_carry_get_no_public_jobs() {
        check(
            &[("embeds", Kind::Embedding, 4), ("a", Kind::Text, 4)],
            1,
            &[("rig", &["a"], Kind::Text)],
        );
        check(
            &[("embeds", Kind::Embedding, 4)],
            1,
            &[("rig", &["embeds"], Kind::Text)],
        );
    }
}
