//! `posthaste dlq replay`

use anyhow::bail;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use posthaste_kafka::dlq::{DeadLetterTopic, Replayed, Selection};
use serde_json::json;

use super::list::table;
use super::selection::Which;
use super::view::View;
use crate::config::Config;
use crate::terminal;

/// Send open letters back to the topics they came from, oldest first
///
/// A letter goes back with its bytes, key and headers, to the partition it came from, plus the header
/// `posthaste_replayed` that counts. It is recorded as replayed when the brokers have acknowledged it. One process at a
/// time replays a topic.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste dlq replay order-events --all --dry-run
  posthaste dlq replay order-events --offset 17 --offset 19
  posthaste dlq replay order-events --where type=shop.order.created.v1 --where error=timeout
  posthaste dlq replay order-events --all --limit 100")]
pub(super) struct Replay {
    /// The topic, with or without `.dlq`
    topic: String,
    /// Only the letter at this offset; may be repeated
    #[arg(long = "offset", value_name = "OFFSET")]
    offsets: Vec<i64>,
    #[command(flatten)]
    which: Which,
    /// Needed to mean every open letter
    #[arg(long, conflicts_with_all = ["offsets", "conditions"])]
    all: bool,
    /// At most so many, oldest first [default: all that match]
    #[arg(long)]
    limit: Option<u64>,
    /// Show which letters would be replayed, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON: one object, or with --dry-run one per letter
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<()> {
        if self.which.is_everything() && self.offsets.is_empty() && !self.all {
            bail!("this would mean every open letter; give --offset, --where or --partition, or --all if you mean it");
        }
        let topic = super::open(config, &self.topic).await?;
        let selection = Selection {
            open: true,
            limit: self.limit,
            offsets: self.offsets,
            ..self.which.selection()
        };
        if self.dry_run {
            return print_letters(&topic, &selection, self.json).await;
        }
        let bar = bar(topic.open_letters().await?);
        let result = topic.replay(&selection, |_| bar.inc(1)).await;
        bar.finish_and_clear();
        print(&topic, &result?, self.json)
    }
}

fn bar(open: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>10} {bar:40.green} {pos:>7} of {len} open");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(open).with_style(style).with_prefix("replayed")
}

async fn print_letters(topic: &DeadLetterTopic, selection: &Selection, json: bool) -> anyhow::Result<()> {
    let letters = topic.letters(selection).await?;
    let mut out = terminal::stdout();
    if json {
        for letter in &letters {
            out.json(&View::of(topic.name(), letter))?;
        }
        return Ok(());
    }
    if !letters.is_empty() {
        writeln!(out, "{}\n", table(&letters))?;
    }
    writeln!(out, "would replay {}", letters.len())?;
    Ok(())
}

fn print(topic: &DeadLetterTopic, replayed: &Replayed, json: bool) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    if json {
        return out.json(&json!({ "topic": topic.name(), "replayed": replayed.letters, "to": replayed.topics }));
    }
    let to: Vec<_> = replayed
        .topics
        .iter()
        .map(|(topic, count)| format!("{count} to {topic}"))
        .collect();
    let detail = if to.is_empty() {
        String::new()
    } else {
        format!(": {}", to.join(", "))
    };
    writeln!(out, "replayed {}{detail}", replayed.letters)?;
    Ok(())
}
