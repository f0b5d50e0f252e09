//! `posthaste sql`

use std::io::{Write, stdout};

use clap::Args;

use super::maps;
use crate::config::Config;
use crate::wiring::{self, Backend};

/// Print every statement that runs, finished, for a DBA to read
///
/// Connects to nothing.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Sql {
    /// For which database [default: that of database.url]
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// The PostgreSQL schema [default: database.schema]
    #[arg(long)]
    schema: Option<String>,
    /// What the names of SQLite's and MySQL's tables begin with [default: database.prefix]
    #[arg(long)]
    prefix: Option<String>,
    /// For the tables of this map: a name, or the path of a TOML file [default: database.map]
    #[arg(long, value_name = "NAME|FILE")]
    map: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  posthaste sql --backend postgres
  posthaste sql --backend postgres --schema outbox > statements.sql
  posthaste sql --backend postgres --map usage";

impl Sql {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        let mut database = config.database.clone();
        database.schema = self.schema.or(database.schema);
        database.prefix = self.prefix.or(database.prefix);
        if let Some(given) = &self.map {
            database = maps::with_map(database, given)?;
        }
        let store = wiring::detached_store(&database, self.backend).await?;
        let mut out = stdout().lock();
        for (name, sql) in store.statements() {
            writeln!(out, "-- {name}\n{};\n", sql.trim_end().trim_end_matches(';'))?;
        }
        Ok(())
    }
}
