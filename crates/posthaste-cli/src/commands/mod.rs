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
use crate::config::Config;
use crate::{config, logging};

/// Runs the command that was asked for.
pub async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        // These need no settings, and must not fail for those that happen to be around.
        Command::Completions(command) => command.run(),
        Command::Demo(command) => command.run().await,
        Command::DemoRelay(command) => command.run().await,
        command => {
            let config = config::load(&cli.settings.origin())?;
            logging::start(&config.log)?;
            run_with(command, config).await
        }
    }
}

async fn run_with(command: Command, config: Config) -> anyhow::Result<()> {
    match command {
        Command::Run(command) => command.run(config).await,
        Command::Migrate(command) => command.run(&config).await,
        Command::Enqueue(command) => command.run(&config).await,
        Command::Status(command) => command.run(&config).await,
        Command::Dead(command) => command.run(&config).await,
        Command::Purge(command) => command.run(&config).await,
        Command::Sql(command) => command.run(&config).await,
        Command::Completions(_) | Command::Demo(_) | Command::DemoRelay(_) => unreachable!("run without settings"),
    }
}
