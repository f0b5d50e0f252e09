//! Posthaste's own log on a real server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../it/tables/by_event.rs"]
mod by_event;
#[path = "../support/mod.rs"]
mod support;

mod all_or_none;
mod backend;
mod beside_failures;
mod conformance;
mod crashes;
mod dead_letters;
mod delayed;
mod draining;
mod enqueue;
mod fixture;
mod gauges;
mod generations;
mod hold_ups;
mod nobody_reads;
mod open_transactions;
mod read_ahead;
mod restarts;
mod server_work;
mod set_back;
mod shards;
mod slots;
mod standstill;
mod statements;
mod taken_back;
mod topics;
mod waiting;
