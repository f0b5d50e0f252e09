//! The command line.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args, Error, Parser, Subcommand};

use crate::commands::{
    alerts, completions, dead, enqueue, grafana, log, maps, migrate, purge, run, spool, sql, status,
};
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

impl Cli {
    /// Reads the command line; says what is wrong with it, and ends.
    pub fn of_process() -> Self {
        Self::try_parse().unwrap_or_else(|mut error| {
            // Whoever forgets `--set` has written a value that may be a secret.
            for kind in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand] {
                if let Some(ContextValue::String(given)) = error.get(kind)
                    && let Some((field, _)) = given.split_once('=')
                {
                    let shown = format!("{field}=***");
                    error.insert(kind, ContextValue::String(shown));
                }
            }
            error.exit()
        })
    }
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
    #[arg(long, global = true, env = CONFIG_VARIABLE, value_name = "FILE", value_parser = ConfigFile)]
    config: Option<PathBuf>,
    /// The database, in place of database.url; to keep a password out of the process list use the file or
    /// `POSTHASTE_DATABASE__URL`
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// One setting, such as `relay.batch_size=1000`; may be repeated
    #[arg(long, global = true, value_name = "FIELD=VALUE", value_parser = Setting)]
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

const CONFIG_VARIABLE: &str = "POSTHASTE_CONFIG";

/// Reads a path. Clap would not say which variable is empty.
#[derive(Clone, Debug)]
struct ConfigFile;

impl TypedValueParser for ConfigFile {
    type Value = PathBuf;

    fn parse_ref(&self, command: &clap::Command, _: Option<&Arg>, given: &OsStr) -> Result<PathBuf, Error> {
        if given.is_empty() {
            let message = format!("--config or {CONFIG_VARIABLE} is empty: name a TOML file, or leave it out\n");
            return Err(Error::raw(ErrorKind::ValueValidation, message).with_cmd(command));
        }
        Ok(given.into())
    }
}

/// Reads `field=value`. What is wrong is said without the value, which clap would quote: it may be a secret.
#[derive(Clone, Debug)]
struct Setting;

impl TypedValueParser for Setting {
    type Value = (String, String);

    fn parse_ref(&self, command: &clap::Command, _: Option<&Arg>, given: &OsStr) -> Result<Self::Value, Error> {
        let text = given.to_string_lossy();
        let shown = match text.split_once('=') {
            Some((field, value)) if field.contains('.') => {
                return Ok((field.trim().to_owned(), value.trim().to_owned()));
            }
            Some((field, _)) => format!("--set {field}=***"),
            None => "--set".to_owned(),
        };
        let remedy = "write the dotted field and its value, such as relay.batch_size=1000";
        Err(Error::raw(ErrorKind::ValueValidation, format!("{shown}: {remedy}\n")).with_cmd(command))
    }
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a process")]
pub enum Command {
    #[command(flatten)]
    Configured(Configured),
    Demo(demo::Demo),
    DemoRelay(demo::DemoRelay),
    Alerts(alerts::Alerts),
    Grafana(grafana::Grafana),
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
    Spool(spool::Spool),
    Purge(purge::Purge),
    #[cfg(feature = "kafka")]
    Topics(topics::Topics),
    #[cfg(feature = "kafka")]
    Dlq(dlq::Dlq),
    Log(log::Log),
    Maps(maps::Maps),
    Sql(sql::Sql),
}
