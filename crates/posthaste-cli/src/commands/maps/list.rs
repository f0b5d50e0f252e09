//! `posthaste maps list`

use std::io::{Write, stdout};

use clap::Args;
use comfy_table::{Table, presets};
use posthaste_sql::table::{self, BUILTIN_MAPS, BuiltinMap, Strategy};
use serde_json::json;

/// List the maps that ship with Posthaste
#[derive(Debug, Args)]
pub(super) struct List {
    /// Print one JSON object per map
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_header(["NAME", "CLAIMS", "TABLE", "ABOUT"]);
        for builtin in &BUILTIN_MAPS {
            let map = builtin.map()?;
            let claims = strategy(map.strategy());
            let outbox = map
                .table(table::Table::Outbox)
                .map(ToString::to_string)
                .unwrap_or_default();
            let about = about(builtin);
            if self.json {
                let line = json!({"name": builtin.name, "strategy": claims, "table": outbox, "about": about});
                writeln!(out, "{line}")?;
            }
            table.add_row([builtin.name, claims, &outbox, &about]);
        }
        if !self.json {
            writeln!(out, "{table}")?;
        }
        Ok(())
    }
}

/// How rows are claimed, in words.
fn strategy(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Split | Strategy::Leased => "leases",
        Strategy::RowLocks => "row locks",
        Strategy::Log => "cursor",
    }
}

/// What the map says of itself.
fn about(builtin: &BuiltinMap) -> String {
    let line = builtin.toml.lines().find_map(|line| line.strip_prefix("about = "));
    line.map(|about| about.trim_matches('"').to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_says_what_it_is_for() {
        assert!(BUILTIN_MAPS.iter().all(|builtin| about(builtin).len() > 20));
    }
}
