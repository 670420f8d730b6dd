//! The public, owner's and moderator's view of a worker.

use std::collections::HashMap;

use super::messages::shown;
use crate::messages::Messages;
use crate::rigs::Rig;
use crate::storage::{Owner, RigRow};
use crate::values::{Alias, Roles};
use muster_protocol::job::{Kudos, WorkerId};
use muster_protocol::legacy::annotation;
use muster_protocol::legacy::interrogation::Form;
use muster_protocol::legacy::pop::UNKNOWN_AGENT;
use muster_protocol::legacy::words::{Trade, named};
use muster_protocol::legacy::worker::{
    TeamDetailsLite, WorkerDetails, WorkerKudosDetails, WorkerMessage, speed,
};

/// The relation of the caller to the worker.
#[derive(Debug)]
pub enum Eye {
    Anybody,
    Moderator {
        /// Suspicion of workers with any.
        suspicion: HashMap<WorkerId, u32>,
    },
}

pub fn details(rig: &Rig, eye: &Eye, messages: &Messages) -> WorkerDetails {
    let row = &rig.row;
    let suspicious = match eye {
        Eye::Anybody => None,
        Eye::Moderator { suspicion } => Some(suspicion.get(&row.id).copied().unwrap_or(0)),
    };
    let looks_deep = suspicious.is_some();
    let is_open = looks_deep || row.owner.shows_workers;
    let details = WorkerDetails {
        requests_fulfilled: count(row.done.fulfilled),
        kudos_rewards: kudos(Kudos(row.done.earned.0 + row.done.rewarded.0)),
        kudos_details: WorkerKudosDetails {
            generated: Some(kudos(row.done.earned)),
            uptime: Some(row.done.rewarded.0 / 1000),
        },
        performance: speed(rig.trade, row.speed as f64 / 1000.0),
        threads: row.said.threads,
        uptime: count(row.done.uptime),
        maintenance_mode: row.decided.maintenance.is_some(),
        trusted: row.vouched || row.owner.roles.contains(Roles::TRUSTED),
        flagged: row.owner.roles.contains(Roles::FLAGGED),
        uncompleted_jobs: count(row.done.uncompleted),
        team: team(row),
        bridge_agent: agent(row),
        trade: rig.trade,
        name: row.name.clone(),
        id: row.public_id,
        online: rig.online,
        paused: looks_deep.then_some(row.decided.paused),
        info: Some(row.decided.info.clone()).filter(|info| !info.is_empty()),
        nsfw: Some(row.said.nsfw),
        owner: is_open.then(|| alias(&row.owner)),
        ipaddr: Some(row.said.address.clone()).filter(|at| looks_deep && !at.is_empty()),
        suspicious: suspicious.map(Into::into),
        models: Some(row.said.models.clone()),
        forms: None,
        annotation_types: None,
        contact: row.owner.contact.clone().filter(|_| looks_deep),
        max_pixels: None,
        megapixelsteps_generated: None,
        img2img: None,
        painting: None,
        post_processing: None,
        lora: None,
        controlnet: None,
        sdxl_controlnet: None,
        max_length: None,
        max_context_length: None,
        tokens_generated: None,
        messages: is_open.then(|| told(row.id, messages)),
    };
    by_trade(details, row)
}

/// `name#id`
pub fn alias(owner: &Owner) -> String {
    Alias {
        name: &owner.name,
        account: owner.account,
    }
    .to_string()
}

fn by_trade(details: WorkerDetails, row: &RigRow) -> WorkerDetails {
    let takes = |word: &str| Some(row.said.takes.iter().any(|taken| taken == word));
    match details.trade {
        Trade::Image => WorkerDetails {
            max_pixels: Some(row.said.max_pixels),
            // Clients of the public service expect whole numbers.
            megapixelsteps_generated: Some((row.done.work as f64 / 1_000_000.0).round()),
            img2img: takes("img2img"),
            painting: takes("painting"),
            post_processing: takes("post-processing"),
            lora: takes("lora"),
            controlnet: takes("controlnet"),
            sdxl_controlnet: takes("sdxl_controlnet"),
            ..details
        },
        Trade::Text => WorkerDetails {
            max_length: Some(row.said.max_length),
            max_context_length: Some(row.said.max_context),
            tokens_generated: Some(row.done.work as f64),
            ..details
        },
        Trade::Interrogation => WorkerDetails {
            models: None,
            forms: Some(
                row.said
                    .takes
                    .iter()
                    .filter_map(|it| named(it))
                    .collect::<Vec<Form>>(),
            ),
            annotation_types: Some(
                row.said
                    .takes
                    .iter()
                    .filter_map(|it| annotation::kind_of(it))
                    .collect(),
            ),
            ..details
        },
    }
}

fn told(worker: WorkerId, messages: &Messages) -> Vec<WorkerMessage> {
    let told = messages.only_of(worker);
    told.iter().map(|row| shown(row)).collect()
}

fn team(row: &RigRow) -> TeamDetailsLite {
    match &row.decided.team {
        None => TeamDetailsLite::default(),
        Some(team) => TeamDetailsLite {
            name: Some(team.name.clone()),
            id: Some(team.public_id),
        },
    }
}

fn agent(row: &RigRow) -> String {
    match row.said.agent.as_str() {
        "" => UNKNOWN_AGENT.to_owned(),
        agent => agent.to_owned(),
    }
}

pub fn kudos(kudos: Kudos) -> f64 {
    kudos.0 as f64 / 1000.0
}

pub fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
