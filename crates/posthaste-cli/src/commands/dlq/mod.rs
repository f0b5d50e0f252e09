//! `posthaste dlq`

mod list;
mod replay;
mod selection;
mod show;
mod view;

use clap::{Args, Subcommand};
use posthaste_kafka::dead_letter;
use posthaste_kafka::dlq::DeadLetterTopic;

use crate::config::Config;

/// Look at the letters in .dlq topics of Kafka, and replay them
///
/// A letter is a record that no consumer could handle. It is open until it was replayed to the topic it came from, and
/// stays in the .dlq topic until that topic's retention ends.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Dlq {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  posthaste dlq list                              all .dlq topics
  posthaste dlq list order-events --open
  posthaste dlq show order-events 17
  posthaste dlq replay order-events --all --dry-run
  posthaste dlq replay order-events --where type=shop.order.created.v1";

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Show(show::Show),
    Replay(replay::Replay),
}

impl Dlq {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        match self.action {
            Action::List(list) => list.run(config).await,
            Action::Show(show) => show.run(config).await,
            Action::Replay(replay) => replay.run(config).await,
        }
    }
}

/// The dead-letter topic that is meant, with or without `.dlq`.
async fn open(config: &Config, topic: &str) -> anyhow::Result<DeadLetterTopic> {
    let name = match dead_letter::origin_of(topic) {
        Some(_) => topic.to_owned(),
        None => dead_letter::topic_for(topic),
    };
    Ok(DeadLetterTopic::open(&config.kafka.connection()?, &name).await?)
}
