//! `posthaste purge`

use std::time::Duration;

use clap::Args;
use humantime_serde::re::humantime::parse_duration;
use serde_json::json;

use crate::config::Config;
use crate::{schema, terminal};

/// Remove delivered messages and expired dedupe keys
///
/// The relay does this by itself, by relay.retention; this command is for doing it now. Nothing undelivered is removed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Purge {
    /// Delivered so long ago, such as 7d [default: relay.retention]
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    older_than: Option<Duration>,
    /// Only say how many rows that would be
    #[arg(long)]
    dry_run: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posthaste purge --older-than 7d --dry-run
  posthaste purge --older-than 7d
  posthaste purge --older-than 12h";

/// Rows of one statement: few enough that its locks are short.
const BATCH: u32 = 1_000;

impl Purge {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        let keep = self.older_than.unwrap_or(config.relay.retention);
        let store = schema::existing(&config.database).await?;
        if self.dry_run {
            return self.print("would remove", "would_remove", store.purgeable(keep).await?);
        }
        let mut removed = 0;
        loop {
            let rows = store.purge(keep, BATCH).await?;
            removed += rows;
            if rows == 0 {
                break;
            }
        }
        self.print("removed", "removed", removed)
    }

    fn print(&self, what: &str, field: &str, rows: u64) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        if self.json {
            return out.json(&json!({ field: rows }));
        }
        writeln!(out, "{what} {rows} rows")?;
        Ok(())
    }
}
