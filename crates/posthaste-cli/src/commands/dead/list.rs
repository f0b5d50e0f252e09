//! `posthaste dead list`

use anyhow::bail;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use posthaste_core::store::Store;
use posthaste_core::{MessageId, StoreError};

use super::named;
use super::selection::Selection;
use super::view::View;
use crate::config::{Config, Database};
use crate::terminal::{self, harmless_line};
use crate::wiring;

/// List dead messages, oldest first
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct List {
    #[command(flatten)]
    selection: Selection,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Go on after this message, the last one of the page before
    #[arg(long, value_name = "ID")]
    after: Option<MessageId>,
    /// Print one JSON object per message
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posthaste dead list --topic orders
  posthaste dead list --limit 100 --after 0192f0c1-7e3a-7c55-9d0e-3f6a1b2c4d5e
  posthaste dead list --json | posthaste enqueue --stdin --config other.toml";

impl List {
    pub(super) fn namespace(&self) -> Option<&str> {
        self.selection.namespace()
    }

    pub(super) async fn run(self, store: &dyn Store, config: &Config) -> anyhow::Result<()> {
        let mut filter = self.selection.filter(config)?;
        filter.ids = named::rows(&named::find(store, &filter.ids).await?);
        let after = listed(store, &config.database, self.after).await?;
        // One more than is shown tells whether there are more.
        let mut records = store.list(&filter, after, self.limit.saturating_add(1)).await?;
        let more = records.len() > self.limit as usize;
        records.truncate(self.limit as usize);
        let note = records.last().filter(|_| more).map(|last| {
            let id = harmless_line(&last.message.id.to_string());
            format!("there are more; go on with --after {id}, or raise --limit")
        });
        let mut out = terminal::stdout();
        if self.json {
            for record in &records {
                out.json(&View::of(record))?;
            }
            if let Some(note) = note {
                // Not among the lines, which are for programs.
                eprintln!("{note}");
            }
            return Ok(());
        }
        if records.is_empty() {
            writeln!(out, "no dead messages")?;
            return Ok(());
        }
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(["ID", "TOPIC", "KEY", "ATTEMPTS", "CREATED", "LAST ERROR"]);
        for record in &records {
            let message = &record.message;
            table.add_row([
                message.id.to_string(),
                harmless_line(&message.topic),
                harmless_line(message.ordering_key.as_deref().unwrap_or_default()),
                record.attempts.to_string(),
                record.created_at.format("%F %T").to_string(),
                harmless_line(record.last_error.as_deref().unwrap_or_default()),
            ]);
        }
        writeln!(out, "{table}")?;
        if let Some(note) = note {
            writeln!(out, "{note}")?;
        }
        Ok(())
    }
}

/// The message to go on after, as the outbox lists it: where a row has a number, that need not be its place among the dead.
async fn listed(store: &dyn Store, database: &Database, after: Option<MessageId>) -> anyhow::Result<Option<MessageId>> {
    let Some(row) = after.filter(|id| id.number().is_some()) else {
        return Ok(after);
    };
    let Some(record) = store.show(row).await? else {
        return Err(StoreError::gone(row).into());
    };
    let id = record.message.id;
    // What has failed has another id there; a page after a mere row would begin behind all that have.
    if id.number().is_some() && wiring::numbers_rows(database) {
        let state = record.state.as_str();
        bail!(
            "message {row}, after which the page was to begin, is not dead: it is {state}; list again from the start"
        );
    }
    Ok(Some(id))
}
