//! `posthaste log status`

use clap::Args;
use posthaste_core::store::AdminStore;
use serde_json::json;

use crate::commands::status::print_shards;
use crate::config::Config;
use crate::wiring::NativeLog;
use crate::{terminal, wiring};

/// Show who reads which shard of the log, and how far
///
/// On SQLite there is one shard. Without an owner nobody reads.
#[derive(Debug, Args)]
pub struct Status {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Status {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        wiring::probe(&config.database).await?;
        let shards = match wiring::native_log(&config.database).await? {
            NativeLog::Postgres(store) => store.shards().await?,
            NativeLog::Sqlite(store) => store.shards().await?,
        };
        let mut out = terminal::stdout();
        if self.json {
            return out.json(&json!({ "shards": shards }));
        }
        print_shards(&mut out, &shards)?;
        Ok(())
    }
}
