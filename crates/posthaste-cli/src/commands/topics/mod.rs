//! `posthaste topics`

mod apply;
mod plan;
mod view;

use anyhow::bail;
use clap::{Args, Subcommand};
use posthaste_kafka::topics::TopicAdmin;

use crate::config::Config;

/// Create and change Kafka topics as declared
///
/// Topics are declared in the settings: `[kafka.topics.order-events]` for each of them, `[kafka.topic_defaults]` for
/// what holds for all. Each has a `.dlq` topic for records that no consumer could handle. Nothing is ever deleted.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Topics {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  posthaste topics plan                     what is missing or different
  posthaste topics plan --exit-code         for scripts: 0 as declared, 3 not
  posthaste topics apply";

#[derive(Debug, Subcommand)]
enum Action {
    Plan(plan::Plan),
    Apply(apply::Apply),
}

impl Topics {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        let declared = config.kafka.declared_topics();
        if declared.topics.is_empty() {
            bail!(
                "no topics are declared; add a section [kafka.topics.order-events] for each of them to the settings, and \
                 what holds for all of them to [kafka.topic_defaults]"
            );
        }
        let admin = TopicAdmin::new(&config.kafka.connection()?)?;
        match self.action {
            Action::Plan(plan) => plan.run(&admin, &declared).await,
            Action::Apply(apply) => apply.run(&admin, &declared).await,
        }
    }
}
