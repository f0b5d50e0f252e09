//! `posthaste dlq show`

use std::io::Write;

use clap::Args;

use super::view::{View, text};
use crate::config::Config;
use crate::terminal;

/// Show everything about one letter
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The topic, with or without `.dlq`
    topic: String,
    /// The letter's offset, as `dlq list` shows it
    offset: i64,
    /// The partition of the .dlq topic
    #[arg(long, default_value_t = 0)]
    partition: i32,
    /// Print a JSON object
    #[arg(long, conflicts_with = "payload")]
    json: bool,
    /// Print the payload only, byte for byte
    #[arg(long)]
    payload: bool,
}

impl Show {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<()> {
        let topic = super::open(config, &self.topic).await?;
        let letter = topic.letter(self.partition, self.offset).await?;
        if self.payload {
            let mut out = std::io::stdout().lock();
            out.write_all(letter.payload.as_deref().unwrap_or_default())?;
            out.flush()?;
        } else if self.json {
            terminal::stdout().json_pretty(&View::of(topic.name(), &letter))?;
        } else {
            write!(terminal::stdout(), "{}", text(topic.name(), &letter))?;
        }
        Ok(())
    }
}
