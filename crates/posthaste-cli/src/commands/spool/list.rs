//! `posthaste spool list`

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};

use super::{Which, warn_of_others};
use crate::config::Config;
use crate::terminal::{self, harmless_line};

/// List the dead letters that are in the file and in no other place
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste spool list
  posthaste spool list --limit 1000 --json dead-letters.jsonl")]
pub(super) struct List {
    #[command(flatten)]
    which: Which,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print one JSON object per letter, as it is in the file
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(self, config: &Config) -> anyhow::Result<()> {
        let contents = self.which.letters(config)?.read()?;
        let mut out = terminal::stdout();
        let shown = contents.open.iter().take(self.limit as usize);
        let note = match contents.open.len().saturating_sub(self.limit as usize) {
            0 => None,
            more => Some(format!("there are {more} more; raise --limit")),
        };
        if self.json {
            for open in shown {
                out.json(&open.letter()?)?;
            }
            // Not among the lines, which are for programs.
            if let Some(note) = note {
                eprintln!("{note}");
            }
            warn_of_others(&contents);
            return Ok(());
        }
        if contents.open.is_empty() {
            writeln!(out, "no dead letters")?;
            warn_of_others(&contents);
            return Ok(());
        }
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(["ID", "TOPIC", "KEY", "ATTEMPTS", "DIED", "ERROR"]);
        for open in shown {
            let letter = open.letter()?;
            table.add_row([
                harmless_line(&letter.id),
                harmless_line(&letter.topic),
                harmless_line(letter.ordering_key.as_deref().unwrap_or_default()),
                letter.attempts.to_string(),
                letter.died_at.format("%F %T").to_string(),
                harmless_line(&letter.error),
            ]);
        }
        writeln!(out, "{table}")?;
        if let Some(note) = note {
            writeln!(out, "{note}")?;
        }
        warn_of_others(&contents);
        Ok(())
    }
}
