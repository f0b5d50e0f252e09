//! `posthaste log shards`

use clap::Args;
use serde_json::json;

use super::tables;
use crate::config::Config;
use crate::{terminal, wiring};

/// Raise the number of shards
///
/// New messages go to new shards at once. Those are read when the old ones are read to their end, so that the order of each key
/// stays. Up to as many relays as there are shards share the work.
#[derive(Debug, Args)]
pub struct Shards {
    /// How many there shall be
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    number: u32,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Shards {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        wiring::probe(&config.database).await?;
        let store = wiring::native_log(&config.database)?;
        let generation = tables(&store)?.raise_shards(self.number).await?;
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
}
