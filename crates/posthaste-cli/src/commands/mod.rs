//! One file per command.

pub mod completions;
pub mod dead;
pub mod enqueue;
pub mod migrate;
pub mod purge;
pub mod run;
pub mod sql;
pub mod status;

use crate::args::{Cli, Command};
use crate::{config, logging};

/// Runs the command that was asked for.
pub async fn run(cli: Cli) -> anyhow::Result<()> {
    let command = match cli.command {
        // Needs no settings, and must not fail for those of somebody else.
        Command::Completions(command) => return command.run(),
        command => command,
    };
    let config = config::load(&cli.settings.origin())?;
    logging::start(&config.log)?;
    match command {
        Command::Run(command) => command.run(config).await,
        Command::Migrate(command) => command.run(&config).await,
        Command::Enqueue(command) => command.run(&config).await,
        Command::Status(command) => command.run(&config).await,
        Command::Dead(command) => command.run(&config).await,
        Command::Purge(command) => command.run(&config).await,
        Command::Sql(command) => command.run(&config).await,
        Command::Completions(command) => command.run(),
    }
}
