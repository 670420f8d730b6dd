//! The coordinator's half: doors for clients, a line for workers, one queue between them.
//!
//! | folder | what it owns |
//! | --- | --- |
//! | `start` | from settings to a coordinator that answers, and its end |
//! | [`http`] | the doors: every URL, who may, requests to jobs and events to replies |
//! | [`names`] | which names lead to one model |
//! | [`state`], [`error`] | what the doors' handlers may ask for; what clients are told of a failure |
//! | [`accounts`] | keys, scopes and roles: who somebody is and what they may do |
//! | [`dispatch`] | the queue, placement, leases, retries: a state machine without I/O |
//! | [`switchboard`] | the task around it: between clients, workers and the books |
//! | [`workers`] | the line for workers: who is let in, and what is said there |
//! | [`pollers`] | workers that come for their jobs instead: who they are, what they have |
//! | [`messages`] | what workers are told with their pops |
//! | [`rigs`] | workers as people know them: what they said, what was decided, what they have done |
//! | [`teams`] | workers that count together |
//! | [`webhooks`] | addresses that are called when a result is there |
//! | [`requests`] | requests that are asked for later: on disk, followed, and forgotten in the end |
//! | [`people`] | what is known of an account beyond its keys: users as they see themselves and each other |
//! | [`egress`] | the one way out to addresses that clients name |
//! | [`pictures`] | images of strangers: read within bounds, written as webp |
//! | [`media`] | where results and source images live, and the links to them |
//! | [`moderation`] | what is not served, and whom: filters, timeouts, suspicion |
//! | [`documents`] | what the operator tells people |
//! | [`modes`] | what is switched for everybody: maintenance, invitations, raids |
//! | [`metering`] | how many tokens a job had, by our own count |
//! | [`secrets`] | credentials in prompts, which strangers do not get |
//! | [`responses`] | responses that are stored, or run without their client |
//! | [`erasure`] | deletion, suspension and export of accounts |
//! | [`progress`] | how far running requests are, by the tokens of their clients |
//! | [`profanity`] | words that no public name or note may hold |
//! | [`kudos`] | what a job costs, how an ended job becomes a settled one, and what else moves kudos |
//! | [`billing`] | what requests cost in money |
//! | [`sharing`] | keys that users hand to others |
//! | [`styles`] | prompts and parameters that users make for each other |
//! | [`stats`] | what was made, lately and ever |
//! | [`leadership`] | which of several coordinators serves a database: its epoch, its pause, its end |
//! | [`local_models`] | downloads for the worker beside a coordinator |
//! | [`storage`] | all SQL: what must outlast the process |
//! | `room` | how much memory requests, replies and large frames take together |
//! | [`display_name`] | which characters names may have |
//! | `turns` | how those who wait for the same are served in turn |
//! | [`passkeys`] | proxies that are believed about whom they ask for |
//! | [`condition`] | how the coordinator stands: starting, serving or draining, and what is wrong |
//! | [`address`], [`clock`], `file_id` | networks of addresses; the time of day; which file a path leads to |
//!
//! It shares `protocol`, `tasks`, `memory` and `intake` with the worker's half, and nothing else.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")
)]

/// Tests measure memory, so they run on the allocator of the program.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: muster_process::memory::Allocator = muster_process::memory::ALLOCATOR;

pub mod accounts;
pub mod address;
pub mod billing;
pub mod clock;
pub mod condition;
pub mod dispatch;
pub mod display_name;
pub mod documents;
pub mod egress;
pub mod erasure;
pub mod error;
mod file_id;
pub mod http;
pub mod kudos;
pub mod leadership;
pub mod local_models;
pub mod media;
pub mod messages;
pub mod metering;
pub mod moderation;
pub mod modes;
pub mod names;
pub mod passkeys;
pub mod people;
pub mod pictures;
pub mod pollers;
pub mod profanity;
pub mod progress;
pub mod requests;
pub mod responses;
pub mod rigs;
mod room;
pub mod secrets;
mod sender;
pub mod sharing;
pub mod start;
pub mod state;
pub mod stats;
pub mod storage;
pub mod styles;
pub mod switchboard;
pub mod teams;
mod turns;
pub mod webhooks;
pub mod workers;

pub use start::{Coordinator, Settings, StartError, TlsFiles};
