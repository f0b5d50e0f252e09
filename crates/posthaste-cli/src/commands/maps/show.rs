//! `posthaste maps show`

use std::io::{Write, stdout};

use clap::Args;
use posthaste_sql::table::check::check;

use super::find;
use crate::config::Config;
use crate::wiring::Backend;

/// Print a map, or the tables that it describes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste maps show usage > outbox.toml             begin with a map that is near yours
  posthaste maps show ./outbox.toml --ddl --backend mysql")]
pub(super) struct Show {
    /// A map that ships, or the path of a TOML file
    #[arg(value_name = "NAME|FILE")]
    map: String,
    /// Print the SQL that creates its tables
    #[arg(long)]
    ddl: bool,
    /// For a map of your own: for which database [default: that of database.url]
    #[arg(long, value_enum)]
    backend: Option<Backend>,
}

impl Show {
    pub(super) fn run(self, config: &Config) -> anyhow::Result<()> {
        let found = find(&self.map)?;
        let mut out = stdout().lock();
        match (self.ddl, found.ddl) {
            (false, _) => write!(out, "{}", found.toml)?,
            (true, Some(ddl)) => write!(out, "{ddl}")?,
            (true, None) => {
                // What a database without any table lacks.
                let backend = self.backend.unwrap_or_else(|| Backend::of(&config.database));
                for finding in check(&found.map, &[], backend.database()) {
                    if let Some(fix) = finding.fix {
                        writeln!(out, "{fix}\n")?;
                    }
                }
            }
        }
        Ok(())
    }
}
