//! What the macro makes of events, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod events;
mod ui;
