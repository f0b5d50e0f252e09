//! `posthaste log`

mod move_queue;
mod shards;
mod status;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use posthaste_postgres::{LogTables, PostgresLogStore};
use posthaste_sql::table::Layout;

use crate::config::{Config, Database};
use crate::wiring::NativeLog;
use crate::{schema, wiring};

/// Move an outbox from the queue layout to the log layout, and look after the log
///
/// Posthaste's own log on PostgreSQL and SQLite: see docs/log-layout.md.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Log {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  posthaste log move --dry-run              what would be moved from the queue to the log
  posthaste log move                        move it; producers may go on writing
  posthaste log shards 8                    divide the log among more relays
  posthaste log status                      who reads which shard, and how far";

#[derive(Debug, Subcommand)]
enum Action {
    Move(move_queue::MoveQueue),
    Shards(shards::Shards),
    Status(status::Status),
}

impl Log {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        match self.action {
            Action::Move(command) => command.run(config).await,
            Action::Shards(command) => command.run(config).await,
            Action::Status(command) => command.run(config).await,
        }
    }
}

/// The log that is there, for commands that look after it. What is missing of it only the layout of a log makes.
async fn existing(database: &Database) -> anyhow::Result<NativeLog> {
    wiring::probe(database).await?;
    let log = wiring::native_log(database).await?;
    let (missing, is_absent) = log.missing().await?;
    let (place, _) = wiring::place(database);
    if missing.is_empty() {
        return Ok(log);
    }
    let make = match database.layout {
        Layout::Log => "run `posthaste migrate up`",
        Layout::Queue => "set database.layout = \"log\" and run `posthaste migrate up`",
    };
    if is_absent {
        bail!(
            "{}: there is no log {place}; {make}, or, if messages are in a queue there, move it with `posthaste log move`",
            database.url()
        );
    }
    bail!(
        "{}: the log {place} is old, without {}; {make}",
        database.url(),
        schema::names(&missing)
    );
}

/// The segments and shards of a log.
fn tables(store: &PostgresLogStore) -> anyhow::Result<&LogTables> {
    store.tables().context("this log has no segments and shards")
}
