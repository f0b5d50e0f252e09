//! `posthaste status`

use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use clap::Args;
use humantime_serde::re::humantime::format_duration;
use posthaste_core::store::{OutboxStats, Store};
use serde::Serialize;

use crate::config::Config;
use crate::schema;

/// Show what is in the outbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Go on printing once a second until interrupted
    #[arg(long)]
    watch: bool,
    /// The namespace to look at [default: relay.scope.namespace]
    #[arg(long)]
    namespace: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  posthaste status
  posthaste status --watch
  posthaste status --json | jq .dead";

const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize)]
struct Found<'a> {
    database: String,
    schema_version: i64,
    namespace: &'a str,
    #[serde(flatten)]
    stats: OutboxStats,
}

impl Status {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        let store = schema::open(&config.database).await?;
        let namespace = self.namespace.as_ref().unwrap_or(&config.relay.scope.namespace);
        loop {
            let found = look(&*store, config, namespace).await?;
            self.print(&found)?;
            if !self.watch {
                return Ok(());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn print(&self, found: &Found<'_>) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string(found)?)?;
            return Ok(());
        }
        if self.watch && out.is_terminal() {
            write!(out, "\x1b[2J\x1b[H")?;
        }
        let stats = &found.stats;
        let oldest = Duration::from_secs_f64(stats.oldest_seconds.max(0.0).floor());
        writeln!(
            out,
            "database    {} (schema version {})",
            found.database, found.schema_version
        )?;
        writeln!(out, "namespace   {}", found.namespace)?;
        writeln!(
            out,
            "pending     {} (of these {} wait for a retry or a later time)",
            stats.pending, stats.waiting
        )?;
        writeln!(out, "processing  {}", stats.processing)?;
        let remedy = if stats.dead > 0 {
            "  see `posthaste dead list`"
        } else {
            ""
        };
        writeln!(out, "dead        {}{remedy}", stats.dead)?;
        writeln!(out, "oldest      {}", format_duration(oldest))?;
        Ok(())
    }
}

async fn look<'a>(store: &dyn Store, config: &Config, namespace: &'a str) -> anyhow::Result<Found<'a>> {
    Ok(Found {
        database: config.database.url().to_string(),
        schema_version: store.applied().await?.into_iter().max().unwrap_or_default(),
        namespace,
        stats: store.stats(namespace).await?,
    })
}
