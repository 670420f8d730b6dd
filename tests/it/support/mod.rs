//! The language the tests are written in: not every word of it is spoken by every test.

#![allow(dead_code, reason = "a word may wait for its first test")]

#[cfg(feature = "coordinator")]
pub mod app;
#[cfg(feature = "coordinator")]
pub mod boss;
#[cfg(feature = "coordinator")]
pub mod contract;
#[cfg(feature = "coordinator")]
pub mod documented;
pub mod hub;
pub mod machines;
#[cfg(feature = "coordinator")]
pub mod program;
#[cfg(feature = "coordinator")]
pub mod puppet;
#[cfg(feature = "coordinator")]
pub mod rig;
#[cfg(feature = "coordinator")]
pub mod tap;
pub mod worker;
