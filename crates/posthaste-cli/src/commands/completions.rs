//! `posthaste completions`

use std::io::{Write, stdout};

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Completions {
    /// Which shell
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  posthaste completions bash > /etc/bash_completion.d/posthaste
  posthaste completions zsh > ~/.zfunc/_posthaste
  posthaste completions fish > ~/.config/fish/completions/posthaste.fish";

/// The command without its hidden subcommands, which `clap_complete` would offer.
fn visible(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    Command::new("posthaste")
        .args(command.get_arguments())
        .subcommands(shown.cloned())
}

impl Completions {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut visible(&Cli::command()), "posthaste", &mut script);
        stdout().write_all(&script)?;
        Ok(())
    }
}
