//! `posthaste dlq list`

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use posthaste_kafka::dlq::{self, DeadLetterRecord, Selection, Summary};

use super::selection::Which;
use super::view::{View, shortened, time};
use crate::config::Config;
use crate::terminal::{self, harmless_line};

/// List .dlq topics, or the letters in one of them
#[derive(Debug, Args)]
pub(super) struct List {
    /// The topic, with or without `.dlq` [default: show how many letters are open in each]
    topic: Option<String>,
    #[command(flatten)]
    which: Which,
    /// Only letters that were not replayed
    #[arg(long)]
    open: bool,
    /// At most so many, oldest first
    #[arg(long, default_value_t = 50)]
    limit: u64,
    /// Print one JSON object per topic or letter
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<()> {
        let Some(topic) = self.topic else {
            return print_topics(&dlq::summaries(&config.kafka.connection()?).await?, self.json);
        };
        let topic = super::open(config, &topic).await?;
        let selection = Selection {
            open: self.open,
            // One more than is shown tells whether there are more.
            limit: Some(self.limit.saturating_add(1)),
            ..self.which.selection()
        };
        let mut letters = topic.letters(&selection).await?;
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = letters.len() > limit;
        letters.truncate(limit);
        let mut out = terminal::stdout();
        if self.json {
            for letter in &letters {
                out.json(&View::of(topic.name(), letter))?;
            }
        } else if letters.is_empty() {
            writeln!(out, "no letters")?;
        } else {
            writeln!(out, "{}", table(&letters))?;
            if more {
                writeln!(out, "there are more; raise --limit")?;
            }
        }
        Ok(())
    }
}

fn print_topics(summaries: &[Summary], json: bool) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    if json {
        for summary in summaries {
            out.json(summary)?;
        }
        return Ok(());
    }
    if summaries.is_empty() {
        writeln!(out, "no .dlq topics")?;
        return Ok(());
    }
    let mut table = plain(&["TOPIC", "OPEN", "OLDEST"]);
    for summary in summaries {
        let oldest = time(summary.oldest);
        table.add_row([summary.topic.clone(), summary.open.to_string(), oldest]);
    }
    writeln!(out, "{table}")?;
    Ok(())
}

/// Letters, one per row.
pub(super) fn table(letters: &[DeadLetterRecord]) -> Table {
    let several = letters.iter().any(|letter| letter.partition != 0);
    let offset = if several { "PARTITION:OFFSET" } else { "OFFSET" };
    let mut table = plain(&[offset, "TIME", "ID", "TYPE", "KEY", "ATTEMPTS", "STATE", "ERROR"]);
    for letter in letters {
        let death = letter.death.as_ref();
        let text = |text: &Option<String>| harmless_line(text.as_deref().unwrap_or_default());
        table.add_row([
            if several {
                format!("{}:{}", letter.partition, letter.offset)
            } else {
                letter.offset.to_string()
            },
            time(letter.time()),
            text(&letter.id),
            text(&letter.event_type),
            letter.key.as_deref().map_or_else(String::new, shown_key),
            death.map_or_else(String::new, |death| death.attempts.to_string()),
            super::view::state(letter).to_owned(),
            death.map_or_else(String::new, |death| shortened(&death.error)),
        ]);
    }
    table
}

fn shown_key(key: &[u8]) -> String {
    shortened(&String::from_utf8_lossy(key))
}

fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header.iter().copied());
    table
}
