//! One test binary; one module per capability, named like the resource it is about.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

#[cfg(feature = "coordinator")]
mod account;
#[cfg(feature = "coordinator")]
mod accounts;
#[cfg(feature = "coordinator")]
mod agents;
mod bench;
#[cfg(feature = "coordinator")]
mod chat;
#[cfg(feature = "coordinator")]
mod chat_over_socket;
mod cli;
#[cfg(feature = "coordinator")]
mod clients;
#[cfg(feature = "coordinator")]
mod cluster;
mod config;
#[cfg(feature = "coordinator")]
mod conformance;
mod demo;
mod demo_image;
mod demo_music;
mod demo_video;
#[cfg(feature = "coordinator")]
mod demo_vision;
mod demo_voices;
mod documents;
#[cfg(feature = "coordinator")]
mod documents_in_chats;
#[cfg(feature = "coordinator")]
mod encode;
mod engine;
#[cfg(feature = "coordinator")]
mod erasure;
#[cfg(feature = "coordinator")]
mod examples;
#[cfg(feature = "coordinator")]
mod extensions;
#[cfg(feature = "coordinator")]
mod failover;
mod fit;
mod hostile_files;
#[cfg(feature = "coordinator")]
mod hostile_grammars;
mod hostile_media;
#[cfg(feature = "coordinator")]
mod hostile_sockets;
#[cfg(feature = "coordinator")]
mod hostile_texts;
mod hub;
#[cfg(feature = "coordinator")]
mod image_doors;
#[cfg(feature = "coordinator")]
mod images;
#[cfg(feature = "coordinator")]
mod images_in_chats;
mod isolation;
#[cfg(feature = "coordinator")]
mod join;
#[cfg(feature = "coordinator")]
mod keys;
#[cfg(feature = "coordinator")]
mod killed;
#[cfg(feature = "coordinator")]
mod kills;
mod layering;
#[cfg(feature = "coordinator")]
mod legacy;
#[cfg(feature = "coordinator")]
mod limits;
#[cfg(feature = "coordinator")]
mod link;
#[cfg(feature = "coordinator")]
mod lost_leader;
#[cfg(feature = "coordinator")]
mod media;
#[cfg(feature = "coordinator")]
mod media_jobs;
#[cfg(feature = "coordinator")]
mod messages;
mod models;
#[cfg(feature = "coordinator")]
mod native_workers;
#[cfg(feature = "coordinator")]
mod offer;
#[cfg(feature = "coordinator")]
mod offerings;
#[cfg(feature = "coordinator")]
mod ollama;
#[cfg(feature = "coordinator")]
mod openapi;
#[cfg(feature = "coordinator")]
mod operator;
mod owners_page;
mod packages;
#[cfg(feature = "coordinator")]
mod privacy;
mod probe;
#[cfg(feature = "coordinator")]
mod prompt_logprobs;
mod prose;
#[cfg(feature = "coordinator")]
mod real_clients;
#[cfg(feature = "coordinator")]
mod responses;
#[cfg(feature = "coordinator")]
mod routes;
#[cfg(feature = "coordinator")]
mod service;
#[cfg(feature = "coordinator")]
mod single_sequence;
#[cfg(feature = "coordinator")]
mod structured;
mod support;
mod terminal;
#[cfg(feature = "coordinator")]
mod up;
#[cfg(feature = "coordinator")]
mod upstreams;
#[cfg(feature = "coordinator")]
mod videos;
#[cfg(feature = "coordinator")]
mod word_times;
#[cfg(feature = "coordinator")]
mod workers;
