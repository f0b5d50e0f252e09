//! What every store must do, as cases that run on any [`Backend`].
//!
//! A case is a public async function in one of the modules here, named as the sentence that it proves, with the
//! requirements and pitfalls it stands for in its documentation. To add one, write it and put its name on the list in
//! `cases.rs`; a test fails as long as the two differ. Every backend runs it from then on.

pub mod admin;
mod cases;
pub mod circuit;
pub mod claim;
pub mod concurrency;
pub mod dedupe;
pub mod draining;
mod engine;
pub mod enqueue;
pub mod inbox;
pub mod leadership;
pub mod lease;
pub mod locked;
pub mod locked_table;
pub mod order;
pub mod purge;
pub mod refused;
pub mod registry;
pub mod relay;
pub mod running;
pub mod settle;
mod steps;
pub mod sweep;
pub mod unclaimable;

use crate::backend::Backend;

/// Runs one case on an outbox of its own.
#[doc(hidden)]
pub async fn run<B: Backend>(case: impl AsyncFnOnce(&B)) {
    let backend = B::fresh().await;
    case(&backend).await;
    backend.dispose().await;
}
