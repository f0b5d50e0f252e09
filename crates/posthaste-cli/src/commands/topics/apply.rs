//! `posthaste topics apply`

use anyhow::bail;
use clap::Args;
use posthaste_kafka::topics::{ApplyOptions, DeclaredTopics, TopicAdmin};

use super::view;
use crate::terminal;

/// Create what is missing and change what is different
///
/// Deletes nothing. What would break the order of a key or let Kafka delete records is done only if a flag says so.
#[derive(Debug, Args)]
pub(super) struct Apply {
    /// Add partitions too; keys move, so records of one key may be handled out of order across the change
    #[arg(long)]
    grow_partitions: bool,
    /// Make changes too that let Kafka delete records: a shorter retention, another cleanup.policy
    #[arg(long)]
    allow_loss: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Apply {
    pub(super) async fn run(self, admin: &TopicAdmin, declared: &DeclaredTopics) -> anyhow::Result<()> {
        let may = ApplyOptions {
            grow_partitions: self.grow_partitions,
            allow_loss: self.allow_loss,
        };
        let plan = admin.plan(declared).await?;
        let report = admin.apply(&plan, may).await?;
        if self.json {
            terminal::stdout().json(&report)?;
        } else {
            write!(terminal::stdout(), "{}", view::of_report(&report))?;
        }
        let failures: Vec<_> = report
            .failures()
            .map(|(topic, reason)| format!("{topic}: {reason}"))
            .collect();
        if !failures.is_empty() {
            bail!("{}", failures.join("; "));
        }
        Ok(())
    }
}
