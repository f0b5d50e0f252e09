//! `posthaste maps`

mod check;
mod infer;
mod list;
mod show;

use std::path::Path;

use clap::{Args, Subcommand};

use crate::config::{Config, Database, NamedMap};

/// Serve an outbox table that you already have
///
/// A table map says which column plays which role, which labels the states have, and which settings suit the table. Some
/// ship with Posthaste; one of your own is a TOML file. Name it in `database.map`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Maps {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  posthaste maps list
  posthaste maps show usage --ddl
  posthaste maps infer --table outbox_events > outbox.toml     begin with a proposal
  posthaste maps check --map ./outbox.toml                     see what the table lacks
  posthaste run --set database.map=./outbox.toml --set publisher.kind=stdout";

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Show(show::Show),
    Check(check::Check),
    Infer(infer::Infer),
}

impl Maps {
    pub async fn run(self, config: &Config) -> anyhow::Result<()> {
        match self.action {
            Action::List(list) => list.run(),
            Action::Show(show) => show.run(config),
            Action::Check(check) => check.run(config).await,
            Action::Infer(infer) => infer.run(config).await,
        }
    }
}

/// The database with a map that was named on the command line.
pub fn with_map(database: Database, given: &str) -> anyhow::Result<Database> {
    Ok(database.with_map(find(given)?))
}

fn find(given: &str) -> anyhow::Result<NamedMap> {
    NamedMap::find(given, Path::new("")).map_err(|reason| {
        // What is wrong with a file begins with its path.
        if reason.starts_with(given) {
            anyhow::anyhow!("table map {reason}")
        } else {
            anyhow::anyhow!("table map {given:?}: {reason}")
        }
    })
}
