//! The consumer on a real cluster and a real database.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod broker;
mod careless;
mod commits;
mod events;
mod failures;
mod handling;
mod limits;
mod metrics;
mod offsets;
mod outage;
mod rebalance;
mod retention;
mod shop;
mod source;
mod sqlite;
