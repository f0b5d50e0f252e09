//! Tables that somebody already has, served as they stand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod call_order;
mod injection;
mod logistics;
mod long_ids;
mod order_service;
mod place;
mod plans;
mod refusals;
mod refused_verdicts;
mod row_locks;
mod sql;
mod stalled;
mod unseen;
mod usage;
