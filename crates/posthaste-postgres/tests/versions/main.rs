//! What depends on the version of the server: run once more on the newest one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod catalogue;
mod conformance;
mod leased;
mod log;
mod maps;
mod plans;
mod statements;
