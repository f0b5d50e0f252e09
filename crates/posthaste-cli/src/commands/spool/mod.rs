//! `posthaste spool`

mod import;
mod list;
mod thrown_away;

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use posthaste_relay::{Contents, Spool as Letters, Unreadable};

pub use self::thrown_away::mark_thrown_away;
use crate::config::Config;
use crate::terminal::harmless_line;

/// Look at the file of dead letters that the database did not take, and bring them back
///
/// A relay with `safety_net.file` writes a dead letter to that file when the table refuses it. Each letter stays there until
/// the table has taken it after all, or until it is imported.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Spool {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  posthaste spool list
  posthaste spool import --dry-run
  posthaste spool import /var/lib/posthaste/dead-letters.jsonl";

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Import(import::Import),
}

impl Spool {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        match self.action {
            Action::List(list) => list.run(config),
            Action::Import(import) => import.run(config).await,
        }
    }
}

/// Which file.
#[derive(Debug, Args)]
struct Which {
    /// The file; those that were set aside beside it belong to it [default: `safety_net.file`]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Which {
    fn letters(&self, config: &Config) -> anyhow::Result<Letters> {
        let Some(file) = self.file.as_ref().or(config.safety_net.file.as_ref()) else {
            bail!("which file? name it, or set safety_net.file");
        };
        if self.file.is_some() && !file.exists() {
            bail!("{}: there is no such file", file.display());
        }
        Ok(Letters::new(config.safety_net.spool_in(file.clone())))
    }
}

/// Lines that are no letters are not lost silently.
fn warn_of_others(contents: &Contents) {
    if contents.torn > 0 {
        eprintln!("{} lines are no letters: a crash cut them short", contents.torn);
    }
    for Unreadable {
        file,
        first,
        lines,
        error,
    } in &contents.unreadable
    {
        let error = harmless_line(error);
        eprintln!(
            "{}: {lines} lines cannot be read, the first in line {first}: {error}",
            file.display()
        );
    }
}
