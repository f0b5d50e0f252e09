//! `posthaste log status`

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::commands::status::{print_set_back, print_shards};
use crate::config::Config;
use crate::terminal::{self, Printer};
use crate::wiring::NativeLog;

/// Show who reads which shard of the log, and how far
///
/// Also what keeps the newest shards waiting for those before, if they wait. On SQLite there is one shard. Without an owner
/// nobody reads.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posthaste log status
  posthaste log status --json | jq '.shards[] | select(.owner == null)'    shards that nobody reads";

impl Status {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        let log = super::existing(&config.database).await?;
        let (shards, set_back) = (log.shards().await?, log.sequences_set_back().await?);
        let hold_ups = match &log {
            NativeLog::Postgres(store) => store.hold_ups().await?,
            NativeLog::Sqlite(_) => Vec::new(),
        };
        let mut out = terminal::stdout();
        if self.json {
            return out.json(&json!({ "shards": shards, "hold_ups": hold_ups, "set_back": set_back }));
        }
        print_shards(&mut out, &shards)?;
        if shards.iter().all(|shard| shard.owner.is_none()) {
            writeln!(out, "nobody reads the log; start a relay with `posthaste run`")?;
        }
        print_hold_ups(&mut out, &hold_ups)?;
        print_set_back(&mut out, &set_back)?;
        Ok(())
    }
}

/// What keeps the newest shards waiting.
pub(super) fn print_hold_ups(out: &mut Printer<impl Write>, hold_ups: &[String]) -> std::io::Result<()> {
    for hold_up in hold_ups {
        writeln!(out, "the newest shards wait: {hold_up}")?;
    }
    Ok(())
}
