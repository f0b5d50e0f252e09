//! `posthaste maps check`

use std::io::{Write, stdout};

use clap::Args;
use posthaste_sql::table::{Finding, Severity};
use serde_json::json;

use super::with_map;
use crate::config::Config;
use crate::failure::EndWith;
use crate::{schema, wiring};

/// Compare the tables with their map, and print the SQL that fixes what differs
///
/// Changes nothing: every verdict is tried on a row or two, and rolled back. Ends with code 1 if the map cannot be used on
/// these tables.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste maps check --map ./outbox.toml
  posthaste maps check --map usage --json | jq -r '.findings[].fix'")]
pub(super) struct Check {
    /// A map that ships, or the path of a TOML file [default: database.map, else Posthaste's own tables]
    #[arg(long, value_name = "NAME|FILE")]
    map: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<()> {
        let mut database = config.database.clone();
        if let Some(given) = &self.map {
            database = with_map(database, given)?;
        }
        wiring::probe(&database).await?;
        let mut findings = schema::findings(&database).await?;
        if !findings.iter().any(|finding| finding.severity == Severity::Error) {
            // What the catalogue does not say: rights, triggers, constraints. Written and rolled back.
            findings.splice(0..0, schema::refusal(&database, &config.relay.scope).await?);
        }
        let name = database.table_map().map_or("posthaste", |map| map.name()).to_owned();
        let url = database.url().to_string();
        let mut out = stdout().lock();
        if self.json {
            writeln!(out, "{}", json!({"map": name, "database": url, "findings": findings}))?;
        } else {
            print(&mut out, &name, &url, &findings)?;
        }
        if findings.iter().any(|finding| finding.severity == Severity::Error) {
            return Err(EndWith(1).into());
        }
        Ok(())
    }
}

fn print(out: &mut impl Write, name: &str, url: &str, findings: &[Finding]) -> std::io::Result<()> {
    // All but the fixes are comments, so that the whole can be read by a DBA and run.
    writeln!(out, "-- table map {name} on {url}")?;
    for finding in findings {
        let word = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(out, "\n-- {word}: {}: {}", finding.field, finding.problem)?;
        if let Some(fix) = &finding.fix {
            writeln!(out, "{fix}")?;
        }
    }
    let errors = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .count();
    match (errors, findings.len() - errors) {
        (0, 0) => writeln!(out, "-- all is as the map says"),
        (0, warnings) => writeln!(out, "\n-- the map can be used; warnings: {warnings}"),
        (errors, warnings) => writeln!(
            out,
            "\n-- the map cannot be used yet; errors: {errors}, warnings: {warnings}"
        ),
    }
}
