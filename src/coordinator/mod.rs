//! The coordinator: APIs for clients, sockets and polling for workers, one queue between them.
//!
//! | folder | contents |
//! | --- | --- |
//! | `start`, `start_error` | from settings to a running coordinator, and its shutdown; why it did not start |
//! | `front` | the listener: a page during startup, this coordinator, or the leader of its cluster |
//! | [`http`] | the APIs: every URL, permissions, requests to jobs and events to replies |
//! | [`names`] | the names of a model |
//! | [`state`], [`error`] | the state of request handlers; errors for clients |
//! | [`accounts`] | keys, scopes and roles: authentication and permissions |
//! | [`dispatch`] | the queue, placement, leases, retries: a state machine without I/O |
//! | [`switchboard`] | the task around it: between clients, workers and the books |
//! | [`workers`] | socket workers: admission and protocol |
//! | [`pollers`] | polling workers: pops, leases and submits |
//! | [`messages`] | messages to polling workers |
//! | [`rigs`] | records of workers: reports, settings, totals |
//! | [`teams`] | teams of workers |
//! | [`webhooks`] | calls to clients' URLs when a result is ready |
//! | [`requests`] | durable requests, polled for later: stored, followed, and deleted on expiry |
//! | [`people`] | users: the data of an account beyond its keys |
//! | [`egress`] | outbound HTTP to addresses that clients name, with an SSRF guard |
//! | [`pictures`] | untrusted images: decoded within limits, encoded again as WebP |
//! | [`media`] | the media store for results and source images, and its links |
//! | [`moderation`] | prompt filters, timeouts, suspicion |
//! | [`documents`] | the operator's documents |
//! | [`modes`] | service modes: maintenance, invitations, raids |
//! | [`metering`] | token counts of jobs, by the coordinator itself |
//! | [`secrets`] | credentials in prompts, removed before public and polling workers get them |
//! | [`responses`] | stored and background responses |
//! | [`erasure`] | deletion, suspension and export of accounts |
//! | [`progress`] | the progress of running requests, by the tokens of their clients |
//! | [`profanity`] | words that no public name or note may contain |
//! | [`kudos`] | prices and settlement of jobs, and kudos transfers |
//! | [`billing`] | prices of requests in money |
//! | [`sharing`] | shared keys |
//! | [`styles`] | prompts and parameters that users share |
//! | [`stats`] | statistics, recent and lifetime |
//! | [`leadership`] | which of several coordinators serves a database: its epoch, its pause, its end |
//! | [`local_models`] | downloads for the worker beside a coordinator |
//! | [`settlements`] | ended jobs on their way to the store |
//! | [`storage`] | all SQL |
//! | [`values`] | values that storage and the modules above share |
//! | `room` | the memory budget of requests, replies and large frames |
//! | [`display_name`] | which characters names may have |
//! | `turns` | fair turns among waiting parties |
//! | [`passkeys`] | passkeys of services that act for their own users |
//! | [`condition`] | the overall condition: starting, serving or draining |
//! | [`address`], [`clock`], `file_id` | networks of addresses; the wall clock; the identity of files |
//!
//! The coordinator shares `protocol`, `tasks`, `memory` and `intake` with the worker's half, and nothing else.

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
mod front;
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
pub mod settlements;
pub mod sharing;
pub mod start;
mod start_error;
pub mod state;
pub mod stats;
pub mod storage;
pub mod styles;
pub mod switchboard;
pub mod teams;
mod turns;
pub mod values;
pub mod webhooks;
pub mod workers;

pub use front::ClusterSettings;
pub use start::{Coordinator, Settings, TlsFiles};
pub use start_error::StartError;
