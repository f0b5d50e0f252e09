//! The command line.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::commands::{completions, dead, enqueue, maps, migrate, purge, run, sql, status};
#[cfg(feature = "kafka")]
use crate::commands::{dlq, topics};
use crate::config::Origin;
use crate::demo;

/// A transactional outbox: delivers the events that applications commit with their data.
#[derive(Debug, Parser)]
#[command(name = "posthaste", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    pub settings: Settings,
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  posthaste demo                            see it work: crashes, an outage, and nothing lost
  posthaste run                             deliver from ./posthaste.db to standard output
  posthaste run --config posthaste.toml     deliver as configured
  posthaste enqueue --topic hello --payload '{\"n\": 1}'
  posthaste status --watch
  posthaste maps infer --table my_outbox    serve a table that you already have

Every setting can be given in the file, as POSTHASTE_<SECTION>__<FIELD> in the environment, or with --set; each overrides \
the one before.";

/// Where the settings come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub struct Settings {
    /// The TOML file with the settings [default: ./posthaste.toml if it exists]
    #[arg(long, global = true, env = "POSTHASTE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The database, in place of database.url; to keep a password out of the process list use the file or
    /// `POSTHASTE_DATABASE__URL`
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// One setting, such as `relay.batch_size=1000`; may be repeated
    #[arg(long, global = true, value_name = "FIELD=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Log more, in place of log.level: with -v what Posthaste does, with -vv what its libraries do, too
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Log errors only, in place of log.level
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

impl Settings {
    pub fn origin(self) -> Origin {
        let url = self.database_url.clone().map(|url| ("database.url".to_owned(), url));
        let level = self.level().map(|level| ("log.level".to_owned(), level.to_owned()));
        Origin {
            file: self.config,
            flags: url.into_iter().chain(level).chain(self.set).collect(),
        }
    }

    /// The log's filter, if a flag says which.
    fn level(&self) -> Option<&'static str> {
        match (self.quiet, self.verbose) {
            (true, _) => Some("error"),
            (false, 0) => None,
            (false, 1) => Some("info,posthaste=debug"),
            (false, 2) => Some("debug"),
            (false, _) => Some("trace"),
        }
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((field, value)) if field.contains('.') => Ok((field.trim().to_owned(), value.trim().to_owned())),
        _ => Err("write the dotted field and its value, such as relay.batch_size=1000".to_owned()),
    }
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a process")]
pub enum Command {
    #[command(flatten)]
    Configured(Configured),
    Demo(demo::Demo),
    DemoRelay(demo::DemoRelay),
    Completions(completions::Completions),
}

/// The commands that have settings.
#[derive(Debug, Subcommand)]
pub enum Configured {
    Run(run::Run),
    Migrate(migrate::Migrate),
    Enqueue(enqueue::Enqueue),
    Status(status::Status),
    Dead(dead::Dead),
    Purge(purge::Purge),
    #[cfg(feature = "kafka")]
    Topics(topics::Topics),
    #[cfg(feature = "kafka")]
    Dlq(dlq::Dlq),
    Maps(maps::Maps),
    Sql(sql::Sql),
}
