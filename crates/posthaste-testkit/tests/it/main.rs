//! The in-memory store, and the engine on it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod circuit;
mod conformance;
mod engine;
mod metrics;
mod pipelined;
mod properties;
mod requirements;
