//! Running other programs in plain sight.

use std::process::{Command, ExitStatus};

use anyhow::{Context, ensure};

/// Shows the command, runs it with our own input and output, and says how it ended.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<ExitStatus> {
    let line = shown(command);
    eprintln!("+ {line}");
    command.status().with_context(|| format!("cannot run `{line}`"))
}

/// The same, for a command that must succeed.
pub(crate) fn demand(command: &mut Command) -> anyhow::Result<()> {
    let status = run(command)?;
    ensure!(status.success(), "`{}` failed: {status}", shown(command));
    Ok(())
}

/// Whether a program ends well. What it prints is thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|done| done.status.success())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
