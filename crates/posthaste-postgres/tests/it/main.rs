//! The store and its relay on a real server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod claim_lock;
mod corners;
mod frozen;
mod held_lanes;
mod inbox;
mod isolation;
#[cfg(feature = "tokio-postgres")]
mod languages;
mod locks;
mod log_force;
mod log_safety;
mod order_fuzz;
mod pitfalls;
mod pooled;
mod relay;
mod rights;
mod tables;
