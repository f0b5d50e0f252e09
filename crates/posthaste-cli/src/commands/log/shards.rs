//! `posthaste log shards`

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use posthaste_core::store::{AdminStore, ShardStatus};
use posthaste_postgres::LogTables;
use serde_json::json;
use tokio::time::sleep;

use super::status::print_hold_ups;
use super::tables;
use crate::config::Config;
use crate::terminal;
use crate::wiring::NativeLog;

/// How long a transaction that has written to the log may stay open before it counts as one that does.
const LONG: Duration = Duration::from_secs(3);

/// Raise the number of shards
///
/// New messages go to new shards at once. Those are read when the old ones are read to their end, and every transaction that was
/// writing has ended, so that the order of each key stays: raise it when the backlog is small. Up to as many relays as there are
/// shards share the work. Each shard takes a connection of the relay that reads it, up to `database.log.max_readers` of one relay;
/// shards beyond that take turns. Shards of earlier generations stay and are read, too, for what failed there and waits. More new ones
/// than the server has connections left for, beside those that nobody reads at present, are refused. The number can only be raised.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Shards {
    /// How many there shall be
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    number: u32,
    /// Also if they cannot all have a connection at once, or transactions that stay open hold them up
    #[arg(long)]
    force: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posthaste log shards 8
  posthaste log status      who reads which shard, and what the newest ones wait for";

impl Shards {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        let store = match super::existing(&config.database).await? {
            NativeLog::Postgres(store) => store,
            NativeLog::Sqlite(_) => bail!(
                "{}: a log on SQLite has one shard, which one relay reads at a time; only on PostgreSQL there can be more",
                config.database.url()
            ),
        };
        let tables = tables(&store)?;
        if !self.force {
            self.check_connections(tables, &store.shards().await?).await?;
            check_writers(tables).await?;
        }
        let generation = tables.raise_shards(self.number).await?;
        let hold_ups = store.hold_ups().await?;
        let all = store.shards().await?.len();
        let max_readers = config.database.log.max_readers;
        let mut out = terminal::stdout();
        if self.json {
            return out.json(&json!({
                "shards": self.number, "generation": generation, "all_shards": all, "max_readers": max_readers,
                "hold_ups": hold_ups,
            }));
        }
        writeln!(
            out,
            "new messages go to {} shards, generation {generation}",
            self.number
        )?;
        writeln!(
            out,
            "with those of earlier generations {all} shards are read in all; one relay reads up to {max_readers} of them at once \
             (database.log.max_readers)"
        )?;
        print_hold_ups(&mut out, &hold_ups)?;
        Ok(())
    }

    /// Shards that have to wait for a connection are read in turn, and the number cannot be lowered again.
    async fn check_connections(&self, tables: &LogTables, there: &[ShardStatus]) -> anyhow::Result<()> {
        let newest = there.iter().map(|shard| shard.generation).max();
        let newest = there.iter().filter(|shard| Some(shard.generation) == newest);
        // As many make no new ones, and fewer are refused by the log.
        if newest.count() >= self.number as usize {
            return Ok(());
        }
        let connections = tables.connections().await?;
        // The shards of all generations are read.
        let unread = there.iter().filter(|shard| shard.process.is_none()).count();
        // One more, by which their relay is known to be there.
        let needed = u64::from(self.number) + unread as u64 + 1;
        if needed <= connections.free {
            return Ok(());
        }
        bail!(
            "{} new shards, and {unread} that are there and have none, take up to {needed} connections, and {} are left: {} of {} \
             are in use, by {}; ask for fewer shards, raise that limit, or use --force if they may take turns, for the number \
             cannot be lowered again",
            self.number,
            connections.free,
            connections.in_use,
            connections.limit,
            connections.bound
        )
    }
}

/// New messages are not read before every transaction that was writing has ended, and the switch cannot be taken back.
async fn check_writers(tables: &LogTables) -> anyhow::Result<()> {
    let mut writers = tables.writers().await?;
    if writers.is_empty() {
        return Ok(());
    }
    sleep(LONG).await;
    let still = tables.writers().await?;
    writers.retain(|name, _| still.contains_key(name));
    if writers.is_empty() {
        return Ok(());
    }
    let writers: Vec<_> = writers.into_values().collect();
    bail!(
        "new messages would wait for transactions that have written to the log and stay open: {}; end them first, or use --force if \
         they end soon",
        writers.join("; ")
    )
}
