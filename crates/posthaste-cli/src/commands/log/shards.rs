//! `posthaste log shards`

use anyhow::bail;
use clap::Args;
use posthaste_postgres::LogTables;
use serde_json::json;

use super::tables;
use crate::config::Config;
use crate::wiring::NativeLog;
use crate::{terminal, wiring};

/// Raise the number of shards
///
/// New messages go to new shards at once. Those are read when the old ones are read to their end, and every transaction that was
/// writing has ended, so that the order of each key stays: raise it when the backlog is small. Up to as many relays as there are
/// shards share the work. Each shard takes a connection of the relay that reads it, up to `database.log.max_readers` of one relay;
/// shards beyond that take turns. More shards than the server has connections left are refused. The number can only be raised.
#[derive(Debug, Args)]
pub struct Shards {
    /// How many there shall be
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    number: u32,
    /// Also if they cannot all have a connection at once
    #[arg(long)]
    force: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Shards {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        wiring::probe(&config.database).await?;
        let store = match wiring::native_log(&config.database).await? {
            NativeLog::Postgres(store) => store,
            NativeLog::Sqlite(_) => bail!(
                "{}: a log on SQLite has one shard, which one relay reads at a time; only on PostgreSQL there can be more",
                config.database.url()
            ),
        };
        let tables = tables(&store)?;
        if !self.force {
            self.check_connections(tables).await?;
        }
        let generation = tables.raise_shards(self.number).await?;
        let mut out = terminal::stdout();
        if self.json {
            return out.json(&json!({ "shards": self.number, "generation": generation }));
        }
        writeln!(
            out,
            "new messages go to {} shards, generation {generation}",
            self.number
        )?;
        Ok(())
    }

    /// Shards that have to wait for a connection are read in turn, and the number cannot be lowered again.
    async fn check_connections(&self, tables: &LogTables) -> anyhow::Result<()> {
        let connections = tables.connections().await?;
        // One more, by which their relay is known to be there.
        let needed = u64::from(self.number) + 1;
        if needed <= connections.free {
            return Ok(());
        }
        bail!(
            "{} shards take up to {needed} connections, and {} are left: {} of {} are in use, by {}; ask for fewer shards, raise \
             that limit, or use --force if they may take turns, for the number cannot be lowered again",
            self.number,
            connections.free,
            connections.in_use,
            connections.limit,
            connections.bound
        )
    }
}
