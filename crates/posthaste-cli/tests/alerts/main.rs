//! The shipped alerts in a real Prometheus, over real relays: each is made to fire, and to clear. And the shipped dashboard.
//!
//! The rules run sixty times as fast as they are shipped: all their durations are divided by sixty, so that a condition that
//! has to last for five minutes has to last for five seconds. Nothing else is changed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dashboard;
mod faster;
mod firing;
mod net;
mod promql;
mod receiver;
mod rules;
#[path = "../cli/support.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with the tests of the command"
)]
mod support;
mod watch;
