//! The language the tests are written in: not every word of it is spoken by every test.

#![allow(dead_code, reason = "a word may wait for its first test")]

pub mod app;
pub mod boss;
pub mod hub;
pub mod machines;
pub mod puppet;
pub mod rig;
pub mod worker;
