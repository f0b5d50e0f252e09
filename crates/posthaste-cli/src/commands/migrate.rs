//! `posthaste migrate`

use anyhow::bail;
use clap::{Args, Subcommand};
use posthaste_core::store::{Migration, Store};
use posthaste_sql::TableMap;
use posthaste_sql::table::Strategy;
use serde_json::json;

use crate::config::{Config, Database};
use crate::wiring::{self, IfMissing};
use crate::{schema, terminal};

/// Create or update the outbox tables
///
/// Each step is applied once, also when several processes start at the same moment; run again, nothing happens.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Migrate {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the SQL that would run, and change nothing
    #[arg(long, global = true)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  posthaste migrate                          apply what is missing
  posthaste migrate up --dry-run > todo.sql  for a DBA to read
  posthaste migrate status
  posthaste migrate status --check           for a deployment: exit code 1 if a step is missing";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
enum Action {
    /// Apply what is missing (the default)
    Up,
    /// Show which steps were applied
    Status {
        /// Print one JSON object per step
        #[arg(long)]
        json: bool,
        /// End with exit code 1 if a step is missing
        #[arg(long)]
        check: bool,
    },
}

impl Migrate {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        let database = &config.database;
        let changes = !matches!(self.action, Some(Action::Status { .. })) && !self.dry_run;
        if let Some(map) = database.table_map() {
            if changes && map.strategy() == Strategy::Log {
                wiring::probe(database).await?;
                // A log's reader has a table of ours beside them.
                wiring::store(database, IfMissing::Refuse).await?.migrate().await?;
            }
            return leave_alone(database, map);
        }
        wiring::probe(database).await?;
        let if_missing = if changes { IfMissing::Create } else { IfMissing::Pretend };
        let store = wiring::store(database, if_missing).await?;
        match self.action {
            Some(Action::Status { json, check }) => status(&*store, json, check).await,
            _ if self.dry_run => print_missing(&*store).await,
            _ => up(&*store).await,
        }
    }
}

/// Tables of a map are their owner's.
fn leave_alone(database: &Database, map: &TableMap) -> anyhow::Result<()> {
    writeln!(
        terminal::stdout(),
        "The tables of the table map {} are yours, and nothing is done to them. `{}` says what they lack\n\
         and prints the SQL that adds it; `{}` prints them as a whole.",
        map.name(),
        database.check_command(),
        database.ddl_command()
    )?;
    Ok(())
}

async fn up(store: &dyn Store) -> anyhow::Result<()> {
    let applied = store.migrate().await?;
    let mut out = terminal::stdout();
    for step in &applied {
        writeln!(out, "applied {:04} {}", step.version, step.name)?;
    }
    if applied.is_empty() {
        writeln!(out, "up to date")?;
    }
    Ok(())
}

async fn print_missing(store: &dyn Store) -> anyhow::Result<()> {
    let missing = schema::missing(store).await?;
    let mut out = terminal::stdout();
    for step in &missing {
        writeln!(out, "-- {:04} {}\n{}\n", step.version, step.name, step.sql.trim_end())?;
    }
    if missing.is_empty() {
        writeln!(out, "-- up to date")?;
    }
    Ok(())
}

async fn status(store: &dyn Store, json: bool, check: bool) -> anyhow::Result<()> {
    let applied = store.applied().await?;
    let steps = store.migrations();
    let is_applied = |step: &Migration| applied.contains(&step.version);
    let printed = print_steps(&steps, is_applied, json);
    let missing = steps.iter().filter(|step| !is_applied(step));
    let missing: Vec<_> = missing
        .map(|step| format!("{:04} {}", step.version, step.name))
        .collect();
    // A reader that is gone must not hide what is missing.
    if check && !missing.is_empty() {
        bail!(
            "migrations are missing: {}; run `posthaste migrate up`",
            missing.join(", ")
        );
    }
    printed
}

fn print_steps(steps: &[Migration], is_applied: impl Fn(&Migration) -> bool, json: bool) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    for step in steps {
        let is_applied = is_applied(step);
        if json {
            out.json(&json!({ "version": step.version, "name": step.name, "applied": is_applied }))?;
            continue;
        }
        let state = if is_applied { "applied" } else { "missing" };
        writeln!(out, "{:04} {:<20} {state}", step.version, step.name)?;
    }
    Ok(())
}
