//! `posthaste log status`

use std::io::Write;

use clap::Args;
use posthaste_core::store::AdminStore;
use serde_json::json;

use crate::commands::status::print_shards;
use crate::config::Config;
use crate::terminal::{self, Printer};
use crate::wiring::NativeLog;

/// Show who reads which shard of the log, and how far
///
/// Also what keeps the newest shards waiting for those before, if they wait. On SQLite there is one shard. Without an owner
/// nobody reads.
#[derive(Debug, Args)]
pub struct Status {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Status {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        let (shards, hold_ups) = match super::existing(&config.database).await? {
            NativeLog::Postgres(store) => (store.shards().await?, store.hold_ups().await?),
            NativeLog::Sqlite(store) => (store.shards().await?, Vec::new()),
        };
        let mut out = terminal::stdout();
        if self.json {
            return out.json(&json!({ "shards": shards, "hold_ups": hold_ups }));
        }
        print_shards(&mut out, &shards)?;
        print_hold_ups(&mut out, &hold_ups)?;
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
