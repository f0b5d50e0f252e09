//! What every store must do, as cases that run on any [`Backend`](crate::Backend).
//!
//! A case is a public async function in one of the modules here, named as the sentence that it proves, with the
//! requirements and pitfalls it stands for in its documentation. To add one, write it and put its name on the list in
//! `cases.rs`, with what it needs of a table; a test fails as long as the two differ. Every backend whose table has that
//! runs it from then on.

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
pub mod janitor;
pub mod leadership;
pub mod lease;
pub mod locked;
pub mod locked_table;
pub mod mapped;
pub mod order;
pub mod purge;
pub mod refused;
pub mod registry;
pub mod relay;
pub mod running;
pub mod sequence;
pub mod settle;
mod steps;
pub mod sweep;
pub mod unclaimable;

pub use cases::{Case, cases};

use std::fmt::Write as _;

use crate::backend::{Backend as _, Fixture};

/// Runs one case on an outbox of its own, if it is for the fixture's table.
#[doc(hidden)]
pub async fn run<F: Fixture>(name: &str, case: impl AsyncFnOnce(&F::Backend)) {
    let case_of = cases()
        .into_iter()
        .find(|case| case.name == name)
        .expect("it is on the list");
    if let Some(reason) = F::table().refuses(&case_of) {
        println!("not for this table: {name} {reason}");
        return;
    }
    let backend = F::fresh().await;
    case(&backend).await;
    backend.dispose().await;
}

/// The cases that are not for a fixture's table, each with what it lacks, below a line that counts the others. Kept as a
/// snapshot, it shows when a case is no longer run.
pub fn left_out<F: Fixture>() -> String {
    let (table, cases) = (F::table(), cases());
    let mut lines = String::new();
    let mut run = 0;
    for case in &cases {
        match table.refuses(case) {
            None => run += 1,
            Some(reason) => {
                let _ = writeln!(lines, "{} {reason}", case.name);
            }
        }
    }
    format!("{run} of {} cases run\n{lines}", cases.len())
}
