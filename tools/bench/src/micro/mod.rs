//! Benchmarks of single parts of the engine, within this process. They are run when they are asked for.

mod backlog;
mod contest;
mod database;
mod engine;
mod first_rows;
mod held;
mod idle;
mod log_read;
mod publishers;
mod receivers;
mod report;
mod strategies;
mod trace;

use std::path::Path;

use anyhow::Context;

use self::database::Database;
use crate::extent::Extent;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Micro {
    /// The engine without a database or a broker.
    Engine,
    /// Reading and settling a log without an engine, beside a bare SELECT.
    LogRead,
    /// What a relay costs that has nothing to do.
    Idle,
    /// Claims by indexes of their own beside those that serve any table with leases.
    Strategies,
    /// Rows that cannot go yet: idle polls past them, and scheduled ones once they may.
    Held,
    /// From commit to delivery by one publisher of a relay, alone and beside another one that is dead.
    Publishers,
    /// A backlog of traced messages, with and without a tracer provider.
    Trace,
}

/// Runs them, prints a table and writes it down as JSON.
pub(crate) async fn run(url: &str, extent: Extent, wanted: &[Micro], dir: &Path) -> anyhow::Result<()> {
    let database = Database::create(url).await?;
    let figures = measure(&database, extent, wanted).await;
    database.remove().await?;
    let figures = figures?;
    report::table(&figures);
    let path = dir.join("parts.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&figures)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

async fn measure(database: &Database, extent: Extent, wanted: &[Micro]) -> anyhow::Result<Vec<report::Figure>> {
    let mut figures = Vec::new();
    for micro in wanted {
        figures.extend(match micro {
            Micro::Engine => engine::run(extent).await?,
            Micro::LogRead => log_read::run(database, extent).await?,
            Micro::Idle => idle::run(database, extent).await?,
            Micro::Strategies => strategies::run(database, extent).await?,
            Micro::Held => held::run(database, extent).await?,
            Micro::Publishers => publishers::run(database, extent).await?,
            Micro::Trace => trace::run(database, extent).await?,
        });
    }
    Ok(figures)
}
