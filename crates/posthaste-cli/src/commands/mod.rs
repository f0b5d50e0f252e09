//! One file per command.

pub mod alerts;
pub mod completions;
pub mod dead;
#[cfg(feature = "kafka")]
pub mod dlq;
pub mod enqueue;
pub mod grafana;
pub mod log;
pub mod maps;
pub mod migrate;
mod namespace;
pub mod purge;
pub mod run;
pub mod spool;
pub mod sql;
pub mod status;
#[cfg(feature = "kafka")]
pub mod topics;

use crate::args::{Cli, Command, Configured};
use crate::{config, logging};

/// Runs the command that was asked for.
pub async fn run(cli: Cli) -> anyhow::Result<()> {
    let command = match cli.command {
        Command::Completions(command) => return command.run(),
        Command::Alerts(command) => return command.run(),
        Command::Grafana(command) => return command.run(),
        Command::Demo(command) => return command.run().await,
        Command::DemoRelay(command) => return command.run().await,
        Command::Configured(command) => command,
    };
    let config = config::load(&cli.settings.origin())?;
    logging::start(&config.log)?;
    match command {
        Configured::Run(command) => command.run(config).await,
        Configured::Migrate(command) => command.run(&config).await,
        Configured::Enqueue(command) => command.run(&config).await,
        Configured::Status(command) => command.run(&config).await,
        Configured::Dead(command) => command.run(&config).await,
        Configured::Spool(command) => command.run(&config).await,
        Configured::Purge(command) => command.run(&config).await,
        #[cfg(feature = "kafka")]
        Configured::Topics(command) => command.run(&config).await,
        #[cfg(feature = "kafka")]
        Configured::Dlq(command) => command.run(&config).await,
        Configured::Log(command) => command.run(&config).await,
        Configured::Maps(command) => command.run(&config).await,
        Configured::Sql(command) => command.run(&config).await,
    }
}
