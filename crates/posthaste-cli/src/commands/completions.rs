//! `posthaste completions`

use std::io::{Write, stdout};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Completions {
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  posthaste completions bash > /etc/bash_completion.d/posthaste
  posthaste completions zsh > ~/.zfunc/_posthaste
  posthaste completions fish > ~/.config/fish/completions/posthaste.fish";

impl Completions {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "posthaste", &mut script);
        stdout().write_all(&script)?;
        Ok(())
    }
}
