//! What every store must do, as cases that run on any [`Backend`].
//!
//! A case is a public async function in one of the modules here, named as the sentence that it proves, with the
//! requirements and pitfalls it stands for in its documentation. To add one, write it and put its name on the list in
//! `cases.rs`; a test fails as long as the two differ. Every backend runs it from then on.

mod cases;
pub mod enqueue;
mod steps;

use crate::backend::Backend;

/// Runs one case on an outbox of its own.
#[doc(hidden)]
pub async fn run<B: Backend>(case: impl AsyncFnOnce(&B)) {
    let backend = B::fresh().await;
    case(&backend).await;
    backend.dispose().await;
}
