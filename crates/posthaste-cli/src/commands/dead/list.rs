//! `posthaste dead list`

use std::io::{Write, stdout};

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use posthaste_core::store::Store;

use super::selection::Selection;
use super::view::View;
use crate::config::Config;

/// List dead messages, oldest first
#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    selection: Selection,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Print one JSON object per message
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self, store: &dyn Store, config: &Config) -> anyhow::Result<()> {
        let filter = self.selection.filter(config);
        let records = store.list(&filter, None, self.limit).await?;
        let mut out = stdout().lock();
        if self.json {
            for record in &records {
                writeln!(out, "{}", serde_json::to_string(&View::of(record))?)?;
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
                message.topic.clone(),
                message.ordering_key.clone().unwrap_or_default(),
                record.attempts.to_string(),
                record.created_at.format("%F %T").to_string(),
                record.last_error.clone().unwrap_or_default(),
            ]);
        }
        writeln!(out, "{table}")?;
        Ok(())
    }
}
