//! The rules, seen from outside.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod breaker;
mod envelope;
mod lifecycle;
#[cfg(feature = "otel")]
mod trace;
